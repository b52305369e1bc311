"""Results of windows before their end (`early=`) and after it (`allowed=`)."""

from __future__ import annotations

import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

from sunshower import (
    Context,
    Derived,
    KeyState,
    Records,
    Spout,
    Topology,
    batch,
    collect,
    count,
    reduce,
    run_inline,
    sessions,
    sliding,
    sum_,
    tumbling,
)
from sunshower.clock import ManualClock
from sunshower.config import Internals
from sunshower.errors import ConfigError, RecordMismatch, TopologyError
from sunshower.runtime.events.event_log import What
from sunshower.simulation.cluster import SimCluster, SimRun
from sunshower.state import MemoryState, SqliteState
from sunshower.topologies.streams import Stream
from tests.seeds import seeds
from tests.topologies.operators.kinds import Kept, Tables
from tests.topologies.operators.windows import window_swarm
from tests.topologies.operators.windows.test_windows import Click, Paced, run, sessions_of
from tests.topologies.operators.windows.window_swarm import Note, run_with_faults


def results(topology: Topology, **streams: Stream[Any]) -> dict[str, list[Any]]:
    """Run a topology. Return the rows of each stream, in their order."""
    for name, stream in streams.items():
        stream.shuffle().bolt(f"kept-{name}", Kept)
    by_bolt = run(topology).results
    return {name: by_bolt[f"kept-{name}"][0] for name in streams}


def windowed(window: Any, *times: float, **settings: Any) -> dict[str, list[Any]]:
    """The results of a window over clicks that come one a second, and its late ones."""
    topology = Topology("clicks")
    clicks = topology.spout("clicks", Paced(*times))
    ended = clicks.window(window, count(), **settings)
    return results(topology, kept=ended, late=ended.late)


# ---- early results -------------------------------------------------------------------------------


def test_groups_that_have_changed_have_early_results_by_the_clock() -> None:
    emitted = windowed(tumbling(seconds=10, field="at", early=3), 1, 2, 2, 3, 3, 4, 15, 15, 15, 35)
    assert emitted["kept"] == [
        (10, "early", 1, 3),
        (10, "early", 2, 6),
        (10, "final", 3, 6),
        (20, "early", 1, 3),
        (20, "final", 2, 3),
        (40, "final", 1, 1),
    ]
    assert emitted["late"] == []


def test_a_window_without_a_change_has_no_early_result() -> None:
    emitted = windowed(tumbling(seconds=10, field="at", early=1), 1, -20, -20, -20, -20, -20, 15)
    early = [row[0] for row in emitted["kept"] if row[1] == "early"]
    assert early == [10]


def test_windows_by_the_clock_have_early_results() -> None:
    topology = Topology("clicks")
    clicks = topology.spout("clicks", Paced(*range(8)))
    ended = clicks.window(tumbling(seconds=100, early=2), count())
    rows = results(topology, kept=ended)["kept"]
    assert [row[1:3] for row in rows[-2:]] == [("early", len(rows) - 1), ("final", len(rows))]
    assert [row[3] for row in rows] == sorted(row[3] for row in rows)
    assert rows[-1][3] == 8
    assert len(rows) == 4


def test_a_sliding_window_has_early_results_of_each_window_of_a_record() -> None:
    emitted = windowed(sliding(seconds=20, every=10, field="at", early=2), 1, 2, 3, 35)
    assert emitted["kept"] == [
        (10, "early", 1, 2),
        (20, "early", 1, 2),
        (10, "final", 2, 3),
        (20, "final", 2, 3),
        (40, "final", 1, 1),
        (50, "final", 1, 1),
    ]


def test_an_early_result_of_a_session_that_has_grown_is_taken_back() -> None:
    emitted = windowed(sessions(gap=5, field="at", early=1.5), 1, 1, 1, 4, 4, 30)
    assert emitted["kept"][:2] == [(6, "early", 1, 2), (6, "removed", 2, None)]
    assert (9, "final") in [row[:2] for row in emitted["kept"]]
    assert last_results(emitted["kept"]) == {9: 5, 35: 1}


# ---- updates -------------------------------------------------------------------------------------


