"""Batches that cannot be emitted again as they were: they are skipped, and the others count."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

import pytest

from sunshower import Line, Topology
from sunshower.errors import ClusterError, FailedBatch
from sunshower.runtime.plan import Layout
from sunshower.simulation.cluster import SimCluster
from sunshower.state import MemoryState
from sunshower.trident import (
    Bounds,
    FixedBatchSpout,
    InMemory,
    Skip,
    TextFileBatches,
    batches,
    count,
)
from tests.trident.rigs.programs import SETTINGS, run


def test_an_incomplete_batch_is_skipped_and_the_next_ones_count(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.write_text("a\nb\nc\n")
    second.write_text("d\n")

    def lose(line: Line) -> Line:
        if line.text == "a":
            first.write_text("x\ny\nc\n")
            raise FailedBatch("a comes to nothing")
        return line

    spout = TextFileBatches(tmp_path / "*", bounds=Bounds(records=3), shares=2)
    topology, state = Topology("lines"), MemoryState()
    skip = Skip(attempts=3, dead_letters=tmp_path / "dead" / "letters.jsonl")
    (tmp_path / "dead").mkdir()
    more = {"store": InMemory(), "skip": skip, "max_batches": 1}
    lines = batches(topology, "lines", spout, **more)
    lines.map(lose).group_by("text").aggregate(count(), state=state)
    run(topology)
    assert dict(state.items()) == {"c": 1}
    written = [path.read_text() for path in (tmp_path / "dead").iterdir()]
    letters = [json.loads(line) for text in written for line in text.splitlines()]
    assert {str(letter["record"].get("text")) for letter in letters} == {"None", "d"}
    (gone,) = (letter for letter in letters if not letter["record"])
    assert "bytes 0 to 4: these are not the 4 bytes" in gone["reason"]
    assert (gone["exception"], gone["attempts"], gone["message_id"]) == ("IncompleteBatch", 3, 1)


@pytest.mark.parametrize("seed", [0, 1, 3])
def test_attempts_are_counted_across_restarts_of_the_coordinator(seed: int, tmp_path: Path) -> None:
    tries: list[str] = []

    def fail(line: Line) -> Line:
        if line.text == "bad":
            tries.append(line.text)
            raise FailedBatch("it is bad")
        return line

    topology = Topology("lines", **SETTINGS)
    state, skip = MemoryState(), Skip(attempts=4, dead_letters=tmp_path / "letters.jsonl")
    spout = FixedBatchSpout([Line("good"), Line("bad"), Line("good")], 1, type=Line)
    lines = batches(topology, "lines", spout, store=InMemory(), skip=skip)
    lines.map(fail).group_by("text").aggregate(count(), state=state)
    sim = SimCluster(seed, check=True).submit(topology.graph(), Layout.ISOLATE)
    (master,) = sim.plan.tasks_of("$mastercoord-lines")
    killed = 0
    while killed < 3:
        sim.wait(0.05)
        if len(tries) > killed:
            sim.wait(0.2)  # until the coordinator knows of the failure
            killed = len(tries)
            with suppress(ClusterError):
                sim.kill_worker(master.worker)
    assert sim.wait(300.0)
    sim.stop()
    assert dict(state.items()) == {"good": 2}
    assert len(tries) == 4
    letters = map(json.loads, (tmp_path / "letters.jsonl").read_text().splitlines())
    assert {(letter["record"]["text"], letter["attempts"]) for letter in letters} == {("bad", 4)}
