"""What a command prints while it waits until the batches that have begun are committed."""

from __future__ import annotations

from io import StringIO
from typing import Any, NamedTuple

from rich.console import Console

from sunshower import Topology, count
from sunshower.cli.cluster_options import progress
from sunshower.simulation.cluster import SimCluster
from sunshower.state import MemoryState
from sunshower.trident import FixedBatchSpout, InMemory, batches


class Word(NamedTuple):
    word: str


def test_a_command_that_waits_prints_the_open_batches() -> None:
    topology = Topology("words")
    spout = FixedBatchSpout([Word("storm")] * 90, 3, type=Word)
    rows = batches(topology, "words", spout, store=InMemory(), interval_s=0.05)
    rows.group_by("word").aggregate(count(), state=MemoryState(), name="counts")
    console: Any = Console(file=StringIO(), width=200)
    with SimCluster(1) as cluster:
        run = cluster.submit(topology.graph())
        run.wait(0.5)
        run.rebalance(tasks={"counts": 2}, look=progress(console, "Rebalancing words"))
        assert run.wait(60.0)
    printed = console.file.getvalue()
    assert "Rebalancing words: " in printed
    assert "batches of words: " in printed