def last_results(rows: list[Any]) -> dict[Any, Any]:
    """Window → value of the result with the highest number; without those that are removed."""
    last = {row[0]: row for row in sorted(rows, key=lambda row: row[2])}
    return {window: row[3] for window, row in last.items() if row[1] != "removed"}


def test_a_late_record_updates_its_window_while_that_is_allowed() -> None:
    times = (1, 2, 15, 3, 4, 31, 9, 16, 55)
    emitted = windowed(tumbling(seconds=10, field="at", allowed=20), *times)
    assert emitted["kept"] == [
        (10, "final", 1, 2),
        (10, "update", 2, 3),
        (10, "update", 3, 4),
        (20, "final", 1, 1),
        (20, "update", 2, 2),
        (40, "final", 1, 1),
        (60, "final", 1, 1),
    ]
    assert emitted["late"] == [(10, "late", 0, 1)]


def test_the_first_record_of_a_window_may_be_late() -> None:
    emitted = windowed(tumbling(seconds=10, field="at", allowed=20), 25, 12, 13, 60)
    assert emitted["kept"][:2] == [(20, "final", 1, 1), (20, "update", 2, 2)]


def test_a_late_record_updates_each_sliding_window_that_allows_it() -> None:
    window = sliding(seconds=20, every=10, field="at", allowed=10)
    emitted = windowed(window, 1, 25, 9, 31, 8, 70)
    assert last_results(emitted["kept"]) == {10: 1, 20: 2, 30: 1, 40: 2, 50: 1, 80: 1, 90: 1}
    assert emitted["late"] == [(20, "late", 0, 1)]


def test_a_late_record_makes_two_sessions_one() -> None:
    emitted = windowed(sessions(gap=5, field="at", allowed=50), 1, 8, 20, 4, 60)
    assert emitted["kept"] == [
        (6, "final", 1, 1),
        (13, "final", 1, 1),
        (6, "removed", 2, None),
        (13, "update", 2, 3),
        (25, "final", 1, 1),
        (65, "final", 1, 1),
    ]


def test_a_late_record_within_a_session_updates_it_and_a_later_one_is_late() -> None:
    emitted = windowed(sessions(gap=5, field="at", allowed=10), 1, 3, 10, 2, 60, 2)
    assert (8, "update", 2, 3) in emitted["kept"]
    assert emitted["late"] == [(7, "late", 0, 1)]


def test_values_that_grow_with_their_records_are_updated() -> None:
    for window in (
        sessions(gap=5, field="at", allowed=50),
        tumbling(seconds=9, field="at", allowed=50, early=1),
    ):
        topology = Topology("clicks")
        clicks = topology.spout("clicks", Paced(1, 8, 20, 4, 60))
        ended = clicks.window(window, collect("at"))
        rows = results(topology, kept=ended)["kept"]
        values = {tuple(sorted(value)) for value in last_results(rows).values()}
        assert values == {(1, 4, 8), (20,), (60,)}


def test_the_end_of_all_sources_keeps_what_may_be_updated(tmp_path: Path) -> None:
    state = SqliteState(tmp_path / "windows.db")
    for window in (
        tumbling(seconds=10, field="at", allowed=50),
        sessions(gap=9, field="at", allowed=50),
    ):
        name = type(window).__name__
        first = windowed(window, 1, 2, state=state, name=name)["kept"]
        second = windowed(window, 3, 90, state=state, name=name)["kept"]
        third = windowed(window, 4, state=state, name=name)
        assert [row[1:] for row in first] == [("final", 1, 2)]
        assert last_results(first + second)[12 if name == "Sessions" else 10] == 3
        assert third["kept"] == []
        assert [row[1:] for row in third["late"]] == [("late", 0, 1)]


# ---- ends by values ------------------------------------------------------------------------------


def is_full(row: Any) -> bool:
    return bool(row[-1] >= 3)


def test_a_window_ends_by_its_values_and_later_records_are_late() -> None:
    times = (1, 2, 3, 4, 5, 12, 25)
    emitted = windowed(tumbling(seconds=10, field="at", until=is_full), *times)
    assert emitted["kept"] == [(10, 3), (20, 1), (30, 1)]
    assert emitted["late"] == [(10, 1), (10, 1)]


