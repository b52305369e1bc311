"""Tests of the metrics for Prometheus: they equal the snapshot, and counters never decrease."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from syrupy.assertion import SnapshotAssertion

from sunshower import Bolt, Context, Counter, DeadLetter, Number, Retry, Topology
from sunshower.cli.metrics import TopologyCollector
from sunshower.failures import Cause
from sunshower.runtime.control.measures import Observed, buckets
from sunshower.runtime.control.overview import Overview, without_code
from sunshower.runtime.events.health import Health, TaskError, Wait, WaitKind
from sunshower.runtime.events.metrics import Latencies, Snapshot, StuckCall, WorkerStats
from sunshower.runtime.inline import run_inline
from sunshower.runtime.plan import Layout, make_plan
from sunshower.simulation.cluster import SimCluster
from tests.seeds import seeds

Samples = dict[tuple[str, tuple[str, ...]], float]


def refuse_sevens(number: Number) -> Iterator[Number]:
    if number.value % 7 == 0:
        raise ValueError("seven")
    yield number


class Drop(Bolt[Number, None]):
    """Takes `seconds` for each number."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds

    def prepare(self, context: Context) -> None:
        self.clock = context.clock

    def process(self, record: Number) -> None:
        self.clock.sleep(self.seconds)


def write_letter(letter: DeadLetter) -> None: ...


def numbers(total: int, drop: Drop | None = None, workers: int = 1) -> Topology:
    topology = Topology("numbers", workers=workers)
    counted = topology.spout("count", Counter(total), 2, retry=Retry(attempts=2, dead_letters=True))
    counted.shuffle().bolt("check", refuse_sevens, 2).shuffle().bolt("drop", drop or Drop())
    counted.stream("dead_letters").shuffle().bolt("letters", write_letter)
    return topology


def observed(topology: Topology, snapshot: Snapshot) -> Observed:
    plan = without_code(make_plan(topology.graph(), Layout.PACK))
    plan = replace(plan, tasks=tuple(replace(task, worker=0) for task in plan.tasks))
    return Observed("numbers", Overview(plan, snapshot, None, 1e9, {}))


def exposed(*topologies: Observed) -> Samples:
    """Each sample: its name, the values of its labels in their order, its number."""
    registry = CollectorRegistry()
    registry.register(TopologyCollector(lambda: list(topologies)))
    text = generate_latest(registry).decode()
    assert len({line for line in text.splitlines() if line[:6] == "# TYPE"}) > 20
    samples: Samples = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            key = (sample.name.removeprefix("sunshower_"), tuple(sample.labels.values()))
            assert key not in samples
            samples[key] = sample.value
    return samples


# ---- the numbers --------------------------------------------------------------------------------


def test_every_cause_is_exported_from_the_start_so_that_the_first_failure_is_an_increase() -> None:
    topology = numbers(1)
    samples = exposed(observed(topology, Snapshot("numbers", {0: WorkerStats(0, 1)})))
    for cause in Cause:
        assert samples["trees_failed_total", (cause.value, "count", "numbers")] == 0
    assert samples["dead_letters_total", ("count", "numbers")] == 0


OF_PROBLEMS = {
    *("waiting_tasks", "wait_seconds", "stuck_tasks", "stuck_seconds", "quarantined_tasks"),
    *("silent_workers", "worker_restarts_total", "queued_tuples", "queue_wait_seconds"),
    *("lag_records", "topology_state", "tasks", "topology_start_time_seconds"),
}


def test_problems_have_their_component_and_their_length(approved: SnapshotAssertion) -> None:
    topology = numbers(10)
    snapshot = run_inline(topology.graph()).snapshot
    error = TaskError("check", 0, 0, "refused")
    waits = {"check": Wait(WaitKind.UNAVAILABLE, 40.0, 3, error, True),
             "drop": Wait(WaitKind.DOUBT, 5.0, 3, error, True)}  # fmt: skip
    tasks = tuple(
        replace(
            task,
            health=Health(wait=waits.get(task.component)),
            queued=3,
            queue_s=1.5,
            figures={"lag": 4.0, "words[0]/lag": 4.0},
        )
        for task in snapshot.tasks()
    )
    bad = replace(
        snapshot,
        workers={0: WorkerStats(0, 1, tasks)},
        restarts=3,
        stuck={1: StuckCall("drop", 0, 0, 12.0, "a line")},
        degraded={2: error},
        silent={0: 3.0},
        state="inactive",
    )
    measured = exposed(observed(topology, bad))
    assert {
        " ".join([name, *labels]): number
        for (name, labels), number in measured.items()
        if number and name in OF_PROBLEMS
    } == approved


def test_a_component_without_a_lag_has_no_such_sample() -> None:
    topology = numbers(3)
    samples = exposed(observed(topology, run_inline(topology.graph()).snapshot))
    assert not [labels for name, labels in samples if name == "lag_records"]


def test_a_topology_that_does_not_answer_is_down_and_others_are_exported() -> None:
    topology = numbers(3)
    healthy = observed(topology, run_inline(topology.graph()).snapshot)
    samples = exposed(healthy, Observed('a "strange"\\ \n name', None))
    assert samples["up", ("numbers",)] == 1
    assert samples["up", ('a "strange"\\ \n name',)] == 0
    assert len([key for key in samples if key[1][-1] != "numbers"]) == 1


# ---- latencies ----------------------------------------------------------------------------------


def test_buckets_are_cumulative_and_their_bounds_exact() -> None:
    latencies = Latencies()
    latencies.add(np.array([1e-6, 0.00127, 0.00129, 0.5, 1.31, 1.32, 3_000.0]))
    bounds = dict(buckets(latencies))
    assert next(iter(bounds)) == "0.00128"
    assert list(bounds)[-2:] == ["83.8861", "+Inf"]
    assert bounds["0.00128"] == 2
    assert bounds["0.00256"] == 3
    assert bounds["1.31072"] == 5
    assert bounds["2.62144"] == 6
    assert bounds["83.8861"] == 6
    assert bounds["+Inf"] == 7
    assert latencies.sum_s == pytest.approx(3_003.13256)


# ---- restarts -----------------------------------------------------------------------------------


@seeds(5)
def test_counters_never_decrease_when_workers_and_masters_die(seed: int) -> None:
    """If a worker and the master died at once, counts that only they have would be lost: see
    docs/METRICS.md."""
    run = SimCluster(seed).submit(numbers(200, Drop(0.05), workers=2).graph())
    kills = {20: partial(run.kill_worker, seed % 2), 60: run.kill_master,
             100: partial(run.kill_worker, 1 - seed % 2), 140: run.kill_master}  # fmt: skip
    highest: Samples = {}
    step = gaps = 0
    while not run.wait(0.05):
        step += 1
        if kill := kills.get(step):
            kill()
        snapshot = run.snapshot()
        samples = exposed(Observed("numbers", Overview(run.plan, snapshot, None, 0.0, {})))
        gaps += ("tuples_acked_total", ("count", "numbers")) not in samples
        for key, value in samples.items():
            if key[0].endswith(("_total", "_bucket", "_sum", "_count")):
                assert value >= highest.get(key, 0.0), key
                highest[key] = value
    assert snapshot.restarts == 2
    assert step > max(kills)
    assert gaps < step / 10
    final = exposed(Observed("numbers", Overview(run.plan, run.snapshot(), None, 0.0, {})))
    acked = final["tuples_acked_total", ("count", "numbers")]
    assert acked >= 200  # a restarted spout task emits some messages again
    assert final["complete_latency_seconds_count", ("count", "numbers")] == acked
