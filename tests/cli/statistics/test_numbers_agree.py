"""Tests in virtual time that snapshot, windows, JSON, metrics and sinks have the same counts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from sunshower import (
    Bolt,
    Context,
    Counter,
    DeadLetter,
    Number,
    Retry,
    Spout,
    Topology,
    count,
    tumbling,
)
from sunshower.cli.metrics import TopologyCollector
from sunshower.cli.statistics import status_fields
from sunshower.runtime.control.measures import Observed
from sunshower.runtime.control.overview import Overview
from sunshower.runtime.plan import Layout
from sunshower.simulation.cluster import SimCluster, SimRun

PLACES = ("cause", "component", "task", "worker")


class Sink(Bolt[Any, None]):
    """Counts its records; takes `seconds` for each; if `refuses`, raises for multiples of 7."""

    def __init__(self, seconds: float = 0.0, refuses: bool = False) -> None:
        self.seconds, self.refuses, self.seen = seconds, refuses, 0

    def prepare(self, context: Context) -> None:
        self.clock = context.clock

    def process(self, record: Any) -> None:
        self.clock.sleep(self.seconds)
        if self.refuses and record.value % 7 == 0:
            raise ValueError("seven")
        self.seen += 1

    def result(self) -> int:
        return self.seen


class Letters(Bolt[DeadLetter, None]):
    def __init__(self) -> None:
        self.seen = 0

    def process(self, record: DeadLetter) -> None:
        self.seen += 1

    def result(self) -> int:
        return self.seen


def twice(number: Number) -> Iterator[Number]:
    yield number
    yield number


def numbers(total: int | None, seconds: float = 0.01) -> Topology:
    topology = Topology("numbers", workers=2)
    counted = topology.spout("count", Counter(total), 2, retry=Retry(attempts=2, dead_letters=True))
    counted.shuffle().bolt("sink", Sink(seconds, refuses=True), 2)
    counted.shuffle().bolt("twice", twice).shuffle().bolt("all", Sink())
    counted.stream("dead_letters").shuffle().bolt("letters", Letters())
    return topology


def run_to_end(total: int, seed: int) -> SimRun:
    run = SimCluster(seed).submit(numbers(total).graph())
    assert run.wait(600.0)
    return run


def as_json(overview: Overview) -> dict[str, Any]:
    fields: dict[str, Any] = json.loads(json.dumps(status_fields(overview, 60.0), allow_nan=False))
    return fields


def exposed(overview: Overview) -> dict[tuple[str, tuple[str, ...]], float]:
    registry = CollectorRegistry()
    registry.register(TopologyCollector(lambda: [Observed(overview.snapshot.topology, overview)]))
    families = text_string_to_metric_families(generate_latest(registry).decode())
    return {
        (sample.name.removeprefix("sunshower_"), tuple(sample.labels.values())): sample.value
        for family in families
        for sample in family.samples
    }


@pytest.mark.parametrize("seed", range(3))
def test_all_outputs_have_the_counts_of_the_sinks(seed: int) -> None:
    run = run_to_end(100, seed)
    overview = run.overview()
    fields, samples = as_json(overview)["components"], exposed(overview)
    sevens = 15  # multiples of 7, which fail twice
    seen = {name: sum(run.results(name)) for name in ("sink", "all", "letters")}
    assert seen["sink"] == 100 - sevens
    assert seen["letters"] == sevens == fields["count"]["dead"]
    for name, sum_ in seen.items():
        assert fields[name]["acked"] == samples["tuples_acked_total", (name, "numbers")] == sum_
    for name, component in fields.items():
        counts = vars(overview.snapshot.component(name))
        assert samples["busy_seconds_total", (name, "numbers")] == counts["busy_s"]
        for window in component["windows"].values():
            assert {key: window[key] for key in counts if key in window} == {
                key: value for key, value in counts.items() if key in window
            }
        for key in ("emitted", "transferred", "acked", "failed"):
            number = samples[f"tuples_{key}_total", (name, "numbers")]
            assert number == component[key] == counts[key]
            assert sum(task[key] for task in component["tasks"]) == counts[key]
        for key in ("emitted", "transferred"):
            assert sum(stream[key] for stream in component["streams"].values()) == counts[key]
            for stream, sent in component["streams"].items():
                assert samples[f"stream_tuples_{key}_total", (name, stream, "numbers")] == sent[key]
        for stream, sent in component["streams"].items():
            number = samples["stream_sent_bytes_total", (name, stream, "numbers")]
            assert number == sent["bytes"] == counts["bytes_to"].get(stream, 0)
        assert (
            sum(stream_input["executed"] for stream_input in component["inputs"])
            == counts["executed"]
        )
        for stream_input in component["inputs"]:
            source = (name, stream_input["component"], stream_input["stream"], "numbers")
            assert samples["stream_tuples_executed_total", source] == stream_input["executed"]
    assert fields["count"]["streams"]["default"]["bytes"] > 0
    assert fields["letters"]["inputs"] == [
        {"component": "count", "stream": "dead_letters", "executed": sevens}
    ]
    assert fields["count"]["streams"]["dead_letters"]["emitted"] == sevens
    complete, of_spout = overview.snapshot.latencies("count"), ("count", "numbers")
    assert samples["complete_latency_seconds_count", of_spout] == fields["count"]["acked"]
    assert samples["complete_latency_seconds_sum", of_spout] == complete.sum_s
    failed = samples["trees_failed_total", ("exception", "count", "numbers")]
    assert failed == samples["tuples_failed_total", of_spout] == 2 * sevens


@pytest.mark.parametrize("seed", range(3))
def test_failures_have_the_task_and_worker_where_they_happened(seed: int) -> None:
    run = run_to_end(100, seed)
    overview = run.overview()
    tasks = {task.index: task.worker for task in overview.plan.tasks_of("sink")}
    failures = as_json(overview)["components"]["count"]["failures"]
    assert {(failure["cause"], failure["component"]) for failure in failures} == {
        ("exception", "sink")
    }
    assert all(tasks[failure["task"]] == failure["worker"] for failure in failures)
    failed = dict.fromkeys(tasks, 0)
    for task in overview.snapshot.tasks():
        if task.component == "sink":
            index = next(
                planned.index for planned in overview.plan.tasks if planned.id == task.task
            )
            failed[index] += task.counts.failed
    assert {failure["task"]: failure["count"] for failure in failures} == failed
    in_sink = exposed(overview)["trees_failed_in_total", ("exception", "sink", "numbers")]
    assert in_sink == sum(failed.values()) == overview.snapshot.component("count").failed


def test_bolts_have_latencies_of_their_code_and_of_their_queue() -> None:
    overview = run_to_end(200, 0).overview()
    latencies = as_json(overview)["components"]["sink"]["latencies"]
    assert latencies["execute"]["count"] == overview.snapshot.component("sink").executed
    assert latencies["queue"]["count"] == latencies["execute"]["count"]
    assert latencies["execute"]["p50_s"] == pytest.approx(0.01, rel=0.3)
    assert latencies["queue"]["p99_s"] > latencies["execute"]["p99_s"]
    complete = as_json(overview)["components"]["count"]["latencies"]["complete"]
    assert complete["max_s"] >= complete["p99_s"] >= complete["p50_s"] >= 0.01


def test_the_bottleneck_is_busy_and_its_senders_wait_for_credit() -> None:
    run = SimCluster(0).submit(numbers(None, seconds=0.5).graph(), Layout.ISOLATE)
    run.wait(90.0)
    window = {
        name: component["windows"]["1m"]
        for name, component in as_json(run.overview())["components"].items()
    }
    assert window["sink"]["capacity"] > 0.9
    assert window["count"]["blocked"] > 0.5
    assert window["sink"]["blocked"] == 0
    assert window["twice"]["capacity"] < 0.2


def test_a_window_has_no_counts_from_before_it() -> None:
    run = SimCluster(0).submit(numbers(None, seconds=1.0).graph())
    run.wait(70.0)
    run.deactivate()
    run.wait(240.0)
    windows = as_json(run.overview())["components"]["count"]["windows"]
    assert windows["1m"]["acked"] == windows["1m"]["failed"] == 0
    assert windows["1m"]["for_s"] == pytest.approx(60.0, abs=6.0)
    assert windows["10m"]["acked"] == windows["all"]["acked"] > 50
    assert windows["10m"]["failures"] == windows["all"]["failures"]
    assert windows["1m"]["latencies"] == {}


def test_windows_continue_when_workers_and_the_master_die() -> None:
    run = SimCluster(0).submit(numbers(None, seconds=0.2).graph())
    run.wait(20.0)
    run.kill_worker(0)
    run.wait(20.0)
    windows = as_json(run.overview())["components"]["sink"]["windows"]
    assert windows["1m"]["acked"] == windows["all"]["acked"] > 0
    run.kill_master()
    run.wait(30.0)
    overview = run.overview()
    fields = as_json(overview)["components"]["sink"]
    assert 0 < fields["windows"]["1m"]["acked"] < fields["windows"]["all"]["acked"]
    assert fields["windows"]["1m"]["for_s"] < 31.0
    assert fields["latencies"]["execute"]["count"] >= fields["acked"]


class Reading(NamedTuple):
    at: float
    room: str


class Readings(Spout[Reading]):
    """One reading for each second of event time."""

    def records(self) -> Iterator[Reading]:
        yield from (Reading(float(at), "hall") for at in range(100_000))


def test_a_window_is_behind_the_event_time_of_its_spout() -> None:
    topology = Topology("readings", workers=2)
    grouped = topology.spout("readings", Readings()).group_by("room")
    minutes = grouped.window(tumbling(seconds=60, field="at", late=10), count())
    minutes.shuffle().bolt("all", Sink(0.01))
    run = SimCluster(0).submit(topology.graph())
    run.wait(1.0)
    overview = run.overview()
    fields, samples = as_json(overview)["components"], exposed(overview)
    newest = float(fields["readings"]["emitted"] - 1)
    for name in ("readings", "windows"):
        assert fields[name]["watermark_lag"] > 0
        assert fields[name]["watermark"] + fields[name]["watermark_lag"] == newest
        for key in ("watermark", "watermark_lag"):
            assert samples[key, (name, "readings")] == fields[name][key]
    assert fields["windows"]["watermark"] <= fields["readings"]["watermark"]
    assert fields["all"]["watermark"] is fields["all"]["watermark_lag"] is None
