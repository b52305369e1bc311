"""Each kind of window gives the same results in exactly-once batches as on an ordinary stream."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random
from typing import Any, NamedTuple

import pytest

from sunshower import (
    Records,
    Topology,
    average,
    collect,
    count,
    count_distinct,
    run_inline,
    sessions,
    sliding,
    sum_,
    top,
    tumbling,
)
from sunshower.clock import VIRTUAL_DATE, ManualClock
from sunshower.errors import TopologyError
from sunshower.state import MemoryState
from sunshower.topologies.operators.aggregators import Aggregator
from sunshower.topologies.operators.port import Attempt
from sunshower.topologies.operators.states import StateKind
from sunshower.trident import FixedBatchSpout, InMemory, batches
from tests.seeds import seeds
from tests.topologies.operators.kinds import Kept
from tests.trident.rigs.one_process import Runner, StateStub, collected, stub_stream

START = int(VIRTUAL_DATE.timestamp())
HOUR_S = 3_600


class Click(NamedTuple):
    user: str
    at: float
    cents: int


class Spread(Aggregator[Click, list[int]]):
    """The least and the highest value, as an aggregator that needs all rows."""

    fields = ("least", "highest")

    def init(self, attempt: Attempt) -> list[int]:
        return []

    def aggregate(self, state: list[int], record: Click) -> None:
        state.append(record.cents)

    def complete(self, state: list[int]) -> Iterator[tuple[int, int]]:
        yield min(state), max(state)


DAY: Any = {"field": "at", "unit": "s", "zone": "Europe/Berlin"}
KINDS: dict[str, Any] = {
    "tumbling": tumbling(seconds=10 * HOUR_S, field="at", late=HOUR_S),
    "sliding": sliding(seconds=8 * HOUR_S, every=2 * HOUR_S, field="at", late=2 * HOUR_S),
    "offset": tumbling(seconds=10 * HOUR_S, field="at", late=HOUR_S, offset=1_000),
    "days": tumbling(days=1, late=HOUR_S, **DAY),
    "weeks": sliding(weeks=2, every=1, **DAY),
    "months": tumbling(months=1, late=HOUR_S, **DAY),
    "sessions": sessions(gap=3 * HOUR_S, field="at", late=HOUR_S),
    "updates": tumbling(seconds=10 * HOUR_S, field="at", allowed=5 * HOUR_S),
    "updated sessions": sessions(gap=2 * HOUR_S, field="at", allowed=5 * HOUR_S),
    "rows": sliding(count=6, every=3),
}
AGGREGATORS: Any = {
    "combined": (count(name="number"), sum_("cents"), collect("cents"), average("cents")),
    "types": (count(name="number"), count_distinct("cents"), top(2, by="cents")),
    "rows": (count(name="number"), Spread()),
}


def clicks_of(seed: int) -> list[Click]:
    """Clicks over three months, which are at most half an hour out of order, with pauses."""
    draw, at, rows = Random(seed), float(START), list[Click]()
    for _ in range(80):
        at += draw.choice((60, HOUR_S, HOUR_S, 5 * HOUR_S, 40 * HOUR_S))
        late = draw.uniform(0, HOUR_S / 2)
        rows.append(Click(draw.choice("abc"), at - late, draw.randint(1, 9)))
    return rows


def last_ones(rows: Sequence[Any], fields: Sequence[str]) -> list[Any]:
    """The last result of each window; lists in order."""
    last: dict[Any, Any] = {}
    for row in rows:
        last[row[:2] if "kind" in fields else (row[:2], len(last))] = row
    skipped = {"kind", "number-of-result"}
    return sorted(
        (
            [
                sorted(value) if isinstance(value, list) else value
                for name, value in zip(fields, row, strict=True)
                if name not in skipped
            ]
            for row in last.values()
            if "removed" not in row
        ),
        key=repr,
    )


def named(window: Any, aggregators: Any) -> list[str]:
    """The fields of the results; that of their number has another name than that of records."""
    fields = ["user", "window"]
    fields += ["kind", "number-of-result"] if getattr(window, "repeated", None) else []
    return fields + [name for aggregator in aggregators for name in aggregator.emits]


@pytest.mark.parametrize("state", [StateKind.OPAQUE, StateKind.TRANSACTIONAL])
@pytest.mark.parametrize("aggregated", AGGREGATORS)
@pytest.mark.parametrize("kind", KINDS)
@seeds(30)
def test_results_are_those_of_an_ordinary_stream(
    kind: str, aggregated: str, state: StateKind, seed: int
) -> None:
    """Also with several tasks, restarts, and batches that are repeated."""
    window, aggregators, rows = KINDS[kind], AGGREGATORS[aggregated], clicks_of(seed)
    fields = named(window, aggregators)
    topology = Topology("ordinary")
    ordinary = topology.spout("clicks", Records(rows, type=Click)).group_by("user")
    ordinary.window(window, *aggregators, fields=fields).shuffle().bolt("kept", Kept)
    expected = run_inline(topology.graph(), clock=ManualClock()).results["kept"][0]

    draw = Random(seed)
    topology, stream = stub_stream(Click)
    windows = stream.group_by("user").window(
        window, *aggregators, fields=fields, state=StateStub(state), parallelism=draw.randint(1, 3)
    )
    results, late = collected(windows), collected(windows.late)
    runner, all_results = Runner(topology), list[Any]()
    while rows or not runner.ended:
        size = draw.choice((0, 1, 3, 9))
        batch, rows = rows[:size], rows[size:]
        runner.ended = not batch and not rows
        runner.batch(batch)
        once = [*results]
        for _ in range(draw.choice((0, 0, 2))):
            results.clear()
            if draw.random() < 0.5:
                runner.restart()
            runner.again(batch)
            assert results == once
        all_results += once
        results.clear()
    assert last_ones(all_results, fields) == last_ones(expected, fields)
    assert late == []


# ---- sessions ------------------------------------------------------------------------------------


def click(at: float, user: str = "a") -> Click:
    return Click(user, at, 1)


def test_sessions_grow_and_become_one_over_batches() -> None:
    topology, stream = stub_stream(Click)
    window = sessions(gap=5, field="at", late=10)
    rows = stream.group_by("user").window(window, collect("at"), state=StateStub())
    results, late = collected(rows), collected(rows.late)
    runner = Runner(topology)
    runner.batch([click(1), click(9)])
    runner.batch([click(5), click(30, "b")])  # both become one
    assert [(*row[:2], sorted(row[2])) for row in results] == [("a", 14, [1, 5, 9])]
    runner.batch([click(3)])
    assert late == [("a", 8, [3])]
    runner.batch([click(46, "b")])
    assert results[1:] == [("b", 35, [30])]


def test_a_row_is_late_for_sessions_also_in_a_task_without_rows_since() -> None:
    """How far sessions have ended is stored with each batch in which that has moved."""
    topology, stream = stub_stream(Click)
    window = sessions(gap=5, field="at")
    rows = stream.group_by("user").window(window, count(), state=StateStub(), parallelism=3)
    results, late = collected(rows), collected(rows.late)
    runner = Runner(topology)
    for at in range(0, 60, 2):
        runner.batch([click(at)])
    runner.restart()
    runner.batch([click(3, user) for user in "bcdefgh"])
    assert results == []
    assert sorted(late) == [(user, 8, 1) for user in "bcdefgh"]


def test_a_window_follows_sessions() -> None:
    topology, stream = stub_stream(Click)
    window = sessions(gap=5, field="at", late=2)
    ended = stream.group_by("user").window(window, count(), state=StateStub(), name="sessions")
    tens = ended.window(
        tumbling(seconds=10, field="window"), count(), sum_("count"), state=StateStub(), name="tens"
    )
    results, late = collected(tens), collected(tens.late)
    runner = Runner(topology)
    for rows in ([click(1), click(3)], [click(5, "b")], [click(12, "c")], [click(22, "c")]):
        runner.batch(rows)
    assert (results, late) == ([(10, 2, 3), (20, 1, 1)], [])


# ---- several results, and ends by the values -----------------------------------------------------


def is_full(row: Any) -> bool:
    return bool(row[2] >= 3)


@pytest.mark.parametrize("kind", [StateKind.OPAQUE, StateKind.TRANSACTIONAL])
def test_a_window_ends_by_its_values_once(kind: StateKind) -> None:
    topology, stream = stub_stream(Click)
    window = tumbling(seconds=10, field="at", until=is_full)
    rows = stream.group_by("user").window(window, count(name="n"), state=StateStub(kind))
    results, late = collected(rows), collected(rows.late)
    runner = Runner(topology)
    for batch in ([click(1), click(2)], [click(3), click(4, "b")], [click(5)], [click(11)]):
        runner.batch(batch)
        runner.restart()
        once = [*results]
        runner.again(batch)
        assert results[len(once) :] == once[len(once) - (len(results) - len(once)) :]
        del results[len(once) :]
    assert results == [("a", 10, 3), ("b", 10, 1)]
    assert late == [("a", 10, 1)] * 2  # of a batch and its repeat


def test_early_results_leave_by_the_time_of_batches() -> None:
    topology, stream = stub_stream(Click)
    rows = stream.group_by("user").window(
        tumbling(seconds=10, field="at", early=3), count(name="n"), state=StateStub()
    )
    results, clock = collected(rows), ManualClock()
    runner = Runner(topology, clock)
    for at in (1, 2, 2, 3, 3, 4, 15, 15, 15, 35):
        runner.batch([click(at)])
        clock.advance(1)
    assert results == [
        ("a", 10, "early", 1, 4),
        ("a", 10, "final", 2, 6),
        ("a", 20, "early", 1, 1),
        ("a", 20, "final", 2, 3),
        ("a", 40, "early", 1, 1),
    ]


@pytest.mark.parametrize("kind", [StateKind.OPAQUE, StateKind.TRANSACTIONAL])
def test_early_results_that_were_emitted_count_on_after_a_restart(kind: StateKind) -> None:
    topology, stream = stub_stream(Click)
    rows = stream.group_by("user").window(
        tumbling(seconds=10, field="at", early=3), count(name="n"), state=StateStub(kind)
    )
    results, clock = collected(rows), ManualClock()
    runner = Runner(topology, clock)
    numbers = list[int]()
    for _ in range(6):
        runner.batch([click(1)])
        runner.restart()
        clock.advance(3)
        results.clear()
        runner.batch([click(2)])
        numbers += [row[3] for row in results if row[2] == "early"]
    runner.batch([click(10)])
    assert results[-1] == ("a", 10, "final", len(numbers) + 1, 12)
    assert numbers == [*range(1, len(numbers) + 1)]


@pytest.mark.parametrize("max_batches", [1, 3])
def test_totals_behind_several_results_have_the_last_of_each_window(max_batches: int) -> None:
    """Of early and updated results, and of sessions that are taken back."""
    rows = [Click("ab"[n % 2], float(n - 7 * (n % 5 == 0)), 1) for n in range(60)]
    totals = {}
    for name, window in {
        "panes": tumbling(seconds=10, field="at", early=0.01, allowed=20),
        "sessions": sessions(gap=4, field="at", early=0.01, allowed=20),
    }.items():
        topology = Topology("t")
        spout = FixedBatchSpout(rows, 7, type=Click)
        about: Any = {"store": InMemory(), "max_batches": max_batches, "interval_s": 0.02}
        stream = batches(topology, "in", spout, **about).group_by("user")
        ended = stream.window(window, sum_("cents", name="n"), state=MemoryState())
        state = totals[name] = MemoryState()
        ended.group_by("user").aggregate(sum_("n"), state=state, name="totals")
        run_inline(topology.graph(), clock=ManualClock(), steps_max=200_000)
    for name, state in totals.items():
        shown = {key: value for key, value in state.items() if key in ("a", "b")}
        assert shown == {"a": 30, "b": 30}, name


def test_a_transactional_state_behind_early_results_is_refused() -> None:
    """Which windows have changed is in memory, so a repeated batch may have others."""
    _, stream = stub_stream(Click)
    rows = stream.window(
        tumbling(seconds=10, field="at", early=3), count(), state=StateStub(), name="windows"
    )
    with pytest.raises(TopologyError, match="transactional"):
        rows.aggregate(count(), state=StateStub(StateKind.TRANSACTIONAL), name="totals")
