"""Windows, joins and timers of event time behind one another."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, NamedTuple

import pytest

from sunshower import KeyState, Records, Spout, Topology, count, min_, sessions, sum_, tumbling
from sunshower.errors import TopologyError
from sunshower.simulation.cluster import SimCluster
from sunshower.state import MemoryState
from sunshower.topologies.operators.windows.window_operator import WindowOperator
from sunshower.topologies.streams import Stream
from sunshower.trident import FixedBatchSpout, InMemory, batches
from tests.topologies.operators.kinds import Kept
from tests.topologies.operators.windows.test_windows import Click, Paced, run


def results(topology: Topology, **streams: Stream[Any]) -> dict[str, list[Any]]:
    """Run a topology. Return the sorted rows of each stream."""
    for name, stream in streams.items():
        stream.shuffle().bolt(f"kept-{name}", Kept)
    by_bolt = run(topology).results
    return {name: sorted(by_bolt[f"kept-{name}"][0]) for name in streams}


def clicks(topology: Topology, *times: float, name: str = "clicks") -> Stream[Click]:
    return topology.spout(name, Paced(*times))


def test_a_window_is_in_the_one_that_ends_at_the_same_time() -> None:
    topology = Topology("clicks")
    minutes = clicks(topology, 5, 15, 25, 29, 35).window(tumbling(seconds=10, field="at"), count())
    halves = minutes.window(tumbling(seconds=30, field="window"), sum_("count"), name="halves")
    emitted = results(topology, kept=halves, late=halves.late)
    assert emitted == {"kept": [(30, 4), (60, 1)], "late": []}


@pytest.mark.parametrize("how", ["semi", "anti"])
@pytest.mark.parametrize("of_batches", [False, True])
def test_ends_are_known_behind_a_join_that_passes_on_its_left_side(
    how: Any, of_batches: bool
) -> None:
    topology, store = Topology("clicks"), InMemory()
    settings: Any = {"state": MemoryState()} if of_batches else {}

    def source(name: str, *times: float) -> Any:
        if not of_batches:
            return clicks(topology, *times, name=name)
        spout = FixedBatchSpout([Click("a", time) for time in times], 2, type=Click)
        shared: Any = {"store": store} if name == "clicks" else {}
        return batches(topology, name, spout, group="clicks", **shared)

    tens = source("clicks", 5, 15, 25, 29, 35).window(
        tumbling(seconds=10, field="at"), count(), fields=("at", "count"), name="tens", **settings
    )
    others = source("others", *([10, 20, 30, 40] if how == "semi" else []))
    about: Any = {"other_on": "at", "within": 0, "field": "at", "how": how}
    joined = tens.join(others, "at", **about, **settings)
    halves = joined.window(
        tumbling(seconds=30, field="at"), sum_("count"), name="halves", **settings
    )
    late = halves.late
    if of_batches:
        halves, late = halves.records("halves-rows"), late.records("late-rows")
    emitted = results(topology, kept=halves, late=late)
    assert emitted == {"kept": [(30, 4), (60, 1)], "late": []}


class Ten(NamedTuple):
    ended: datetime
    clicks: int


class Visit(NamedTuple):
    at: datetime


def end_of(ten: Ten) -> tuple[datetime, int]:
    return ten.ended, ten.clicks


def test_ends_are_known_by_their_name_also_behind_a_map() -> None:
    topology = Topology("clicks")
    visits = [Visit(datetime.fromtimestamp(n, UTC)) for n in range(0, 61, 4)]
    source = topology.spout("visits", Records(visits, type=Visit))
    tens = source.window(tumbling(seconds=10, field="at"), count(), fields=Ten)
    known, lost = (
        tens.map(end_of, fields=(name, "clicks")).window(
            tumbling(seconds=30, field=name), sum_("clicks"), name=f"by-{name}"
        )
        for name in ("ended", "when")
    )
    emitted = results(topology, kept=known, lost=lost)
    assert emitted["kept"] == [(30, 8), (60, 7), (90, 1)]
    assert emitted["lost"] == [(30, 5), (60, 8), (90, 3)], "a time like any other"


def test_an_earlier_field_of_a_result_needs_late() -> None:
    for late, expected in ((0, []), (10, [(5, 2), (15, 2), (25, 1), (40, 1)])):
        topology = Topology("clicks")
        tens = clicks(topology, 1, 5, 11, 15, 21, 35).window(
            tumbling(seconds=10, field="at"), count(), min_("at")
        )
        fives = tens.window(
            tumbling(seconds=5, field="at_min", late=late), sum_("count"), name="fives"
        )
        emitted = results(topology, kept=fives, late=fives.late)
        assert sum(clicks for _, clicks in emitted["kept"] + emitted["late"]) == 6
        if expected:
            assert emitted == {"kept": expected, "late": []}
        else:
            assert emitted["late"]


def test_sessions_of_sessions_and_windows_behind_a_join() -> None:
    topology = Topology("clicks")
    times = (1, 2, 9, 30, 31, 50)
    left = clicks(topology, *times)
    visits = left.window(sessions(gap=5, field="at"), count(), name="visits")
    stays = visits.window(sessions(gap=20, field="window"), sum_("count"), name="stays")
    right = clicks(topology, *times, name="others")
    pairs = left.join(right, "user", within=1, field="at", fields=("user", "at", "other"))
    tens = pairs.window(tumbling(seconds=10, field="other"), count(), name="tens")
    emitted = results(topology, stays=stays, tens=tens, late=tens.late)
    assert emitted["stays"] == [(34, 3), (75, 3)]
    assert emitted["tens"] == [(10, 5), (40, 4), (60, 1)]
    assert emitted["late"] == []


def starts(row: Any, state: KeyState[int]) -> None:
    state.value = (state.value or 0) + row[2]
    if state.timer is None:
        state.timer = row[1] + 20


def ends(key: Any, state: KeyState[int]) -> Iterator[tuple[Any, int, float]]:
    yield key, state.value or 0, state.time
    state.value = None


def test_timers_behind_a_window_and_a_window_behind_timers() -> None:
    topology = Topology("clicks")
    tens = (
        clicks(topology, 1, 5, 11, 15, 41, 95)
        .group_by("user")
        .window(tumbling(seconds=10, field="at"), count())
    )
    timed = tens.group_by("user").process(
        starts, on_timer=ends, event_time="window", fields=("user", "clicks", "at")
    )
    whole = timed.window(tumbling(seconds=50, field="at"), sum_("clicks"), name="whole")
    emitted = results(topology, timed=timed, whole=whole, late=whole.late)
    expected: Counter[float] = Counter()
    for _, number, at in emitted["timed"]:  # a timer may fire after later records
        expected[at // 50 * 50 + 50] += number
    assert emitted["timed"][-1][1:] == (4, 30)
    assert sum(expected.values()) == 6
    assert dict(emitted["whole"]) == expected
    assert emitted["late"] == []


class Quiet(Spout[Click]):
    """Emits its clicks, then nothing for `silent_s`, then one more."""

    def __init__(self, silent_s: float, *times: float) -> None:
        self.silent_s, self.times = silent_s, times

    def open(self, context: Any) -> None:
        self.clock = context.clock

    def records(self) -> Iterator[Click | None]:
        *first, last = self.times
        yield from (Click("quiet", time) for time in first)
        begun_s = self.clock.now()
        while self.clock.now() < begun_s + self.silent_s:
            yield None
        yield Click("quiet", last)


@pytest.mark.parametrize("idle_s", [2.0, None])
def test_an_open_window_of_an_idle_source_is_not_late_behind_it(idle_s: float | None) -> None:
    topology = Topology("clicks")
    quiet = topology.spout("quiet", Quiet(20.0, 1, 2, 35), idle_s=idle_s)
    tens = quiet.window(tumbling(seconds=10, field="at"), count(), fields=("at", "n"), name="tens")
    others = clicks(topology, *range(1, 40)).map(counted_once, fields=("at", "n"))
    both = tens.merge(others).window(tumbling(seconds=10, field="at"), sum_("n"), name="both")
    emitted = results(topology, both=both, late=both.late)
    assert emitted["late"] == []
    assert emitted["both"] == [(10, 9), (20, 12), (30, 10), (40, 10), (50, 1)]


@pytest.mark.parametrize("at_end", ["keep", "end"])
def test_open_windows_of_all_stages_continue_in_the_next_run(at_end: Any) -> None:
    state, rows, late = MemoryState(), list[Any](), list[Any]()
    for times in ((1, 12, 25, 44, 58), (61, 73, 79, 92, 125)):
        topology = Topology("clicks")
        tens = clicks(topology, *times).window(
            tumbling(seconds=10, field="at", at_end=at_end), count(), name="tens", state=state
        )
        window = tumbling(seconds=30, field="window", at_end=at_end)
        whole = tens.window(window, sum_("count"), name="whole", state=state)
        emitted = results(topology, whole=whole, late=whole.late)
        rows += emitted["whole"]
        late += emitted["late"]
    assert late == []
    last = [(150, 1)] if at_end == "end" else []
    assert rows == [(30, 3), (60, 2), (90, 3), (120, 1), *last]


@pytest.mark.parametrize("silent_s", [5.0, None])
def test_windows_of_silent_sources_end_by_the_clock_if_that_is_declared(
    silent_s: float | None,
) -> None:
    topology = Topology("clicks")
    quiet = Quiet(100.0, 1, 2, 13, 44)
    clicks = topology.spout("quiet", quiet, idle_s=20.0, silent_s=silent_s)
    tens = clicks.group_by("user").window(tumbling(seconds=10, field="at"), count(), name="tens")
    pairs = tens.join(
        clicks, "user", within=10, field="window", other_field="at", how="left", name="pairs"
    )
    whole = tens.window(tumbling(seconds=30, field="window"), sum_("count"), name="whole")
    names = {"pairs": pairs, "whole": whole, "late": whole.late}
    for name, stream in names.items():
        stream.shuffle().bolt(f"kept-{name}", Kept)
    with SimCluster(1) as cluster:
        current = cluster.submit(topology.graph())
        current.wait(20.0)
        early = {name: current.snapshot().component(f"kept-{name}").executed for name in names}
        assert current.wait(600.0)
        (rows,), (late,) = current.results("kept-whole"), current.results("kept-late")
    assert early == {"pairs": 4 if silent_s else 3, "whole": 1 if silent_s else 0, "late": 0}
    assert sorted(rows) == [(30, 3), (60, 1)]
    assert late == []


def expire(click: Click, state: KeyState[int]) -> None:
    state.value, state.timer = (state.value or 0) + 1, state.time + 1_000


def expired(key: Any, state: KeyState[int]) -> Iterator[tuple[Any, int]]:
    yield key, state.value or 0
    state.value = None


def test_silence_ends_nothing_that_is_by_the_clock() -> None:
    """The event times, in milliseconds, are after each time of the clock in seconds."""
    topology = Topology("clicks")
    times = [1.7e12 + time for time in (0, 1_000, 90_000)]
    source = topology.spout("quiet", Quiet(100.0, *times), idle_s=5.0, silent_s=10.0)
    tens = source.window(tumbling(seconds=10_000, field="at"), count())
    timed = source.group_by("user").process(expire, on_timer=expired, fields=("user", "clicks"))
    pairs = source.join(source, "user", keep_s=1_000, fields=("user", "at", "then"))
    emitted = results(topology, tens=tens, timed=timed, pairs=pairs)
    assert emitted["timed"] == [("quiet", 3)]
    assert len(emitted["pairs"]) == 9
    assert [clicks for _, clicks in emitted["tens"]] == [2, 1]


def test_stages_do_not_multiply_watermarks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each stage gets 4 from the tasks of the one before for each that it sends, and no more."""
    sent: Counter[str] = Counter()
    advance = WindowOperator.advance

    def counted(window: WindowOperator, marks: Any) -> Any:
        rows = advance(window, marks)
        sent[window.store.name] += len(window.marks)
        return rows

    monkeypatch.setattr(WindowOperator, "advance", counted)
    topology = Topology("clicks")
    rows: Any = topology.spout("clicks", Paced(*range(20)), parallelism=4)
    rows = rows.map(keyed, fields=("key", "at"))
    for depth in range(4):
        window = tumbling(seconds=2 * 2**depth, field="at")
        rows = rows.group_by("key").window(
            window, count(), fields=("key", "at", "n"), name=f"depth-{depth}", parallelism=4
        )
    assert sum(n for _, _, n in results(topology, rows=rows)["rows"]) > 0
    first, *others = (sent[f"depth-{depth}"] for depth in range(3))
    assert first > 4 * 4 * 20
    assert max(others) < 1.3 * first


def keyed(click: Click) -> tuple[int, float]:
    return int(click.at) % 5, click.at


def counted_once(click: Click) -> tuple[float, int]:
    return click.at, 1


# ---- wrong declarations --------------------------------------------------------------------------


def test_a_window_downstream_of_itself_is_refused() -> None:
    topology = Topology("clicks")
    begun = clicks(topology, 1).map(counted_once, fields=("window", "count"))
    again = begun.shuffle().stage("again")
    tens = again.window(tumbling(seconds=10, field="window"), count(), name="tens")
    tens.shuffle().into("again")
    with pytest.raises(TopologyError, match="window 'tens': it is downstream of itself"):
        topology.graph()


def test_another_unit_behind_a_window_is_refused() -> None:
    topology = Topology("clicks")
    tens = clicks(topology, 1).window(tumbling(seconds=10, field="at", unit="s"), count())
    tens.window(tumbling(seconds=10, field="window", unit="ms"), count(), name="more")
    with pytest.raises(TopologyError, match="'more': its unit is 'ms', that of 'windows'"):
        topology.graph()