def test_a_window_that_has_ended_by_its_values_has_no_further_results(tmp_path: Path) -> None:
    state = SqliteState(tmp_path / "windows.db")
    window = tumbling(seconds=10, field="at", until=is_full, early=1, allowed=10, at_end="keep")
    first = windowed(window, 1, 2, 3, 3, state=state)
    second = windowed(window, 4, 15, 5, 27, 50, 51, state=state)
    kinds = [row[1] for row in first["kept"] if row[0] == 10]
    assert kinds[-1] == "final"
    assert kinds.count("final") == 1
    assert last_results(first["kept"])[10] == 3
    assert 10 not in {row[0] for row in second["kept"]}
    assert [row[0] for row in first["late"] + second["late"]] == [10] * 3


def test_a_sliding_window_ends_by_its_values_and_others_have_its_later_records() -> None:
    window = sliding(seconds=20, every=10, field="at", until=is_full)
    emitted = windowed(window, 1, 2, 3, 4, 12, 13, 14, 15, 45)
    assert sorted(emitted["kept"]) == [(10, 3), (20, 3), (30, 3), (50, 1), (60, 1)]
    assert emitted["late"] == [(20, 1), (30, 1)], "both windows of the record have ended"


@pytest.mark.parametrize("in_panes", [False, True])
@seeds(20)
def test_a_record_is_in_each_window_that_has_not_ended_by_its_values(
    seed: int, in_panes: bool
) -> None:
    """Of sliding windows, whose records are shared: each window has a result, with records of its
    time alone, and it has ended if there are more."""
    draw, every = Random(seed), draw_every(seed)
    times = [float(draw.randint(1, 60)) for _ in range(40)]
    more: Any = {"allowed": 100, "early": 1} if draw.random() < 0.5 else {"late": 100}
    window = sliding(seconds=3 * every, every=every, field="at", until=has_three, **more)
    topology = Topology("clicks")
    values = collect("at") if in_panes else reduce(added, [], name="ats")
    rows = topology.spout("clicks", Paced(*times)).window(window, values)
    finals = [row for row in results(topology, kept=rows)["kept"] if "early" not in row]
    assert len({row[0] for row in finals}) == len([row for row in finals if "update" not in row])
    for end in {end for at in times for end in ends_of(at, every)}:
        inside = sorted(at for at in times if end in ends_of(at, every))
        *_, last = (row for row in finals if row[0] == end)
        assert Counter(last[-1]) <= Counter(inside), f"seed {seed}"
        assert sorted(last[-1]) == inside or len(last[-1]) >= 3, f"seed {seed}"


def draw_every(seed: int) -> int:
    return Random(seed).choice((4, 10))


