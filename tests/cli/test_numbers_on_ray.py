"""Tests on a real Ray that snapshot, JSON, metrics, sinks and `top` have the same counts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import termios
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from sunshower.cli.metrics import TopologyCollector, observe
from tests.cli.conftest import Command, Write
from tests.structure.reading import ROOT

if TYPE_CHECKING:
    from sunshower.actors.cluster import RayCluster

pytestmark = pytest.mark.ray

NUMBERS = """
    class Sink(Bolt[Number, None]):
        def prepare(self, context: Context) -> None:
            self.seen, self.refused = 0, set()

        def process(self, record: Number) -> None:
            if record.value % 7 == 0 and record.value not in self.refused:
                self.refused.add(record.value)
                raise ValueError("seven")
            self.seen += 1

        def result(self) -> int:
            return self.seen

    topology = Topology("numbers", workers=2)
    topology.spout("count", Counter(1000), 2).shuffle().bolt("sink", Sink)
"""
SEVENS = 143  # the multiples of 7 below 1,000; each fails once


def test_all_outputs_have_the_counts_of_the_sinks(
    here: Command, ray_cluster: RayCluster, write: Write
) -> None:
    here("submit", write(NUMBERS))
    run = ray_cluster.find("numbers")
    assert run.wait(120.0)
    seen = sum(run.results("sink"))
    assert seen == 1_000
    fields = json.loads(here("status", "numbers", "--json").stdout)["components"]
    registry = CollectorRegistry()
    registry.register(TopologyCollector(lambda: observe(ray_cluster)))
    samples = {
        (sample.name, sample.labels.get("component")): sample.value
        for family in text_string_to_metric_families(generate_latest(registry).decode())
        for sample in family.samples
    }
    snapshot = run.snapshot()
    for name, component in fields.items():
        counts = snapshot.component(name)
        for key in ("emitted", "transferred", "acked", "failed"):
            number = samples[f"sunshower_tuples_{key}_total", name]
            assert number == component[key] == getattr(counts, key)
            assert sum(task[key] for task in component["tasks"]) == number
            assert {window[key] for window in since_begin(component["windows"])} == {number}
        assert component["acked"] == seen
        assert component["failed"] == SEVENS
    (sink,) = run.plan.tasks_of("sink")
    place = {"cause": "exception", "component": "sink", "task": 0, "worker": sink.worker}
    assert fields["count"]["failures"] == [{**place, "count": SEVENS}]
    execute = fields["sink"]["latencies"]["execute"]
    assert execute["count"] == fields["sink"]["executed"]
    assert 0 < execute["p50_s"] <= execute["p99_s"] <= execute["max_s"]

    output = here("top", "--once", "--window", "10m").stdout
    assert "count × 2" in output
    assert f"{SEVENS} failed in sink[0] on worker {sink.worker}: exception" in output
    output = here("top", "numbers", "--window", "all").stdout  # no terminal: one frame
    assert "since the beginning" in output
    output = here("status", "numbers", "--component", "sink", "--window", "10m").stdout
    assert "sink[0]" in output
    assert "10m: " in output
    error_text = here("status", "numbers", "--component", "nobody", status=1).stderr
    assert "no component 'nobody'; it has count, sink" in error_text
    error_text = here("top", "nobody", status=1).stderr
    assert "there is no topology 'nobody'" in error_text
    watch_in_a_terminal("numbers", until="sink × 1")


def since_begin(windows: dict[str, Any]) -> list[dict[str, Any]]:
    """The windows that began with the topology; on a slow machine not that of one minute."""
    longest_s = windows["1h"]["for_s"]
    return [window for window in windows.values() if window["for_s"] >= longest_s]


def watch_in_a_terminal(name: str, until: str) -> None:
    """Run `sunshower top` in a terminal until it shows a text. The key q must end it, and the
    settings of the terminal must be restored."""
    import ray

    ours, theirs = os.openpty()
    before = termios.tcgetattr(theirs)
    words = ["top", name, "--address", ray.get_runtime_context().gcs_address]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm", "COLUMNS": "100"}
    process = subprocess.Popen(
        [sys.executable, "-m", "sunshower", *words],
        stdin=theirs, stdout=theirs, stderr=theirs, env=environment,
    )  # fmt: skip
    shown = b""
    while until.encode() not in shown:
        assert process.poll() is None, shown
        shown += os.read(ours, 65_536)
    os.write(ours, b"q")
    assert process.wait(120) == 0
    assert termios.tcgetattr(theirs) == before
    os.close(theirs)
    with suppress(OSError):  # raised at the end: nobody has the terminal open any more
        while True:
            shown += os.read(ours, 65_536)
    assert shown.count(b"\x1b[?1049h") == shown.count(b"\x1b[?1049l") == 1, "its own screen"
    os.close(ours)
