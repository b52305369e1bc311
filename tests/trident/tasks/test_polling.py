"""A source of batches that is asked and has nothing is not busy."""

from __future__ import annotations

import pytest

from sunshower import Context, Topology
from sunshower.clock import Clock, ManualClock
from sunshower.runtime.inline import InlineTopology
from sunshower.trident import BatchSpout, InMemory, batches
from sunshower.trident.spouts.port import Rows

LAST = 6
ASKED_S = 0.5


class Polls(BatchSpout):
    """Waits half a second for each batch; only the last one has a row."""

    emits = ("word",)

    def open(self, context: Context) -> None:
        self._clock: Clock = context.clock

    def emit_batch(self, txid: int, rows: Rows) -> None:
        self._clock.sleep(ASKED_S)
        if txid == LAST:
            rows.emit([("a",)])

    def is_last(self, txid: int) -> bool:
        return txid == LAST


def test_asking_a_source_that_has_nothing_is_not_work() -> None:
    topology = Topology("polls")
    taken: list[str] = []
    stream = batches(topology, "polls", Polls(), store=InMemory()).shuffle()
    stream.peek(lambda row: taken.append(row[0])).named("taken")
    with InlineTopology(topology.graph(), clock=ManualClock()) as run:
        run.work(100.0)
        snapshot = run.snapshot()
    assert taken == ["a"]
    assert snapshot.component("polls").busy_s == pytest.approx(ASKED_S, abs=0.1)
    assert snapshot.figures("polls")["rows emitted"] == 1
    assert snapshot.figures("taken")["rows taken"] == 1