def ends_of(at: float, every: int) -> list[int]:
    first = int(at // every + 1) * every
    return [first, first + every, first + 2 * every]


def added(values: list[float], click: Any) -> list[float]:
    return [*values, click.at]


@seeds(20)
def test_a_record_is_in_the_window_or_late(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    window = tumbling(seconds=20, field="at", late=DISORDER, until=has_three, early=0.5)
    topology = faulty(seed, window, monkeypatch)
    history = run_with_faults(seed, topology).history()
    notes = [entry.detail for entry in history if entry.what is What.WROTE]
    by_place: defaultdict[Any, set[int]] = defaultdict(set)
    finals: defaultdict[Any, set[int]] = defaultdict(set)
    for place, (kind, number, ids) in notes:
        if kind in ("final", "late"):
            by_place[tuple(place)] |= {*ids}
        if kind == "final":
            finals[tuple(place)].add(number)
    assert by_place == expected(seed, window), f"seed {seed}"
    assert {len(numbers) for numbers in finals.values()} == {1}, f"seed {seed}"


def has_three(row: Any) -> bool:
    return len(row[-1]) >= 3


# ---- what is downstream --------------------------------------------------------------------------


def test_what_is_downstream_computes_from_the_last_result_of_each_window() -> None:
    topology = Topology("clicks")
    clicks = topology.spout("clicks", Paced(1, 1, 1, 4, 4, 20, 12, 9, 40))
    ended = clicks.window(sessions(gap=5, field="at", early=1.5, allowed=50), count())
    total = ended.aggregate(sum_("count"), name="total")
    table = ended.group_by("window").table(state=MemoryState(), name="last")
    ends = topology.spout("ends", After(6.0, 9.0, 17.0, 25.0))
    joined = ends.map(end_of, fields=("window",)).join(
        table, how="left", fields=("window", "kind", "number", "n")
    )
    emitted = results(topology, total=total, joined=joined, plain=ended)
    assert emitted["total"][-1] == (9,)
    assert {row[0]: row[3] for row in emitted["joined"]} == {6: None, 9: 5, 17: 2, 25: 1}
    assert ("removed", None) in [(row[1], row[3]) for row in emitted["plain"]]


def end_of(click: Click) -> tuple[float]:
    return (click.at,)


class After(Paced):
    """Emits its clicks when all others are processed."""

    def records(self) -> Iterator[Click | None]:
        begun_s = self.clock.now()
        while self.clock.now() < begun_s + 30:
            yield None
        yield from (Click("a", time) for time in self.times)


class Minute(NamedTuple):
    user: str
    end: float
    kind: str
    number: int
    clicks: int


class Visit(NamedTuple):
    user: str
    end: float
    kind: str
    number: int
    clicks: int | None


def test_results_are_records_and_columns() -> None:
    topology = Topology("clicks")
    clicks = topology.spout("clicks", Paced(1, 2, 15, 3, 50)).group_by("user")
    minutes = clicks.window(tumbling(seconds=10, field="at", allowed=30), count(), fields=Minute)
    visits = clicks.window(
        sessions(gap=5, field="at", allowed=30), count(), fields=Visit, name="visits"
    )

    columns = visits.flat_map(values_of, fields=("kind", "number", "clicks"))
    emitted = results(topology, kept=minutes.filter(is_update), columns=columns)
    assert emitted["kept"] == [("a", 10, "update", 2, 3)]
    assert ("removed", 2, None) in emitted["columns"]


@batch
def values_of(table: pa.Table) -> Derived:
    return Derived(table.select(["kind", "number", "clicks"]), pa.array(range(len(table))))


def test_records_that_arrive_in_tables_have_these_results() -> None:
    topology = Topology("sales")
    sales = topology.spout("sales", Tables())  # amounts up to 119, in their order
    window = tumbling(seconds=50, field="amount", allowed=20, early=1)
    ended = sales.window(window, count(), sum_("amount"))
    assert last_results([row[:4] for row in results(topology, kept=ended)["kept"]]) == {
        50: 50,
        100: 50,
        150: 20,
    }


def is_update(minute: Minute) -> bool:
    return minute.kind == "update"


# ---- wrong declarations --------------------------------------------------------------------------


def on_timer(key: Any, state: KeyState[int]) -> None: ...


def keep(row: Any, state: KeyState[int]) -> None: ...


TENS = tumbling(seconds=10, field="at", allowed=20)


@pytest.mark.parametrize(
    ("assemble", "error", "message"),
    [
        (
            lambda _: tumbling(count=5, early=1),
            ConfigError,
            "are for windows of time, not of count",
        ),
        (lambda _: tumbling(count=5, until=is_full), ConfigError, "are for windows of time, not"),
        (
            lambda s: s.window(tumbling(seconds=5, until=end_of), count(), fields=("window", "n")),
            RecordMismatch,
            "until: it reads Click",
        ),
        (lambda _: sliding(count=6, every=3, allowed=1), ConfigError, "for windows of time"),
        (
            lambda _: sessions(gap=5, field="at", until=is_full),  # type: ignore[arg-type]
            ConfigError,
            "until= is for tumbling and sliding windows. A session is known by its last row",
        ),
        (lambda _: tumbling(seconds=5, allowed=1), ConfigError, "allowed= needs field="),
        (lambda _: tumbling(seconds=5, early=0), ConfigError, "early is 0"),
        (lambda _: sessions(gap=5, field="at", allowed=-1), ConfigError, "allowed is -1"),
        (
            lambda s: s.window(TENS, count()).window(tumbling(seconds=60, field="window"), count()),
            TopologyError,
            r"results of windows with early= or allowed=.* Declare the window over the records",
        ),
        (
            lambda s: s.window(TENS, count()).join(
                s, "window", other_on="at", within=1, field="window", other_field="at"
            ),
            TopologyError,
            "results of windows with early= or allowed=",
        ),
        (
            lambda s: (
                s.window(TENS, count())
                .group_by("window")
                .process(keep, on_timer=on_timer, event_time="window")
            ),
            TopologyError,
            "results of windows with early= or allowed=",
        ),
        (
            lambda s: s.map(named, fields=("kind", "at")).group_by("kind").window(TENS, count()),
            RecordMismatch,
            "two fields would have one name: kind, window, kind, number, count; give fields=",
        ),
        (
            lambda s: s.group_by("user").window(
                sessions(gap=5, field="at", early=1), count(), fields=Minute
            ),
            RecordMismatch,
            r"Minute.clicks is int, and it is None where a session has grown.*int \| None",
        ),
    ],
)
def test_wrong_declarations_are_refused(
    assemble: Any, error: type[Exception], message: str
) -> None:
    topology = Topology("clicks")
    with pytest.raises(error, match=message):
        assemble(topology.spout("clicks", Records([], type=Click)))


def named(click: Click) -> tuple[str, float]:
    return click


# ---- states of other declarations ----------------------------------------------------------------


def test_a_stored_state_without_numbers_is_continued(tmp_path: Path) -> None:
    """`float_times.sql` has open windows and sessions of a release without these results."""
    path = tmp_path / "old.db"
    with sqlite3.connect(path) as database:
        database.executescript((Path(__file__).parent / "float_times.sql").read_text())
    database.close()
    topology = Topology("old")
    rows = [Row("a", n / 10) for n in (11, 12, 30)]
    floats = topology.spout("floats", Records(rows, type=Row)).group_by("k")
    windows = {
        "tumbling": tumbling(seconds=0.5, field="at", allowed=1, early=1),
        "sessions": sessions(gap=0.5, field="at", allowed=1, early=1),
    }
    for name, window in windows.items():
        ended = floats.window(window, collect("at"), state=SqliteState(path), name=name)
        ended.shuffle().bolt(f"kept-{name}", Kept)
    emitted = run_inline(topology.graph(), clock=ManualClock()).results
    assert [(row[1], sorted(row[4])) for row in emitted["kept-tumbling"][0]] == [
        (1.0, [0.7, 0.8, 0.9]),
        (1.5, [1.1, 1.2]),
        (3.5, [3.0]),
    ]
    assert [(row[1], sorted(row[4])) for row in emitted["kept-sessions"][0]] == [
        (1.7, [0.7, 0.8, 0.9, 1.1, 1.2]),
        (3.5, [3.0]),
    ]
    assert {row[2:4] for row in emitted["kept-sessions"][0]} == {("final", 1)}


class Row(NamedTuple):
    k: str
    at: float


@pytest.mark.parametrize("first", [{}, {"allowed": 5}])
def test_rows_that_are_owed_have_the_fields_of_the_new_declaration(
    first: Any, tmp_path: Path
) -> None:
    state = SqliteState(tmp_path / "windows.db")

    class Refuses(Kept):
        def process(self, record: Any) -> None:
            raise ValueError("not in this run")

    second = {} if first else {"allowed": 5}
    for more, sink, times in ((first, Refuses, (1, 2, 25, 26)), (second, Kept, ())):
        topology = Topology("clicks", attempts_max=1_000)
        clicks = topology.spout("clicks", Paced(*times))
        window = tumbling(seconds=10, field="at", **more)
        clicks.window(window, count(), state=state).shuffle().bolt("kept", sink)
        with SimCluster(1) as cluster:
            current = cluster.submit(topology.graph())
            current.wait(8.0)
            (records,) = current.results("kept")
    rows = {(10, 2), (30, 2)}
    assert set(records) == (rows if first else {(end, "final", 1, n) for end, n in rows})


# ---- faults --------------------------------------------------------------------------------------

TOTAL, SECONDS, DISORDER = 80, 3.0, 8


class Numbered(NamedTuple):
    user: str
    at: int
    id: int


class Clicks(Spout[Numbered]):
    """Emits the clicks of its task in SECONDS, out of order; the second one is twice as slow."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def open(self, context: Context) -> None:
        self.clock, self.index = context.clock, context.index

    def records(self) -> Iterator[Numbered | None]:
        begun_s, pace_s = self.clock.now(), (1 + self.index) * SECONDS / TOTAL
        for number, click in enumerate(clicks_of(self.seed, self.index)):
            while self.clock.now() < begun_s + number * pace_s:
                yield None
            yield click


def clicks_of(seed: int, task: int) -> list[Numbered]:
    draw = Random(f"{seed} {task}")
    times = [n * 2 + draw.randrange(DISORDER) for n in range(TOTAL)]
    return [Numbered(draw.choice("abc"), at, 1_000 * task + n) for n, at in enumerate(times)]


class NoteResults(Note):
    def process(self, record: Any) -> None:
        user, window, kind, number, ids = record
        self.context.wrote((user, window), (kind, number, tuple(ids or ())))


def other_numbers(run: SimRun, draw: Random) -> None:
    run.rebalance(tasks={"windows": draw.randint(1, 3)}, wait_s=draw.choice((0.0, 2.0)))


REPEATED: tuple[Any, ...] = (
    tumbling(seconds=20, field="at", allowed=DISORDER, early=0.5),
    sliding(seconds=30, every=10, field="at", late=2, allowed=DISORDER, early=1),
    sessions(gap=4, field="at", allowed=2 * DISORDER, early=0.3),
    sessions(gap=3, field="at", late=DISORDER, early=0.3),
    tumbling(seconds=10, field="at", late=3, allowed=DISORDER),
)


def expected(seed: int, window: Any) -> dict[tuple[str, int], set[int]]:
    """The ids of each window, as a plain program has them."""
    clicks = sorted((c for task in range(2) for c in clicks_of(seed, task)), key=lambda c: c.at)
    ids: defaultdict[tuple[str, int], set[int]] = defaultdict(set)
    for click in clicks:
        if hasattr(window, "gap"):
            times = [other.at for other in clicks if other.user == click.user]
            ends = [end for end, _ in sessions_of(times, window.gap) if end > click.at]
            ids[click.user, int(ends[0])].add(click.id)
        else:
            first = click.at - click.at % window.every + window.every
            for n in range(window.panes):
                ids[click.user, first + n * window.every].add(click.id)
    return dict(ids)


def faulty(seed: int, window: Any, monkeypatch: pytest.MonkeyPatch) -> Topology:
    """A program for `run_with_faults`, which then also gives the windows other numbers of tasks."""
    topology = Topology(
        "clicks", workers=3, attempts_max=1_000, internals=Internals(peer_link_retry_s=0.5)
    )
    clicks = topology.spout("clicks", Clicks(seed), parallelism=2)
    ended = clicks.group_by("user").window(
        window, collect("id"), state=MemoryState(), parallelism=2
    )
    ended.shuffle().bolt("note", NoteResults)
    ended.late.shuffle().bolt("note-late", NoteResults)
    faults = {**window_swarm._FAULTS, "other numbers": other_numbers}
    monkeypatch.setattr(window_swarm, "_FAULTS", faults)
    return topology


@seeds(60)
def test_the_last_result_of_each_window_is_that_of_the_plain_program(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    window = REPEATED[seed % len(REPEATED)]
    topology = faulty(seed, window, monkeypatch)
    history = run_with_faults(seed, topology).history()
    notes = [entry.detail for entry in history if entry.what is What.WROTE]
    last: dict[Any, Any] = {}
    for place, (kind, number, ids) in sorted(notes, key=lambda note: note[1][1]):
        if kind == "late":  # a spout that has died begins again
            continue
        last[tuple(place)] = kind, number, set(ids)
    finals = {place: ids for place, (kind, _, ids) in last.items() if kind != "removed"}
    assert finals == expected(seed, window), f"seed {seed}"
    assert {kind for kind, *_ in last.values()} <= {"final", "update", "removed"}
