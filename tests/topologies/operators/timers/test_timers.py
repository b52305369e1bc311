"""Timers of keys: when they fire, what they emit, and wrong declarations."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from sunshower import Context, KeyState, Records, Retry, Spout, Topology, run_inline
from sunshower.clock import VIRTUAL_DATE, ManualClock
from sunshower.errors import RecordMismatch, TopologyError, TopologyFailed, UnknownField
from sunshower.runtime.inline import Finished
from sunshower.simulation.cluster import SimCluster
from sunshower.state import MemoryState, SqliteState
from tests.topologies.operators.test_keyed_process import Kept
from tests.topologies.operators.windows.test_windows import Click, Paced

GAP = 20


class Visit(NamedTuple):
    user: str
    first: float
    clicks: int
    at: float


def clicked(click: Click, visit: KeyState[list[float]]) -> Iterator[Visit]:
    """A visit ends with a click that comes after its timer, or with the timer."""
    if visit.timer is not None and click.at >= visit.timer:
        yield visit_of(click.user, visit.value, visit.timer)
        visit.value = None
    visit.value = [*(visit.value or []), click.at]
    visit.timer = click.at + GAP


def ended(user: str, visit: KeyState[list[float]]) -> Iterator[Visit]:
    yield visit_of(user, visit.value, visit.time)
    visit.value = None


def visit_of(user: str, clicks: list[float] | None, at: float) -> Visit:
    assert clicks
    return Visit(user, clicks[0], len(clicks), at)


def visits_of(times: list[float]) -> list[Visit]:
    """Return the visits of user a as a plain program computes them."""
    visits: list[list[float]] = []
    for time in times:
        if visits and time - visits[-1][-1] < GAP:
            visits[-1].append(time)
        else:
            visits.append([time])
    return [Visit("a", times[0], len(times), times[-1] + GAP) for times in visits]


def click_topology(
    clicks: Any, function: Any = clicked, on_timer: Any = ended, **settings: Any
) -> Any:
    topology = Topology("clicks", attempts_max=3)
    source = clicks if isinstance(clicks, Spout) else Records(clicks, type=Click)
    stream = topology.spout("clicks", source)
    settings = {"event_time": "at", **settings}
    outputs = stream.group_by("user").process(function, on_timer=on_timer, name="p", **settings)
    outputs.shuffle().bolt("kept", Kept)
    return topology


def run(topology: Topology) -> Finished:
    return run_inline(topology.graph(), clock=ManualClock())


# ---- when they fire -----------------------------------------------------------------------------


TIMES = [0.0, 5.0, 24.0, 44.0, 45.0, 100.0, 119.0, 120.0, 200.0]


@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize("parallelism", [1, 2])
def test_event_time_timers_fire_as_in_a_plain_program(
    stored: bool, parallelism: int, tmp_path: Path
) -> None:
    state = SqliteState(tmp_path / "visits.db") if stored else None
    done = run(click_topology(Paced(*TIMES), state=state, parallelism=parallelism))
    assert done.results["kept"][0] == visits_of(TIMES)
    if state is not None:
        assert dict(state.items()) == {}
    else:
        assert done.results["p"] == [{}] * parallelism


def test_a_timer_waits_for_late_records() -> None:
    def early(click: Click, seen: KeyState[int]) -> None:
        if click.at < 10:
            seen.value, seen.timer = (seen.value or 0) + 1, 10

    def counted(user: str, seen: KeyState[int]) -> Iterator[tuple[int]]:
        yield (seen.value or 0,)
        seen.value = None

    rows = [
        run(click_topology(Paced(0, 12, 5, 30), early, counted, late=late, fields=["n"])).results[
            "kept"
        ]
        for late in (0, 15)
    ]
    assert rows == [[[(1,), (1,)]], [[(2,)]]]


class Slow(Spout[Click]):
    """Emits clicks at the seconds 0 to 3, 14, 15 and 30."""

    def open(self, context: Context) -> None:
        self.clock = context.clock

    def records(self) -> Iterator[Click | None]:
        begun = self.clock.now()
        for second in (0, 1, 2, 3, 14, 15, 30):
            while self.clock.now() < begun + second:
                yield None
            yield Click("a", float(second))


def test_timers_by_the_clock_fire_as_time_passes() -> None:
    def seen(click: Click, seen: KeyState[list[float]]) -> None:
        seen.value = [*(seen.value or []), click.at]
        seen.timer = seen.time + 5

    topology = click_topology(Slow(), seen, event_time=None)
    with SimCluster(1) as cluster:
        current = cluster.submit(topology.graph())
        assert not current.wait(12)
        assert [visit.clicks for visit in current.results("kept")[0]] == [4]
        assert current.wait(60)
        (visits,) = current.results("kept")
    assert [visit.clicks for visit in visits] == [4, 2, 1]


def test_the_time_of_a_call_by_the_clock_is_unix_time_and_a_timer_may_be_a_datetime() -> None:
    def seen(click: Click, seen: KeyState[list[float]]) -> None:
        seen.value = [seen.time - VIRTUAL_DATE.timestamp()]
        seen.timer = VIRTUAL_DATE + timedelta(seconds=5)  # type: ignore[assignment]

    with SimCluster(1) as cluster:
        current = cluster.submit(click_topology(Slow(), seen, event_time=None).graph())
        assert not current.wait(12)
        (visit,) = current.results("kept")[0]
        assert 0 <= visit.first < 4
        assert visit.at == VIRTUAL_DATE.timestamp() + 5


def test_a_key_has_one_timer_which_can_be_moved_and_cancelled() -> None:
    def moves(click: Click, state: KeyState[int]) -> None:
        assert (state.timer is None) == (click.at in (0, 40))
        state.timer = {0: 10, 5: 30, 20: None, 40: 60, 50: 55}[int(click.at)]

    def fired(user: str, state: KeyState[int]) -> Iterator[tuple[str, float]]:
        assert (state.value, state.timer) == (None, None)
        yield user, state.time

    topology = click_topology(Paced(0, 5, 20, 40, 50, 90), moves, fired, fields=["user", "time"])
    with pytest.raises((TopologyFailed, KeyError)):
        run(topology)  # `moves` has no entry for 90
    done = run(click_topology(Paced(0, 5, 20, 40, 50), moves, fired, fields=["user", "time"]))
    assert done.results["kept"] == [[("a", 55.0)]]


class Cart(NamedTuple):
    items: list[int]
    at: float


def test_a_key_with_a_timer_may_be_a_list() -> None:
    def seen(cart: Cart, state: KeyState[int]) -> None:
        state.timer = cart.at + GAP

    def left(items: Any, state: KeyState[int]) -> Iterator[Visit]:
        yield Visit(str(items), 0.0, len(items), state.time)

    topology = Topology("carts")
    carts = topology.spout("carts", Records([Cart([1, 2], 1.0), Cart([1, 2], 5.0)], type=Cart))
    ends = carts.group_by("items").process(seen, on_timer=left, event_time="at")
    ends.shuffle().bolt("kept", Kept)
    ((visit,),) = run(topology).results["kept"]
    assert (visit.clicks, visit.at) == (2, 5.0 + GAP)


def test_a_timer_may_set_the_next_one() -> None:
    def starts(click: Click, state: KeyState[int]) -> None:
        if state.value is None:
            state.value, state.timer = 0, click.at + 10

    def again(user: str, state: KeyState[int]) -> Iterator[tuple[str, float]]:
        yield user, state.time
        if not state.ended:
            state.timer = state.time + 10

    times = [float(second) for second in range(36)]
    done = run(click_topology(Paced(*times), starts, again, fields=["user", "time"]))
    assert done.results["kept"] == [[("a", 10.0), ("a", 20.0), ("a", 30.0), ("a", 40.0)]]


def test_later_operators_of_the_stage_get_the_rows_of_records_and_of_timers() -> None:
    async def doubled(visit: Visit) -> Visit:
        return visit._replace(clicks=visit.clicks * 2)

    def is_known(visit: Visit) -> bool:
        return visit.user == "a"

    topology = Topology("clicks")
    clicks = topology.spout("clicks", Paced(*TIMES))
    visits = clicks.group_by("user").process(clicked, on_timer=ended, event_time="at")
    visits.filter(is_known).map(doubled).shuffle().bolt("kept", Kept)
    visits.shuffle().bolt("raw", Kept)
    done = run(topology)
    expected = visits_of(TIMES)
    assert sorted(done.results["raw"][0]) == sorted(expected)
    twice = [visit._replace(clicks=visit.clicks * 2) for visit in expected]
    assert sorted(done.results["kept"][0]) == sorted(twice)


def test_an_object_may_have_the_timer_as_a_method() -> None:
    class Visits:
        def prepare(self, context: Context) -> None:
            self.calls = 0

        def __call__(self, click: Click, visit: KeyState[list[float]]) -> None:
            self.calls += 1
            visit.timer = click.at + GAP

        def ended(self, user: str, visit: KeyState[list[float]]) -> Iterator[tuple[int]]:
            yield (self.calls,)

    visits = Visits()
    done = run(click_topology(Paced(0, 1, 50), visits, visits.ended, fields=["calls"]))
    assert {calls for (calls,) in done.results["kept"][0]} <= {2, 3}


# ---- timers that set the next one ---------------------------------------------------------------


def remembers(click: Click, due: KeyState[list[float]]) -> None:
    """Each click has a timer of its own, as TIMERS describes several times of one key."""
    due.value = sorted([*(due.value or []), due.time + GAP])
    due.timer = due.value[0]


def first_of(user: str, due: KeyState[list[float]]) -> Iterator[tuple[str, float, bool]]:
    assert due.value
    first, *others = due.value
    assert first == due.time
    yield user, first, due.ended
    due.value = others or None
    due.timer = others[0] if others else None


FIRINGS_MAX = "sunshower.topologies.operators.windows.window_operator._FIRINGS_MAX"
CHAINED = {"function": remembers, "on_timer": first_of, "fields": ["user", "at", "ended"]}


@pytest.mark.parametrize("event_time", ["at", None])
@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize("parallelism", [1, 2])
def test_the_end_of_all_sources_fires_all_timers_that_timers_set(
    event_time: str | None, stored: bool, parallelism: int, tmp_path: Path
) -> None:
    state = SqliteState(tmp_path / "due.db") if stored else None
    clicks = [Click(user, float(at)) for at in range(4) for user in "abc"]
    settings = {"event_time": event_time, "parallelism": parallelism, "state": state, **CHAINED}
    done = run(click_topology(clicks, **settings))
    rows = done.results["kept"][0]
    assert sorted(user for user, _, _ in rows) == sorted("abc" * 4)
    assert {is_end for _, _, is_end in rows} == {True}
    if event_time:
        assert sorted(rows) == [(user, at + GAP, True) for user in "abc" for at in range(4)]
    if state is not None:
        assert dict(state.items()) == {}


@pytest.mark.parametrize("event_time", ["at", None])
def test_the_end_in_the_simulator_fires_them_too(event_time: str | None) -> None:
    topology = click_topology(
        [Click("a", float(at)) for at in range(5)], event_time=event_time, **CHAINED
    )
    with SimCluster(1) as cluster:
        current = cluster.submit(topology.graph())
        assert current.wait(60)
        (rows,) = current.results("kept")
    assert len(rows) == 5
    assert [at for _, at, _ in rows] == sorted(at for _, at, _ in rows)


def test_a_watermark_fires_all_timers_that_are_due_in_the_order_of_their_times() -> None:
    clicks = [Click(user, float(at)) for at in range(3) for user in "ab"]

    class ThenLater(Spout[Click]):
        def open(self, context: Context) -> None:
            self.clock = context.clock

        def records(self) -> Iterator[Click | None]:
            yield from clicks
            yield Click("z", 100.0)
            until_s = self.clock.now() + 2
            while self.clock.now() < until_s:
                yield None

    done = run(click_topology(ThenLater(), **CHAINED))
    rows = done.results["kept"][0]
    assert [row for row in rows if row[0] != "z"] == [
        (user, at + GAP, False) for at in range(3) for user in "ab"
    ]
    assert rows[-1] == ("z", 100.0 + GAP, True)


def test_timers_that_a_stopped_run_has_stored_fire_at_the_end_of_the_next() -> None:
    state, times = MemoryState(), []
    for seed, source in ((1, Endless(0.0, 1.0, 2.0)), (2, Paced(3.0, 4.0))):
        topology = click_topology(source, state=state, **CHAINED)
        with SimCluster(seed) as cluster:
            current = cluster.submit(topology.graph())
            assert current.wait(20.0) == (seed == 2)
            times.append([at for _, at, _ in current.results("kept")[0]])
    assert times == [[], [at + GAP for at in (0.0, 1.0, 2.0, 3.0, 4.0)]]
    assert dict(state.items()) == {}


def test_a_chain_that_fails_in_the_middle_begins_again_and_its_rows_come_once() -> None:
    failed = []

    def fails(user: str, due: KeyState[list[float]]) -> Iterator[tuple[str, float, bool]]:
        yield from first_of(user, due)
        if due.time == 2 + GAP and len(failed) < 2:
            failed.append(due.time)
            raise ValueError("not yet")

    topology = click_topology(Paced(0, 1, 2, 3), **{**CHAINED, "on_timer": fails})
    rows = run(topology).results["kept"][0]
    assert [at for _, at, _ in rows] == [GAP, 1 + GAP, 2 + GAP, 3 + GAP]
    assert len(failed) == 2


def test_timers_of_a_process_behind_timers_fire_at_the_end() -> None:
    def collects(row: tuple[str, float, bool], due: KeyState[int]) -> None:
        due.value = (due.value or 0) + 1
        due.timer = due.time + 1

    def totals(user: str, due: KeyState[int]) -> Iterator[tuple[str, int]]:
        yield user, due.value or 0
        due.value = None

    topology = Topology("clicks")
    clicks = topology.spout(
        "clicks", Records([Click("a", float(at)) for at in range(5)], type=Click)
    )
    settings = {**CHAINED, "event_time": "at"}
    rows = clicks.group_by("user").process(settings.pop("function"), name="first", **settings)
    totalled = rows.group_by("user").process(
        collects, on_timer=totals, name="second", fields=["user", "count"]
    )
    totalled.shuffle().bolt("kept", Kept)
    assert sum(count for _, count in run(topology).results["kept"][0]) == 5


def starts(click: Click, state: KeyState[int]) -> None:
    state.timer = click.at + 1


def ticks(user: str, state: KeyState[int]) -> Iterator[tuple[str, float]]:
    yield user, state.time
    state.timer = state.time + 1


def waits(user: str, state: KeyState[int]) -> Iterator[tuple[str, float]]:
    """Sets a timer that is due already."""
    state.value = (state.value or 0) + 1
    yield user, state.value
    state.timer = None if state.ended else state.time


@pytest.mark.parametrize("event_time", ["at", None])
def test_timers_without_an_end_are_refused_and_the_remedy_works(
    event_time: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FIRINGS_MAX, 200)

    def stops(user: str, state: KeyState[int]) -> Iterator[tuple[str, float]]:
        yield from ticks(user, state)
        if state.ended:
            state.timer = None

    settings: Any = {"event_time": event_time, "fields": ["user", "at"]}
    clicks, store = [Click("a", 0.0), Click("b", 3.0)], MemoryState()
    with pytest.raises(TopologyFailed, match=r"process 'p'.*ticks.*key '.'.*not state\.ended"):
        run(click_topology(clicks, starts, ticks, state=store, **settings))
    assert {
        user
        for user, _ in run(click_topology([], starts, stops, state=store, **settings)).results[
            "kept"
        ][0]
    } == {"a", "b"}, "the timers of the failed run were stored"


def test_a_timer_that_is_set_to_its_own_time_waits_for_the_next_watermark() -> None:
    def once(click: Click, state: KeyState[int]) -> None:
        if click.at == 0:
            state.timer = 1

    times = [float(second) for second in range(6)]
    done = run(click_topology(Paced(*times), once, waits, fields=["user", "calls"]))
    assert 1 < len(done.results["kept"][0]) < 100


def test_a_long_way_behind_a_timer_is_made_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """A timer of every second, and a watermark far ahead: no single watermark fires all."""
    monkeypatch.setattr(FIRINGS_MAX, 10)

    def until_end(user: str, state: KeyState[int]) -> Iterator[tuple[str, float]]:
        yield user, state.time
        state.timer = None if state.ended or state.time >= 95 else state.time + 1

    def once(click: Click, state: KeyState[int]) -> None:
        if click.at == 0:
            state.timer = 1

    done = run(click_topology(Paced(0, 100, 101, 102), once, until_end, fields=["user", "at"]))
    times = [at for _, at in done.results["kept"][0]]
    assert times == [*map(float, range(1, 96))]


# ---- storage ------------------------------------------------------------------------------------


class Endless(Spout[Click]):
    def __init__(self, *times: float) -> None:
        self.times = times

    def records(self) -> Iterator[Click | None]:
        for time in self.times:
            yield Click("a", time)
        while True:
            yield None


def test_a_timer_is_kept_for_the_next_run_and_longer_than_its_state() -> None:
    state, visits = MemoryState(), []
    for seed, times in ((1, (0.0, 5.0)), (2, (70.0,))):
        topology = click_topology(Endless(*times), on_timer=lapsed, state=state, ttl_s=4)
        with SimCluster(seed) as cluster:
            current = cluster.submit(topology.graph())
            current.wait(2.0)
            assert list(dict(state.items())) == ["a"]
            current.wait(10.0)
            assert dict(state.items()) == {}
            visits += current.results("kept")
    assert visits == [[], [Visit("a", 0, 0, 25.0)]]


def lapsed(user: str, visit: KeyState[list[float]]) -> Iterator[Visit]:
    yield Visit(user, 0, len(visit.value or []), visit.time)
    visit.value = None


# ---- failures -----------------------------------------------------------------------------------


def test_a_record_that_raises_sets_no_timer(tmp_path: Path) -> None:
    def poisoned(click: Click, visit: KeyState[list[float]]) -> Iterator[Visit]:
        yield from clicked(click, visit)
        if click.user == "bad":
            raise ValueError("bad")

    topology, state = Topology("clicks"), MemoryState()
    retry = Retry(attempts=2, initial_s=0.01, dead_letters=tmp_path / "dead.jsonl")
    clicks = [Click("a", 0.0), Click("bad", 1.0), Click("a", 50.0)]
    stream = topology.spout("clicks", Records(clicks, type=Click), retry=retry)
    visits = stream.group_by("user").process(poisoned, on_timer=ended, event_time="at", state=state)
    visits.shuffle().bolt("kept", Kept)
    assert {visit.user for visit in run(topology).results["kept"][0]} == {"a"}


def test_a_timer_that_raises_is_tried_again_with_its_former_state() -> None:
    tried = []

    def fails(user: str, visit: KeyState[list[float]]) -> Iterator[Visit]:
        assert visit.value
        tried.append(len(visit.value))
        visit.value.append(0.0)
        yield Visit(user, 0, len(visit.value), visit.time)
        if len(tried) < 3:
            raise ValueError("not yet")

    done = run(click_topology(Paced(0, 1), on_timer=fails))
    assert tried == [2, 2, 2]
    assert done.results["kept"] == [[Visit("a", 0, 3, 21.0)]]


def test_a_timer_that_always_raises_ends_the_topology() -> None:
    def fails(user: str, visit: KeyState[list[float]]) -> Iterator[Visit]:
        raise ValueError("never")
        yield

    failed = r"a watermark of spout 'clicks' failed 3 times.*never \(step `fails`\)"
    with pytest.raises(TopologyFailed, match=failed):
        run(click_topology(Paced(0, 50), on_timer=fails))


def test_rows_of_a_timer_are_emitted_until_they_are_processed() -> None:
    refused = []

    class Refuses(Kept):
        def process(self, record: Any) -> None:
            if len(refused) < 2:
                refused.append(record)
                raise ValueError("not yet")
            super().process(record)

    topology = Topology("clicks", attempts_max=5)
    clicks = topology.spout("clicks", Paced(0, 1))
    visits = clicks.group_by("user").process(clicked, on_timer=ended, event_time="at")
    visits.shuffle().bolt("kept", Refuses)
    assert set(run(topology).results["kept"][0]) == {Visit("a", 0, 2, 21)}
    assert len(refused) == 2


def test_a_key_that_looks_like_an_entry_of_the_operator_fails_alone(tmp_path: Path) -> None:
    topology = Topology("clicks")
    retry = Retry(attempts=1, dead_letters=tmp_path / "dead.jsonl")
    clicks = [Click("__sunshower:owed", 1.0), Click("a", 2.0)]
    stream = topology.spout("clicks", Records(clicks, type=Click), retry=retry)
    grouped = stream.group_by("user", "at")
    visits = grouped.process(clicked, on_timer=of_pair, event_time="at", state=MemoryState())
    visits.shuffle().bolt("kept", Kept)
    done = run(topology)
    assert done.snapshot.component("clicks").dead == 1
    assert done.results["kept"] == [[Visit("a", 2.0, 1, 22.0)]]


def of_pair(key: tuple[str, float], visit: KeyState[list[float]]) -> Iterator[Visit]:
    return ended(key[0], visit)


# ---- wrong declarations -------------------------------------------------------------------------


def with_int(user: str, visit: KeyState[int]) -> None: ...


def makes_clicks(user: str, visit: KeyState[list[float]]) -> Iterator[Click]:
    yield Click(user, 0.0)


def takes_one(user: str) -> None: ...


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"on_timer": 3}, TopologyError, "3 is no function of a key and a state"),
        ({"on_timer": takes_one}, TopologyError, "takes_one must take a key and the state"),
        ({"on_timer": with_int}, RecordMismatch, "KeyState[int], and that of clicked is"),
        (
            {"on_timer": makes_clicks},
            RecordMismatch,
            "one stream carries Visit(user",
        ),
        ({"event_time": "when"}, UnknownField, "no field 'when'"),
        ({"late": -1}, TopologyError, "late is -1"),
        ({"late": 1, "event_time": None}, TopologyError, "late= needs event_time="),
        ({"on_timer": None}, TopologyError, "event_time=, late=, ahead= and unit= are for timers"),
    ],
)
def test_wrong_declarations_are_refused(
    settings: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error) as raised:
        click_topology([], **settings)
    assert message in str(raised.value)
    assert "topology 'clicks', stream 'default' of 'clicks', group_by(user)" in str(raised.value)


def test_a_timer_without_on_timer_fails_its_record() -> None:
    topology = Topology("clicks", attempts_max=1)
    topology.spout("clicks", Paced(1.0)).group_by("user").process(clicked)
    with pytest.raises((TopologyError, TopologyFailed), match="there is no on_timer="):
        run(topology)


def test_a_spout_without_the_field_of_the_event_time_is_refused() -> None:
    def shifted(click: Click) -> Visit:
        return Visit(click.user, 0, 0, click.at)

    topology = Topology("clicks")
    visits = topology.spout("clicks", Paced(1.0)).map(shifted)
    visits.group_by("user").process(unread, on_timer=ended, event_time="first", name="p")
    with pytest.raises(TopologyError, match=r"process 'p': its event time is 'first', which"):
        topology.graph()


def unread(visit: Visit, state: KeyState[list[float]]) -> None: ...
