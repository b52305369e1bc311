"""InlineTopology runs a topology in this thread: outages, attempts, deadlines, and the end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from sunshower import (
    Bolt,
    Context,
    Counter,
    Number,
    Records,
    Retry,
    Spout,
    SpoutCollector,
    Topology,
    Unavailable,
    tumbling,
)
from sunshower import count as number_of
from sunshower.clock import ManualClock
from sunshower.errors import TopologyFailed
from sunshower.runtime.events.metrics import Snapshot
from sunshower.runtime.inline import InlineTopology, run_until
from sunshower.runtime.tasks.spouts.watermark_sender import WatermarkSender
from sunshower.trident import FixedBatchSpout, InMemory, batches

CLOCK_S = 1_000_000.0


class Event(NamedTuple):
    at: int
    kind: str


def numbers_into(process: Any, stop: int | None = 20, **settings: Any) -> Topology:
    topology = Topology("numbers", **settings)
    topology.spout("numbers", Counter(stop)).shuffle().bolt("out", process, fields=())
    return topology


def finished(topology: Topology, clock: ManualClock) -> Snapshot:
    with InlineTopology(topology.graph(), clock=clock) as run:
        run.work(CLOCK_S)
        return run.snapshot()


def test_a_breakpoint_longer_than_the_message_timeout_fails_no_tree() -> None:
    clock = ManualClock()

    def stop_at_seven(number: Number) -> None:
        if number.value == 7:
            clock.advance(3_600)

    snapshot = finished(numbers_into(stop_at_seven, message_timeout_s=30), clock)
    assert snapshot.state == "finished"
    assert snapshot.component("numbers").acked == 20
    assert snapshot.component("numbers").failed == 0


def test_an_outage_charges_no_attempt_and_all_is_processed_after_it() -> None:
    clock = ManualClock()

    def store(number: Number) -> None:
        if 5 < clock.now() < 500:
            raise Unavailable("the database is away")
        clock.advance(1)

    snapshot = finished(numbers_into(store), clock)
    counts = snapshot.component("numbers")
    assert counts.acked == 20
    assert set(counts.causes) == {"unavailable"}


def test_a_record_that_always_fails_ends_the_topology_after_its_attempts() -> None:
    def fail_at_three(number: Number) -> None:
        assert number.value != 3, "three"

    with InlineTopology(numbers_into(fail_at_three).graph(), clock=ManualClock()) as run:
        with pytest.raises(TopologyFailed, match=r"failed 5 times(.|\n)*three"):
            run.work(CLOCK_S)
        with pytest.raises(TopologyFailed, match="three"):
            run.snapshot()
        assert "three" in str(run.overview().error)


class Broken(Spout[Number]):
    def records(self) -> Iterator[Number]:
        raise ValueError("the source is broken")


def test_a_spout_that_is_given_up_fails_the_topology() -> None:
    topology = Topology("broken")
    topology.spout("numbers", Broken).shuffle().bolt("out", lambda _: None, fields=())
    with InlineTopology(topology.graph(), clock=ManualClock()) as run:
        run.work(CLOCK_S)
        with pytest.raises(TopologyFailed, match="the source is broken"):
            run.snapshot()


def test_a_drain_ends_a_source_without_an_end() -> None:
    clock = ManualClock()
    topology = numbers_into(lambda _: clock.advance(0.1), stop=None)
    with InlineTopology(topology.graph(), clock=clock) as run:
        run.work(5)
        assert run.snapshot().state == "active"
        run.drain()
        run.work(CLOCK_S)
        counts = run.snapshot().component("numbers")
        assert run.snapshot().state == "finished"
    assert counts.acked == counts.emitted > 0


def test_windows_by_event_time_send_their_results_before_the_end() -> None:
    events = [Event(second, "even" if second % 2 == 0 else "odd") for second in range(100)]
    topology = Topology("windows")
    stream = topology.spout("events", Records(events, type=Event))
    kinds = stream.group_by("kind").window(tumbling(seconds=10, field="at"), number_of())
    seen: list[Any] = []
    kinds.shuffle().bolt("out", seen.append, fields=())
    snapshot = finished(topology, ManualClock())
    assert snapshot.state == "finished"
    assert len(seen) == 20
    assert sum(row[-1] for row in seen) == 100


def test_watermarks_keep_their_pace_while_a_drained_spout_holds_a_message(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each was followed by the next one at once, as at the end of a source."""
    sent, send = 0, WatermarkSender.send

    def counted(sender: WatermarkSender, now: float) -> None:
        nonlocal sent
        sent += 1
        assert sent < 1_000
        send(sender, now)

    def process(event: Event) -> None:
        if event.at == 0 and clock.now() < 60:
            raise ValueError

    monkeypatch.setattr(WatermarkSender, "send", counted)
    clock, topology = ManualClock(), Topology("windows")
    events = [Event(second, "even") for second in range(100)]
    retry = Retry(initial_s=60.0, max_s=60.0, jitter=0.0)
    stream = topology.spout("events", Records(events, type=Event), retry=retry)
    stream.group_by("kind").window(tumbling(seconds=10, field="at"), number_of()).peek(print)
    stream.shuffle().bolt("out", process, fields=())
    with InlineTopology(topology.graph(), clock=clock) as run:
        run.work(5)
        run.drain()
        run.work(CLOCK_S)
        assert run.snapshot().state == "finished"
    assert 60 <= clock.now() < 100


def test_exactly_once_batches_are_all_committed() -> None:
    topology = Topology("batches")
    spout = FixedBatchSpout([("a",), ("b",), ("a",)], 2, fields=["word"])
    words = batches(topology, "words", spout, store=InMemory())
    words.group_by("word").aggregate(number_of())
    snapshot = finished(topology, ManualClock())
    assert snapshot.state == "finished"
    assert snapshot.figures("$mastercoord-words")["batches committed"] == 2


def test_tasks_are_closed_once_also_after_an_error() -> None:
    closed: list[int] = []

    class Closing(Bolt[Number, None]):
        def prepare(self, context: Context) -> None:
            self.index = context.index

        def process(self, record: Number) -> None:
            raise TopologyFailed("at once")

        def cleanup(self) -> None:
            closed.append(self.index)

    with InlineTopology(numbers_into(Closing).graph(), clock=ManualClock()) as run:
        with pytest.raises(TopologyFailed, match="at once"):
            run.work(CLOCK_S)
        assert run.close_tasks() == []
    assert closed == [0]


def test_a_preview_that_is_late_says_which_call_it_has_waited_for() -> None:
    clock = ManualClock()

    class Slow(Spout[Event]):
        def next_tuple(self, out: SpoutCollector[Event]) -> None:
            clock.advance(8)

    topology = Topology("slow")
    topology.spout("source", Slow()).filter(lambda event: event.at > 0)
    why = run_until(topology.graph(), lambda: False, 1.0, clock)
    assert why == "and no more within 8 s: one call of source[0] took 8 s"
