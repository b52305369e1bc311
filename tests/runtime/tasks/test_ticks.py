"""Tests of ticks: their times, their outputs, missed ticks and errors."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from sunshower import (
    BatchBolt,
    Bolt,
    Collector,
    Context,
    Counter,
    Derived,
    Number,
    OnStream,
    Records,
    Spout,
    SpoutCollector,
    Topology,
    Tuple,
)
from sunshower.clock import ManualClock
from sunshower.config import Internals
from sunshower.runtime.events.health import Standing
from sunshower.runtime.plan import Layout, make_plan
from sunshower.runtime.tasks.task_scheduler import Ticker
from sunshower.runtime.tracking.ids import seeded
from sunshower.runtime.worker import Worker
from sunshower.topologies.streams import Stream
from tests.runtime.network import Network
from tests.runtime.rig import ROOT, Rig, edges_by_root, records_of, sink
from tests.runtime.test_under_load import every_layout


def ticker(output_streams: Any = None, every_s: float = 0.5) -> Ticker:
    return Ticker(None, output_streams, every_s, 10.0)  # type: ignore[arg-type]


def times(ticks: Ticker, *looks_s: float) -> list[float]:
    return [now for now in looks_s if ticks.take(now)]


class FakeOutputs:
    """Output streams that are as full as the test says."""

    full = overfull = False


# ---- times --------------------------------------------------------------------------------------


def test_ticks_are_due_at_exact_times_however_late_they_were() -> None:
    ticks = ticker()
    assert times(ticks, 10.0, 10.499, 10.5, 10.6, 11.2, 11.4, 11.5) == [10.5, 11.2, 11.5]


def test_missed_ticks_are_left_out() -> None:
    ticks = ticker()
    assert times(ticks, 17.3, 17.31, 17.4, 17.5) == [17.3, 17.5]


def test_a_million_ticks_do_not_drift() -> None:
    ticks = ticker(every_s=0.1)
    ticks.number = 1_000_000
    assert ticks.due_s == 10.0 + 1_000_000 * 0.1
    assert times(ticks, ticks.due_s) == [pytest.approx(100_010.0)]
    assert ticks.number == 1_000_001


def test_tick_waits_for_room_and_not_longer_than_until_the_next() -> None:
    outputs = FakeOutputs()
    ticks = ticker(outputs)
    outputs.full = True
    assert times(ticks, 10.5, 10.9) == []
    assert ticks.look_s(10.9) == 11.0
    assert times(ticks, 11.0) == [11.0], "although there is no room"
    outputs.full = False
    assert times(ticks, 11.2, 11.5) == [11.5]


def test_tick_is_left_out_if_the_hard_limit_is_reached() -> None:
    outputs = FakeOutputs()
    ticks = ticker(outputs)
    outputs.full = outputs.overfull = True
    assert times(ticks, 10.5, 11.0, 11.6, 12.0) == []
    outputs.full = outputs.overfull = False
    assert times(ticks, 12.4, 12.5) == [12.5]


class NotesTicks(Bolt[Number, Number]):
    """Notes the time of each tick, and yields its number."""

    clock: ManualClock

    def prepare(self, context: Context) -> None:
        self.ticks: list[float] = []

    def process(self, record: Number) -> None: ...

    def tick(self) -> Iterator[Number]:
        self.ticks.append(self.clock.now())
        yield Number(len(self.ticks))

    def result(self) -> list[float]:
        return self.ticks


class Endless(Spout[Number]):
    def next_tuple(self, out: SpoutCollector[Number]) -> None: ...


def test_idle_worker_wakes_for_its_ticks() -> None:
    clock = ManualClock()
    NotesTicks.clock = clock
    topology = Topology("t", ackers=1, internals=Internals(idle_poll_s=100))
    topology.spout("numbers", Endless).shuffle().bolt("ticks", NotesTicks, tick_s=0.25)
    worker = Worker(make_plan(topology.graph()), 0, 1, seeded(0), clock)
    while clock.now() < 1.1:
        wait_s = worker.step()
        assert wait_s is not None
        clock.advance(wait_s)
    assert worker.results("ticks") == [[pytest.approx(n / 4, abs=1e-3) for n in (1, 2, 3, 4)]]


# ---- outputs ------------------------------------------------------------------------------------


class Summing(Bolt[Number, Number]):
    """Emits only at ticks: the sum of its inputs, and a record on another stream."""

    def prepare(self, context: Context) -> None:
        self.sum = 0

    def process(self, record: Number) -> None:
        self.sum += record.value

    def tick(self) -> Iterator[Any]:
        yield Number(self.sum)
        yield OnStream("marks", Number(0))


def topology_of(impl: Any, **out: Any) -> Topology:
    topology = Topology("t", ackers=1)
    source = topology.spout("numbers", Records([Number(1)], type=Number))
    source.shuffle().bolt("bolt", impl, tick_s=1, **out).shuffle().bolt("next", sink)
    return topology


def test_tick_of_an_automatic_bolt_yields_untracked_records() -> None:
    topology = topology_of(Summing, streams={"marks": Number})
    Stream[Any](topology, "bolt", "marks").shuffle().into("next")
    here = Rig(topology)
    here.bolt("bolt").process(here.batch("numbers", [Number(3), Number(4)]))
    here.reports()
    here.bolt("bolt").tick()
    sent = here.sent("next")
    assert records_of(sent) == [Number(7), Number(0)]
    assert not any(batch.tracked for batch in sent)
    assert not here.reports().acks


class Holding(Bolt[Number, Number]):
    """Holds its inputs until the tick, which emits one record that is anchored to all of them."""

    def prepare(self, context: Context) -> None:
        self.held: list[Tuple[Number]] = []

    def execute(self, tuple: Tuple[Number], out: Collector[Number]) -> None:
        self.out = out
        self.held.append(tuple)

    def tick(self) -> Iterator[Number]:
        self.out.emit(Number(sum(t.record.value for t in self.held)), anchors=self.held)
        for tuple in self.held:
            if tuple.record.value < 0:
                self.out.fail(tuple, "below zero")
            else:
                self.out.ack(tuple)
        if not self.held:
            raise ValueError("nothing to tick for")
        self.held = []
        yield Number(-1)


def test_tick_of_a_manual_bolt_emits_with_anchors_acks_and_fails() -> None:
    here = Rig(topology_of(Holding))
    batch = here.batch("numbers", [Number(3), Number(4), Number(-5)])
    here.bolt("bolt").process(batch)
    assert not here.reports().acks
    here.bolt("bolt").tick()
    anchored, loose = here.sent("next")
    assert (anchored.records, loose.records) == ([Number(2)], [Number(-1)])
    assert not loose.tracked
    reports = here.reports()
    good = [batch.only(0), batch.only(1)]
    expected = edges_by_root([*good, anchored])
    expected.pop(ROOT + 2)
    assert dict(reports.acks) == expected
    assert [failure.reason for failure in reports.fails[ROOT + 2]] == ["below zero"]


class Columns(BatchBolt[Number, Number]):
    def process(self, table: pa.Table) -> Derived | None:
        return None

    def tick(self) -> pa.Table:
        return pa.table({"value": [7, 8]})


def test_tick_of_a_batch_bolt_returns_a_table() -> None:
    here = Rig(topology_of(Columns))
    here.bolt("bolt").tick()
    (batch,) = here.sent("next")
    assert batch.records.column("value").to_pylist() == [7, 8]
    assert not batch.tracked


class TickingCounter(Counter):
    def __init__(self, stop: int) -> None:
        super().__init__(stop)
        self.ticks = 0

    def tick(self) -> None:
        self.ticks += 1


@every_layout
def test_ticks_of_a_spout_continue_while_records_flow_and_end_with_them(layout: Layout) -> None:
    class Slow(Bolt[Number, None]):
        def prepare(self, context: Context) -> None:
            self.clock = context.clock

        def process(self, record: Number) -> None:
            self.clock.sleep(0.01)

    topology = Topology("t", workers=2, ackers=1)
    source = topology.spout("numbers", TickingCounter(500), tick_s=0.5)
    source.shuffle().bolt("slow", Slow)
    net = Network(make_plan(topology.graph(), layout))
    net.run()
    assert net.now() > 4.9
    assert 7 <= net.task("numbers").spout.ticks <= 2 * net.now()


# ---- errors -------------------------------------------------------------------------------------


class RaisesInTick(Summing):
    def tick(self) -> None:
        raise ZeroDivisionError("no ticks today")


class WrongRecord(Summing):
    def tick(self) -> Iterator[Any]:
        yield "seven"


@pytest.mark.parametrize(
    ("impl", "message"),
    [
        (RaisesInTick, r"tick of bolt\[0\] raised ZeroDivisionError: no ticks today"),
        (WrongRecord, r"bolt\[0\]: 'seven' \(a str\) does not fit stream 'default'"),
        (Holding, r"tick of bolt\[0\] raised AttributeError"),
    ],
)
def test_tick_that_raises_is_recorded_and_the_task_continues(impl: Any, message: str) -> None:
    clock = ManualClock()
    topology = Topology("t", ackers=1)
    topology.spout("numbers", Endless).shuffle().bolt("bolt", impl, tick_s=1)
    worker = Worker(make_plan(topology.graph()), 0, 1, seeded(0), clock)
    worker.step()
    for errors in (1, 2):
        clock.advance(1.0)
        worker.step()
        (health,) = (t.health for t in worker.stats().tasks if t.component == "bolt")
        assert (health.standing, health.errors) == (Standing.RUNNING, errors)
        assert re.search(message, health.last[-1].text)


def test_acks_before_an_exception_of_tick_remain_valid() -> None:
    class Breaks(Holding):
        def tick(self) -> None:  # type: ignore[override]
            self.out.ack(self.held[0])
            raise ValueError("half way")

    here = Rig(topology_of(Breaks))
    here.bolt("bolt").process(here.batch("numbers", [Number(3), Number(4)]))
    with pytest.raises(ValueError, match="half way"):
        here.bolt("bolt").tick()
    assert set(here.reports().acks) == {ROOT}
