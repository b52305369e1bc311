"""Windows over batches: which rows are in which window, and repeated batches that count once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any, NamedTuple

import pytest
from hypothesis import given as hypothesis_given
from hypothesis import strategies as st

from sunshower.clock import VIRTUAL_DATE, ManualClock
from sunshower.errors import ConfigError, StoreUnreachable
from sunshower.topologies.operators.aggregators import Aggregator, collect, count, sum_
from sunshower.topologies.operators.port import Attempt
from sunshower.topologies.operators.states import Place, StateKind
from sunshower.topologies.operators.windows.window_kinds import sessions, sliding, tumbling
from sunshower.trident.states.factories import MemoryState
from tests.trident.rigs.one_process import Runner, StateStub, collected, stub_stream

START = VIRTUAL_DATE.timestamp()  # of the clock


class Price(NamedTuple):
    share: str
    at: float
    price: int


class FirstAndLast(Aggregator[Price, list[int]]):
    fields = ("first", "last")

    def init(self, attempt: Attempt) -> list[int]:
        return []

    def aggregate(self, state: list[int], record: Price) -> None:
        state.append(record.price)

    def complete(self, state: list[int]) -> Iterator[tuple[int, int]]:
        yield state[0], state[-1]


def prices(*values: int, share: str = "a") -> list[Price]:
    return [Price(share, float(value), value) for value in values]


def run(stream: Any, topology: Any, *batches: list[Price]) -> list[Any]:
    results = collected(stream)
    runner = Runner(topology)
    for batch in batches:
        runner.batch(batch)
    return results


def test_a_batch_writes_only_the_windows_of_its_own_groups() -> None:
    topology, stream = stub_stream(Price)
    state = StateStub()
    stream.group_by("share").window(tumbling(count=3), sum_("price"), state=state)
    runner = Runner(topology)
    for number in range(20):
        runner.batch(prices(1, 2, 3, share=f"s{number}"))
    assert len(state.plain()) == 20
    assert max(len(str(value)) for value in state.plain().values()) < 150
    last = [key for key, (txid, _, _) in state.values.items() if txid == runner.txid]
    assert last == [(0, ("$windows", "s19"))], "a batch writes nothing of other groups"


def test_a_window_of_time_ends_when_later_rows_come() -> None:
    topology, stream = stub_stream(Price)
    window = tumbling(seconds=10, field="at")
    windows = stream.group_by("share").window(window, sum_("price"), state=StateStub())
    late = prices(5)
    results = run(windows, topology, prices(1, 9, 12), prices(11), prices(31), late)
    assert results == [("a", 10, 10), ("a", 20, 23)]


def test_a_window_of_time_waits_for_late_rows() -> None:
    topology, stream = stub_stream(Price)
    window = tumbling(seconds=10, field="at", late=5)
    results = run(
        stream.window(window, sum_("price"), state=StateStub()),
        topology,
        *(prices(1, 12), prices(2), prices(15), prices(3)),
    )
    assert results == [(10, 3)]


def test_rows_that_come_too_late_are_counted() -> None:
    topology, stream = stub_stream(Price)
    state = StateStub()
    window = stream.window(tumbling(seconds=10, field="at"), count(), state=state)
    run(window, topology, prices(25), prices(3), prices(15, 26))
    assert state.plain()["$windows"]["late"] == 2


def test_windows_by_the_time_of_batches_also_end_without_rows() -> None:
    topology, stream = stub_stream(Price)
    state = StateStub()
    results = collected(stream.window(tumbling(seconds=60), count(), state=state))
    clock = ManualClock(30.0)
    runner = Runner(topology, clock)
    runner.batch(prices(1, 2))
    clock.advance(29)
    runner.batch(prices(3))
    written = state.values[0, "$windows"]
    runner.batch([])
    assert state.values[0, "$windows"] == written, "no window has ended, so nothing is written"
    clock.advance(2)
    runner.batch([])
    assert results == [(START + 60, 3)]


def test_windows_also_end_when_the_clock_starts_again_at_zero() -> None:
    topology, stream = stub_stream(Price)
    state = StateStub()
    results = collected(stream.window(tumbling(seconds=60), count(), state=state))
    runner = Runner(topology, ManualClock(1000.0))
    runner.batch(prices(1))
    later = runner.clock = ManualClock(0.0)  # another machine
    runner.restart()
    runner.batch(prices(2))
    later.advance(60)
    runner.batch([])
    assert results == [(START + 1020, 2)]


@pytest.mark.parametrize("kind", [StateKind.OPAQUE, StateKind.TRANSACTIONAL])
def test_a_batch_without_rows_and_its_repeat_fire_the_same_windows(kind: StateKind) -> None:
    """The commit of another task has failed; this task was not restarted."""
    topology, stream = stub_stream(Price)
    state, totals = MemoryState(kind), MemoryState(kind)
    windows = stream.window(tumbling(seconds=60), count(), state=state)
    windows.aggregate(sum_("count"), state=totals, name="totals")
    results = collected(windows)
    clock = ManualClock(30.0)
    runner = Runner(topology, clock)
    runner.batch(prices(1, 2))
    clock.advance(31)
    runner.batch([])
    runner.again([])
    assert results == [(START + 60, 2)] * 2
    runner.batch([])
    assert dict(totals.items()) == {"$GLOBAL$": 2}


batches_of_prices = st.lists(
    st.lists(st.builds(Price, st.sampled_from("ab"), st.integers(0, 60), st.integers(0, 9))),
    min_size=1,
    max_size=5,
)


@pytest.mark.parametrize("kind", [StateKind.OPAQUE, StateKind.TRANSACTIONAL])
@pytest.mark.parametrize(
    "window",
    [
        sliding(count=4, every=2),
        sliding(seconds=20, every=5, field="at", late=10),
        sessions(gap=7, field="at", late=3),
        sessions(gap=7, field="at", allowed=20),
        tumbling(seconds=10, field="at", allowed=15),
    ],
    ids=["rows", "time", "sessions", "updated sessions", "updates"],
)
@hypothesis_given(batches=batches_of_prices)
def test_a_batch_that_is_committed_again_fires_the_same_and_counts_once(
    kind: StateKind, window: Any, batches: list[list[Price]]
) -> None:
    def fired(repeats: int, *, combined: bool) -> list[list[Any]]:
        topology, stream = stub_stream(Price)
        aggregators = [sum_("price")] if combined else [sum_("price"), FirstAndLast()]
        state = stream.group_by("share").window(window, *aggregators, state=StateStub(kind))
        numbers = ("kind", "number") if "number" in state.schema.fields else ()
        results = collected(state.project("share", "window", "price_sum", *numbers))
        runner, each = Runner(topology), []
        for batch in batches:
            runner.batch(batch)
            for _ in range(repeats):
                results.clear()
                runner.restart()
                runner.again(batch)
            each.append(sorted(results, key=repr))
            results.clear()
        return each

    once = fired(0, combined=True)
    assert fired(2, combined=True) == once
    assert fired(1, combined=False) == once


class Attempted(NamedTuple):
    """An attempt of a batch, and what happens to it."""

    rows: list[Price]
    restarts: bool  # all tasks, before it
    write: str  # "stored", "lost", or "unanswered": stored, but the task is not told


class ShakyState:
    """A state in memory whose writes may fail; `writes`: what happens to the next ones."""

    name = None

    def __init__(self, kind: StateKind) -> None:
        self.kind, self.memory, self.writes = kind, MemoryState(kind), list[str]()

    def __deepcopy__(self, memo: Any) -> ShakyState:
        return self

    def make(self, place: Place) -> Any:
        part = self.memory.make(place)
        put = part._backing.put

        def shaky(*arguments: Any) -> None:
            write = self.writes.pop() if self.writes else "stored"
            if write != "lost":
                put(*arguments)
            if write != "stored":
                raise StoreUnreachable("the store is away")

        part._backing.put = shaky  # type: ignore[method-assign]
        return part


prices_of_an_attempt = st.lists(
    st.builds(Price, st.sampled_from("ab"), st.integers(0, 60), st.integers(0, 9)), max_size=6
)
attempts = st.builds(
    Attempted,
    prices_of_an_attempt,
    st.booleans(),
    st.sampled_from(["stored", "lost", "unanswered"]),
)


WINDOWS = [
    tumbling(count=3),
    sliding(count=4, every=2),
    tumbling(seconds=10, field="at"),
    sliding(seconds=20, every=5, field="at", late=10),
    sessions(gap=7, field="at", late=4),
    tumbling(seconds=10, field="at", allowed=15),
    tumbling(seconds=20, field="at", late=5, until=lambda row: row[-1] in (7, [7])),
    sessions(gap=7, field="at", allowed=20),
]


@hypothesis_given(
    window=st.sampled_from(WINDOWS),
    aggregators=st.sampled_from([(sum_("price"),), (FirstAndLast(),), (collect("price"),)]),
    batches=st.lists(st.lists(attempts, min_size=1, max_size=4), max_size=6),
)
def test_only_the_last_attempt_of_each_batch_counts(
    window: Any, aggregators: tuple[Any, ...], batches: list[list[Attempted]]
) -> None:
    """Of an opaque spout, whose attempts of a batch have different rows."""

    def fired(batches: list[list[Attempted]]) -> list[list[Any]]:
        topology, stream = stub_stream(Price)
        state, each = ShakyState(StateKind.OPAQUE), []
        windows = stream.group_by("share").window(window, *aggregators, state=state)
        results, late = collected(windows), collected(windows.late)
        runner = Runner(topology)
        for batch in batches:
            run_attempt = runner.batch
            for attempt in batch:
                results.clear()
                late.clear()
                if attempt.restarts:
                    runner.restart()
                state.writes = [attempt.write]
                with suppress(StoreUnreachable):
                    run_attempt(attempt.rows)
                run_attempt = runner.again
            each += [[*results], [*late]]
        return each

    last = [[*batch[:-1], batch[-1]._replace(write="stored")] for batch in batches]
    alone = [[batch[-1]._replace(restarts=False)] for batch in last]
    assert fired(last) == fired(alone)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (tumbling, "either count"),
        (lambda: tumbling(count=3, seconds=3), "either count"),
        (lambda: tumbling(count=3, field="at"), "are for windows of time"),
        (lambda: tumbling(seconds=3, late=1), "needs field="),
        (lambda: sliding(count=3, every=2), "not a multiple"),
        (lambda: sliding(count=3, every=4), "every"),
        (lambda: tumbling(seconds=0), "seconds is 0; it must be a number above 0"),
        (lambda: tumbling(seconds=3, field="at", late=-1), "at least 0"),
    ],
)
def test_invalid_windows_are_refused(make: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()
