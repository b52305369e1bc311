"""Windows of batches end by the watermark of all sources, and by their end; late rows are apart."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sunshower import KeyState, Records, TextFiles, Topology
from sunshower.clock import VIRTUAL_DATE, ManualClock
from sunshower.errors import TopologyError, TopologyFailed
from sunshower.runtime.inline import run_inline
from sunshower.state import MemoryState, SqliteState
from sunshower.topologies.operators.aggregators import Aggregator, collect, count, sum_
from sunshower.topologies.operators.port import Attempt
from sunshower.topologies.operators.states import StateKind
from sunshower.topologies.operators.windows.event_times import minus
from sunshower.topologies.operators.windows.window_kinds import Window, sliding, tumbling
from sunshower.topologies.sources import Line
from sunshower.trident import (
    BatchSpout,
    FeederBatchSpout,
    FixedBatchSpout,
    InMemory,
    InSqlite,
    PlainSpout,
    SpoutKind,
    TextFileBatches,
    batches,
)
from sunshower.trident.coordination.attempts import SourceTime, behind, watermark
from sunshower.trident.spouts.port import Rows
from tests.trident.rigs.numbers import OpaqueRowBatches, RowBatches
from tests.trident.rigs.one_process import Runner, StateStub, collected, stub_stream

TEN = tumbling(seconds=10, field="at", late=2)
START = VIRTUAL_DATE.timestamp()  # of the clock


class Click(NamedTuple):
    user: str
    at: float


class Sum(Aggregator[Click, list[float]]):
    """A sum, as an aggregator that needs all rows."""

    fields = ("sum",)

    def init(self, attempt: Attempt) -> list[float]:
        return []

    def aggregate(self, state: list[float], record: Click) -> None:
        state.append(record.at)

    def complete(self, state: list[float]) -> Iterator[tuple[float]]:
        yield (sum(state),)


def clicks(*times: float, user: str = "a") -> list[Click]:
    return [Click(user, time) for time in times]


def run(topology: Topology, clock: ManualClock | None = None) -> None:
    run_inline(topology.graph(), clock=clock or ManualClock(), steps_max=200_000)


def windowed(
    streams: Sequence[Any], window: Window, state: Any = None, tasks: int = 1, **more: Any
) -> tuple[list[Any], list[Any]]:
    """Declare windows over streams by user: lists of their rows, and of the late ones."""
    windows = (
        streams[0]
        .merge(*streams[1:])
        .group_by("user")
        .window(
            window,
            collect("at"),
            fields=("user", "window", "times"),
            state=state or MemoryState(),
            parallelism=tasks,
            **more,
        )
    )
    return collected(windows), collected(windows.late)


def plain(rows: list[Any]) -> list[tuple[Any, ...]]:
    return sorted((user, end, sorted(times)) for user, end, times in rows)


DENSE = [Click("a", second + n / 10) for second in range(100) for n in range(10)]
SPARSE = [Click("b", float(second)) for second in range(100)]


def parts_of(kind: type[Any], *parts: list[Click]) -> Any:
    """A spout with these partitions; a batch has as many rows of each."""
    spout = kind(parts[0], 50, type=Click)
    spout._parts = {str(number): part for number, part in enumerate(parts)}
    return spout


def always(row: Any) -> bool:
    return True


@pytest.mark.parametrize(("between", "max_batches"), [(False, 3), (True, 1)])
@pytest.mark.parametrize("kind", [RowBatches, OpaqueRowBatches])
def test_no_row_is_late_in_partitions_that_are_read_from_their_start(
    kind: Any, between: bool, max_batches: int
) -> None:
    topology = Topology("t")
    spout, about = parts_of(kind, DENSE, SPARSE), {"store": InMemory(), "max_batches": max_batches}
    stream = batches(topology, "in", spout, parallelism=2, **about)
    stream = (
        stream.shuffle(parallelism=2).filter(always).shuffle(parallelism=2) if between else stream
    )
    rows, late = windowed([stream], TEN, tasks=3)
    run(topology)
    assert late == []
    assert len(rows) == 20
    assert sum(len(times) for _, _, times in rows) == len(DENSE) + len(SPARSE)


def test_no_row_is_late_in_sources_that_are_read_at_another_pace() -> None:
    topology = Topology("t")
    slow = batches(
        topology, "slow", FixedBatchSpout(SPARSE, 5, type=Click), store=InMemory(), group="g"
    )
    fast = batches(topology, "fast", FixedBatchSpout(DENSE, 250, type=Click), group="g")
    rows, late = windowed([slow, fast], TEN, tasks=2)
    run(topology)
    assert late == []
    assert sum(len(times) for _, _, times in rows) == len(DENSE) + len(SPARSE)


class Numbered(BatchSpout):
    """Three batches; the first two have two rows."""

    emits = Click
    kind = SpoutKind.TRANSACTIONAL

    def emit_batch(self, txid: int, rows: Rows) -> None:
        rows.emit(clicks(1.0, 12.0) if txid == 1 else clicks(2.0 * txid, 25.0) if txid == 2 else [])

    def is_last(self, txid: int) -> bool:
        return txid >= 3


def fed() -> FeederBatchSpout:
    feeder = FeederBatchSpout(type=Click)
    for rows in (clicks(1, 12), clicks(4, 25)):
        feeder.feed(rows)
    feeder.end()
    return feeder


FOUR = clicks(1, 12, 4, 25)
SOURCES: dict[str, Any] = {
    "FixedBatchSpout": lambda: FixedBatchSpout(FOUR, 2, type=Click),
    "FeederBatchSpout": fed,
    "BatchSpout": Numbered,
    "partitions": lambda: RowBatches(FOUR, 2, type=Click),
    "opaque partitions": lambda: OpaqueRowBatches(FOUR, 2, type=Click),
    "records": lambda: Records(FOUR, type=Click),
    "repeated records": lambda: PlainSpout(Records(FOUR, type=Click), repeats=True),
}


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("tasks", [1, 2])
def test_the_end_of_all_sources_ends_open_windows(source: str, tasks: int) -> None:
    topology = Topology("t")
    stream = batches(topology, "in", SOURCES[source](), store=InMemory())
    loose = {"not_exactly_once": True} if source == "records" else {}
    if loose:
        with pytest.warns(UserWarning, match="exactly once"):
            rows, late = windowed(
                [stream], tumbling(seconds=10, field="at", late=20), tasks=tasks, **loose
            )
    else:
        rows, late = windowed([stream], tumbling(seconds=10, field="at", late=20), tasks=tasks)
    run(topology)
    assert plain(rows) == [("a", 10, [1.0, 4.0]), ("a", 20, [12.0]), ("a", 30, [25.0])]
    assert late == []


def test_a_source_that_is_ended_while_its_last_batch_is_processed_ends_windows() -> None:
    """When the batch was ordered, nobody knew that it is the last one."""
    feeder = FeederBatchSpout(type=Click)
    for times in ((1, 12), (25,)):
        feeder.feed(clicks(*times))
    topology = Topology("t")
    stream = batches(topology, "in", feeder, store=InMemory())
    stream.peek(lambda click: feeder.end() if click.at == 25 else None)
    rows, _ = windowed([stream], TEN)
    run(topology)
    assert plain(rows) == [("a", 10, [1.0]), ("a", 20, [12.0]), ("a", 30, [25.0])]


@pytest.mark.parametrize("kind", [StateKind.OPAQUE, StateKind.TRANSACTIONAL])
def test_windows_of_the_clock_end_with_their_sources(kind: StateKind) -> None:
    topology = Topology("t")
    stream = batches(topology, "in", FixedBatchSpout(FOUR, 2, type=Click), store=InMemory())
    windows = stream.window(tumbling(seconds=3600), count(), state=MemoryState(kind))
    rows = collected(windows)
    run(topology)
    assert rows == [(START + 3600, 4)]


def test_a_window_that_keeps_open_ones_continues_in_the_next_run(tmp_path: Path) -> None:
    (state, file), all_clicks = (SqliteState(tmp_path / "w.db"), tmp_path / "p.db"), list[Click]()

    def next_run(window: Window, *times: float) -> tuple[list[Any], list[Any]]:
        all_clicks.extend(clicks(*times))
        topology = Topology("t")
        spout = FixedBatchSpout(all_clicks, 3, type=Click)
        rows, late = windowed([batches(topology, "in", spout, store=InSqlite(file))], window, state)
        run(topology)
        return plain(rows), plain(late)

    day = tumbling(seconds=10, field="at", at_end="keep")
    assert next_run(day, 1, 5, 9) == ([], [])
    assert next_run(day, 8, 11) == ([("a", 10, [1.0, 5.0, 8.0, 9.0])], [])
    assert next_run(day) == ([], [])
    assert next_run(day, 3, 19) == ([], [("a", 10, [3.0])])
    rows, late = next_run(tumbling(seconds=10, field="at"), 18, 25)
    assert (rows, late) == ([("a", 20, [11.0, 18.0, 19.0]), ("a", 30, [25.0])], [])
    assert next_run(day, 26, 41) == ([], [("a", 30, [26.0])]), "the run before has ended it"


def test_a_run_says_how_many_windows_of_its_state_the_end_has_ended(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    topology, rows = Topology("t"), [*clicks(1, 25), *clicks(26, 27, 31, user="b")]
    stream = batches(topology, "in", FixedBatchSpout(rows, 9, type=Click), store=InMemory())
    windowed([stream], tumbling(seconds=10, field="at"), SqliteState(tmp_path / "w.db"))
    with caplog.at_level(logging.WARNING, "sunshower"):
        run(topology)
    warnings = [record.message for record in caplog.records if "has ended" in record.message]
    assert len(warnings) == 1
    assert "state 'windows': the end of all sources has ended a window;" in warnings[0]


# ---- late rows -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [StateKind.OPAQUE, StateKind.TRANSACTIONAL])
@pytest.mark.parametrize(
    ("window", "late"),
    [
        (TEN, [("a", 10, [3.0, 4.0]), ("b", 10, [5.0])]),
        (
            sliding(seconds=20, every=10, field="at", late=2),
            [("a", 20, [3.0, 4.0]), ("b", 20, [5.0])],
        ),
    ],
    ids=["tumbling", "sliding"],
)
def test_late_rows_are_a_stream_also_when_their_batch_is_repeated(
    kind: StateKind, window: Window, late: list[Any]
) -> None:
    topology, stream = stub_stream(Click)
    rows, late_rows = windowed([stream], window, StateStub(kind))
    runner = Runner(topology)
    runner.batch(clicks(1, 32))
    rows.clear()
    batch = [*clicks(3, 4, 33), *clicks(5, user="b")]
    runner.batch(batch)
    assert plain(late_rows) == late
    assert rows == []
    for _ in range(2):
        late_rows.clear()
        runner.restart()
        runner.again(batch)
        assert plain(late_rows) == late
    late_rows.clear()
    runner.batch(clicks(34))
    assert late_rows == [], "each late row is emitted once"


def test_windows_end_in_tasks_that_have_no_rows() -> None:
    """The watermark is that of the source, whatever comes to a task."""
    topology, stream = stub_stream(Click)
    rows, late = windowed([stream], TEN, StateStub(), tasks=3)
    runner = Runner(topology)
    runner.batch([click for user in "abcdefgh" for click in clicks(1, user=user)])
    runner.batch(clicks(13))
    assert plain(rows) == [(user, 10, [1.0]) for user in "abcdefgh"]
    runner.batch([click for user in "abcdefgh" for click in clicks(2, user=user)])
    assert plain(late) == [(user, 10, [2.0]) for user in "abcdefgh"]


def test_a_batch_without_rows_writes_windows_only_if_one_of_them_ends() -> None:
    topology, stream = stub_stream(Click)
    state = StateStub()
    windowed([stream], TEN, state, tasks=2)
    runner = Runner(topology)
    runner.batch(clicks(1, 3))
    runner.batch([])
    written = dict(state.values)
    for _ in range(3):
        runner.batch([])
    assert state.values == written


STORED = Path(__file__).with_name("stored_windows.json")


@pytest.mark.parametrize("kind", [StateKind.OPAQUE, StateKind.TRANSACTIONAL])
def test_windows_that_an_earlier_release_has_stored_are_continued(kind: StateKind) -> None:
    """Written before windows had watermarks: `time` is the highest time of a row."""
    topology, stream = stub_stream(Click)
    state = StateStub(kind)
    txid, value, *before = json.loads(STORED.read_text())[kind.value]
    state.values[0, "$windows"] = (txid, value, *before) if before else (txid, value, None)
    rows, late = windowed([stream], tumbling(seconds=10, field="at", late=2), state, name="windows")
    runner = Runner(topology)
    runner.txid = txid
    runner.reached["given"][txid] = float("-inf")
    runner.batch(clicks(20, 37, 38))
    assert plain(rows) == []
    assert plain(late) == [("a", 30, [20.0])]
    runner.batch([*clicks(39), *clicks(42, user="b")])
    assert plain(rows) == [("a", 40, [36.5, 37.0, 38.0, 39.0]), ("b", 40, [36.0])]


@pytest.mark.parametrize("form", ["combined", "rows"])
def test_windows_of_a_number_that_an_earlier_release_has_stored_are_continued(form: str) -> None:
    """Written when all panes of a group were one value. The batch before is repeated first."""
    topology, stream = stub_stream(Click)
    state = StateStub()
    for group, stored in json.loads(STORED.read_text())[f"count, {form}"].items():
        state.values[0, ("$windows", group)] = tuple(stored)
    aggregator = sum_("at") if form == "combined" else Sum()
    window = stream.group_by("user").window(sliding(count=6, every=3), aggregator, state=state)
    rows = collected(window)
    runner = Runner(topology)
    runner.txid = 4
    runner.reached["given"][3] = float("-inf")
    runner.again([*clicks(12), *clicks(13, user="b")])
    assert rows == []
    runner.batch(clicks(14, 16, 18))
    assert rows == [("a", 2, 24.0 + 42.0)]
    held = {key[2] for key in state.plain() if len(key) > 2 and key[1] == "a"}
    assert held == {2, 3}, "the panes that no window needs are removed"


# ---- windows of windows --------------------------------------------------------------------------


def counted(stream: Any, window: Window, tasks: int = 1, name: str = "first") -> Any:
    """How many clicks each user has in windows."""
    about: Any = {"state": StateStub(), "name": name, "parallelism": tasks}
    return stream.group_by("user").window(window, count(), fields=("user", "end", "n"), **about)


@pytest.mark.parametrize("tasks", [1, 3])
@pytest.mark.parametrize("between", [False, True])
def test_a_window_of_the_results_of_a_window_ends_with_them(tasks: int, *, between: bool) -> None:
    topology, stream = stub_stream(Click)
    first = counted(stream, TEN, tasks)
    if between:
        first = first.filter(always).shuffle(parallelism=2)
    second = tumbling(seconds=20, field="end")
    rows = first.window(second, count(), sum_("n"), state=StateStub(), name="second")
    results, late = collected(rows), collected(rows.late)
    runner = Runner(topology)
    runner.batch([click for user in "abc" for click in clicks(1, 11, user=user)])
    runner.batch(clicks(12.5))
    assert results == []
    runner.batch(clicks(21.9))
    assert results == []
    runner.batch(clicks(22))  # the first windows have ended up to 20
    assert results == [(20, 6, 7)]
    results.clear()
    runner.batch(clicks(42, 19))
    assert (results, late) == ([(40, 1, 2)], [])
    runner.ended = True
    runner.batch([])
    assert results[1:] == [(60, 1, 1)]


def test_a_window_behind_a_window_moves_without_rows() -> None:
    topology, stream = stub_stream(Click)
    second = tumbling(seconds=5, field="end")
    of_a = counted(stream, tumbling(seconds=5, field="at")).filter(lambda row: row[0] == "a")
    results = collected(of_a.window(second, count(), state=StateStub(), name="second"))
    runner = Runner(topology)
    runner.batch(clicks(1))
    runner.batch(clicks(6, user="b"))
    assert results == [(5, 1)]


@pytest.mark.parametrize("kind", [StateKind.OPAQUE, StateKind.TRANSACTIONAL])
def test_windows_of_windows_count_once_when_their_batch_is_repeated(kind: StateKind) -> None:
    topology, stream = stub_stream(Click)
    first = stream.group_by("user").window(
        TEN, count(), fields=("user", "end", "n"), state=StateStub(kind), name="first"
    )
    second = sliding(seconds=40, every=20, field="end")
    rows = first.window(second, sum_("n"), state=StateStub(kind), name="second")
    results, late = collected(rows), collected(rows.late)
    runner = Runner(topology)
    once: list[list[Any]] = []
    for times in ((1, 3, 14), (16, 25), (38, 7), (90,), ()):
        runner.ended = not times
        batch = clicks(*times)
        runner.batch(batch)
        once.append([*results])
        for restarts in (False, True):
            results.clear()
            if restarts:
                runner.restart()
            runner.again(batch)
            assert results == once[-1]
        results.clear()
    assert [row for rows in once for row in rows] == [(20, 4), (40, 6), (60, 2), (100, 1), (120, 1)]
    assert late == []


def test_three_windows_and_a_silent_source_beside_them() -> None:
    """A source that is idle does not hold back what the others have, and makes nothing late."""
    topology = Topology("t")
    busy = batches(
        topology, "busy", FixedBatchSpout(DENSE, 50, type=Click), store=InMemory(), group="g"
    )
    rows = counted(busy, tumbling(seconds=5, field="at", late=1), name="fives")
    rows = rows.map(lambda row: Click(row[0], row[1]), fields=Click)
    other = batches(topology, "other", FixedBatchSpout(SPARSE, 5, type=Click), group="g")
    tens = counted(rows.merge(other), tumbling(seconds=10, field="at"), name="tens")
    fifties = tens.window(
        tumbling(seconds=50, field="end"), sum_("n"), count(), state=MemoryState(), name="fifties"
    )
    rows, late = collected(fifties), collected(fifties.late)
    run(topology)
    assert sum(row[1] for row in rows) == 20 + 100
    assert late == []


def test_a_window_follows_an_idle_one_if_nothing_is_open_in_it() -> None:
    topology, silent = stub_stream(Click, "silent", group="g")
    _, busy = stub_stream(Click, "busy", topology, group="g")
    five = tumbling(seconds=5, field="at")
    first = counted(silent, five).map(lambda row: Click(row[0], row[1]), fields=Click)
    results = collected(first.merge(busy).window(five, count(), state=StateStub(), name="second"))
    runner = Runner(topology)
    runner.idle = {"silent"}
    runner.batch(busy=clicks(1))
    runner.batch(busy=clicks(12))
    runner.batch(busy=clicks(13))
    assert results == [(5, 1)], "up to what the other has reached before the batch"
    runner.idle = set()
    runner.batch(silent=clicks(12), busy=clicks(14))
    runner.idle = {"silent"}
    for at in (30, 31):
        runner.batch(busy=clicks(at))
    assert results == [(5, 1)], "a window is open that holds a row of 12"


def test_a_window_behind_one_of_the_clock_ends_with_the_clock() -> None:
    topology, stream = stub_stream(Click)
    first = counted(stream, tumbling(seconds=10))
    minute = tumbling(seconds=60, field="end")
    results = collected(first.window(minute, sum_("n"), state=StateStub(), name="second"))
    clock = ManualClock()
    runner = Runner(topology, clock)
    for _ in range(7):
        runner.batch(clicks(1, 2))
        clock.advance(10)
    runner.batch([])
    assert results == [(START + 60, 12)]


# ---- behind distinct -----------------------------------------------------------------------------


def at_end_of_ten(click: Click, state: KeyState[list[float]]) -> None:
    state.value = [*(state.value or ()), click.at]
    state.timer = min(state.value) // 10 * 10 + 10


def tens(user: str, state: KeyState[list[float]]) -> Iterator[tuple[str, float, list[float]]]:
    times = state.value or []
    yield user, state.time, sorted(time for time in times if time < state.time)
    state.value = [time for time in times if time >= state.time] or None
    state.timer = state.time + 10 if state.value else None


def as_it_is(click: Click, state: KeyState[float]) -> Iterator[Click]:
    assert state.value is None or state.value <= click.at
    state.value = click.at
    yield click


@pytest.mark.parametrize("ttl_s", [None, 1_000])
@pytest.mark.parametrize("stage", ["window", "in order", "timer"])
@pytest.mark.parametrize("tasks", [1, 2])
def test_a_row_that_distinct_passes_is_late_only_by_more_than_its_late(
    stage: str, ttl_s: int | None, tasks: int
) -> None:
    """As on ordinary streams: what is behind it needs no `late=`, at any depth."""
    topology, stream = stub_stream(Click)
    about: Any = {"event_time": "at", "late": 5, "ttl_s": ttl_s, "parallelism": tasks}
    passed = stream.distinct(["user", "at"], state=MemoryState(), **about)
    late = list[Any]()
    if stage == "in order":
        ordered = passed.group_by("user").in_order("at")
        passed = ordered.process(as_it_is, state=MemoryState(), parallelism=tasks)
        late = collected(passed.late)
    if stage == "timer":
        about = {"event_time": "at", "fields": ("user", "end", "times"), "state": MemoryState()}
        rows = collected(
            passed.group_by("user").process(at_end_of_ten, on_timer=tens, name="tens", **about)
        )
    else:
        rows, late_of_window = windowed([passed], tumbling(seconds=10, field="at"), tasks=tasks)
    runner = Runner(topology)
    for times in ((1, 12), (7, 12, 14), (9, 15), (13,), (10, 30), (25,)):
        runner.batch(clicks(*times))
        if stage != "timer":
            assert late + late_of_window == []
    runner.batch(clicks(50))
    assert plain(rows) == [
        ("a", 10, [1.0, 7.0, 9.0]),
        ("a", 20, [10.0, 12.0, 13.0, 14.0, 15.0]),
        ("a", 30, [25.0]),
        ("a", 40, [30.0]),
    ]
    runner.batch(clicks(39))
    if stage != "timer":
        assert len(late + late_of_window) == 1


times = st.sampled_from([-inf, 0, 7, 8.5, 20, inf])
source_times = st.builds(
    SourceTime, times, times, st.booleans(), st.booleans(), st.just(inf), st.just(0.0)
)


@given(st.lists(st.none() | source_times, min_size=1), st.lists(source_times), st.integers(0, 5))
def test_a_stage_that_holds_nothing_back_is_exactly_so_much_behind(
    sources: list[SourceTime | None], others: list[SourceTime], late: int
) -> None:
    passed, at_once = behind(sources, late), behind(sources, 0)
    for before in (False, True):
        reached = watermark(sources, before=before)
        assert watermark([passed], before=before) == minus(reached, late)
        both = watermark([*sources, *others], before=before)
        assert watermark([at_once, *others], before=before) == both
    assert passed.ended == all(source is not None and source.ended for source in sources)


# ---- what is refused -----------------------------------------------------------------------------


class Named(NamedTuple):
    user: str
    at: str


def as_click(row: Any) -> Click:
    return Click(*row)


class Timed(NamedTuple):
    user: str
    end: float


def timed(click: Any) -> Timed:
    return Timed("a", 1.0)


def test_windows_of_windows_have_one_unit() -> None:
    _, stream = stub_stream(Click)
    first = tumbling(seconds=10, field="at", unit="ms")
    ends = stream.window(first, count(), fields=("end", "n"), state=StateStub(), name="first")
    second = tumbling(seconds=10, field="end", unit="s")
    with pytest.raises(TopologyError, match=r"its unit is 's', that of 'window first' .* 'ms'"):
        ends.window(second, count(), state=StateStub(), name="second")


def test_a_field_that_is_none_of_the_source_is_refused_with_the_remedy() -> None:
    _, stream = stub_stream(Click)
    with pytest.raises(
        TopologyError,
        match=r"its event time is 'end', which spout 'given' does not have; its fields are: user, "
        r"at\. Read records with that field .*, or write `event_time`",
    ):
        stream.map(timed).window(tumbling(seconds=1, field="end"), count(), state=StateStub())
    _, stream = stub_stream(Named)
    with pytest.raises(TopologyError, match=r"spout 'given' has as str, which is no time"):
        stream.window(tumbling(seconds=1, field="at"), count(), state=StateStub())


def test_each_source_of_a_window_has_the_field() -> None:
    topology, stream = stub_stream(Click, group="g")
    _, other = stub_stream(("user", "when"), "other", topology, group="g")
    merged = stream.merge(other.map(as_click))
    with pytest.raises(TopologyError, match="'at', which spout 'other' does not have"):
        merged.window(TEN, count(), state=StateStub())


def test_windows_of_one_source_have_one_field_and_distance_and_perhaps_several_zones() -> None:
    _, stream = stub_stream(("user", "at", "seen"))
    stream.window(TEN, count(), state=StateStub(), name="first")
    with pytest.raises(
        TopologyError, match=r"that of another window .* 'given' is 'at'; give both"
    ):
        stream.window(tumbling(seconds=1, field="seen"), count(), state=StateStub(), name="second")
    further = tumbling(seconds=1, field="at", ahead=None)
    with pytest.raises(TopologyError, match=r"its ahead is None, .* is 'auto'; give both"):
        stream.window(further, count(), state=StateStub(), name="second")
    zoned = tumbling(seconds=1, field="at", zone="UTC")
    stream.window(zoned, count(), state=StateStub(), name="third")
    assert stream.stage.time is not None
    assert stream.stage.time.zones == (None, "UTC")


class Lines(TextFileBatches):
    """Lines that begin with their time."""

    def event_time(self, line: Line) -> float:
        return float(line.text.split()[0])


class PlainLines(TextFiles):
    def event_time(self, line: Line) -> float:
        return float(line.text.split()[0])


def parsed(line: Line) -> Click:
    at, user = line.text.split()
    return Click(user, float(at))


@pytest.mark.parametrize(
    "kind", [Lines, lambda *files: PlainSpout(PlainLines(*files), repeats=True)]
)
def test_a_spout_may_compute_the_event_time_of_its_rows(kind: Any, tmp_path: Path) -> None:
    fast, slow = tmp_path / "fast.txt", tmp_path / "slow.txt"
    fast.write_text("".join(f"{second} a\n" for second in range(0, 300, 3)))
    slow.write_text("".join(f"{second} b\n" for second in range(100)))
    topology = Topology("t")
    source = kind(fast, slow)
    source.bounds = type(source.bounds)(records=7)
    stream = batches(topology, "lines", source, store=InMemory()).map(parsed)
    rows, late = windowed([stream], tumbling(seconds=10, field="at", late=300))
    run(topology)
    assert sum(len(times) for _, _, times in rows) == 200
    assert late == []


class Dated(NamedTuple):
    user: str
    at: datetime


def test_a_time_without_a_zone_ends_the_topology_and_names_its_spout() -> None:
    topology = Topology("t")
    naive = datetime(2026, 11, 28)  # noqa: DTZ001
    rows = [Dated("a", naive.replace(tzinfo=UTC)), Dated("a", naive)]
    stream = batches(topology, "in", FixedBatchSpout(rows, 1, type=Dated), store=InMemory())
    windowed([stream], tumbling(seconds=10, field="at"))
    with pytest.raises(
        TopologyFailed, match=r"field 'at' of a row of spout 'in' is .* no time zone"
    ):
        run(topology)
