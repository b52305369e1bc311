"""Records in the order of event time: what a function is handed, failures, wrong declarations."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

from sunshower import Derived, KeyList, KeyState, Records, Topology, batch, count, run_inline
from sunshower.clock import ManualClock
from sunshower.config import Internals
from sunshower.errors import TopologyError, TopologyFailed, UnknownField
from sunshower.simulation.cluster import SimCluster
from sunshower.state import MemoryState, SqliteState
from tests.seeds import seeds
from tests.topologies.operators.test_keyed_process import Kept
from tests.topologies.operators.windows.test_windows import Click, Paced
from tests.topologies.operators.windows.window_swarm import (
    DISORDER,
    Clicks,
    Note,
    clicks_of,
    run_with_faults,
    written_values,
)


class Change(NamedTuple):
    user: str
    number: int
    at: float


def numbered(click: Any, state: KeyState[int]) -> Iterator[Change]:
    """The running number of the changes of a user."""
    state.value = (state.value or 0) + 1
    yield Change(click.user, state.value, click.at)


def with_timer(click: Click, state: KeyState[int]) -> Iterator[Change]:
    state.timer = click.at + 2
    yield from numbered(click, state)


def fired(user: str, state: KeyState[int]) -> Iterator[Change]:
    yield Change(user, 0, state.time)


def listed(click: Click, times: KeyList[float]) -> Iterator[Change]:
    times.append(click.at)
    yield Change(click.user, len(times), times[0])


def results(
    source: Any, function: Any = numbered, late: float = 4, clock: Any = None, **settings: Any
) -> tuple[list[Any], list[Any]]:
    """What a function makes of clicks in order, and the late ones."""
    topology = Topology("clicks", attempts_max=3)
    clicks = topology.spout("clicks", source)
    processed = clicks.group_by("user").in_order("at", late).process(function, name="p", **settings)
    processed.shuffle().bolt("kept", Kept)
    processed.late.shuffle().bolt("late", Kept)
    done = run_inline(topology.graph(), clock=clock or ManualClock())
    return done.results["kept"][0], done.results["late"][0]


TIMES = (5.0, 2.0, 3.0, 9.0, 8.0, 20.0, 1.0, 21.0)


@pytest.mark.parametrize("stored", [False, True])
def test_records_are_handed_on_in_the_order_of_event_time(stored: bool, tmp_path: Path) -> None:
    state = SqliteState(tmp_path / "p.db") if stored else None
    changes, late = results(Paced(*TIMES), state=state)
    in_time = sorted(TIMES[:6] + TIMES[7:])
    assert changes == [Change("a", number, at) for number, at in enumerate(in_time, 1)]
    assert late == [Click("a", 1.0)]
    if state is not None:  # the records that have waited are gone
        assert dict(state.items()) == {"a": len(in_time)}


def test_a_list_of_a_key_is_filled_in_this_order() -> None:
    changes, _ = results(Paced(5.0, 2.0, 3.0), listed)
    assert changes == [Change("a", 1, 2.0), Change("a", 2, 2.0), Change("a", 3, 2.0)]


def test_a_timer_at_the_time_of_a_record_is_before_it() -> None:
    changes, _ = results(Paced(5.0, 2.0, 3.0), with_timer, on_timer=fired)
    assert [(change.number, change.at) for change in changes] == [
        (1, 2.0),
        (2, 3.0),
        (0, 5.0),
        (3, 5.0),
        (0, 7.0),
    ]


def test_all_timers_before_a_record_fire_before_it_however_many() -> None:
    def begins(click: Click, state: KeyState[int]) -> Iterator[Change]:
        state.timer = state.timer or click.at + 1
        yield Change(click.user, -1, click.at)

    def ticks(user: str, state: KeyState[int]) -> Iterator[Change]:
        if not state.ended:
            state.timer = state.time + 1
        yield Change(user, 0, state.time)

    changes, _ = results(Paced(0.0, 12_000.5), begins, on_timer=ticks)
    times = [change.at for change in changes]
    assert times == sorted(times)
    assert [(change.number, change.at) for change in changes[-3:-1]] == [
        (0, 12_000),
        (-1, 12_000.5),
    ]


def test_a_state_with_timers_needs_on_timer(tmp_path: Path) -> None:
    state = SqliteState(tmp_path / "p.db")

    def stops(user: str, state: KeyState[int]) -> Iterator[Change]:
        raise ValueError("stop")
        yield Change(user, 0, 0.0)

    with pytest.raises(TopologyFailed, match="stop"):
        results(Paced(1.0, 2.0, 50.0), with_timer, late=0, on_timer=stops, state=state)
    with pytest.raises(TopologyFailed, match="there is no on_timer="):
        results(Paced(60.0), late=0, state=state)


def test_records_of_equal_time_keep_the_order_in_which_they_arrived() -> None:
    def passed(step: Any, state: KeyState[int]) -> Iterator[tuple[int, int, int]]:
        yield step

    topology = Topology("steps")
    names = ("key", "at", "number")
    steps = [(0, number // 50, number) for number in range(100)]
    source = topology.spout("steps", Records(steps[50:] + steps[:50]), fields=names)
    processed = (
        source.group_by("key").in_order("at", 2).process(passed, fields=names, state=MemoryState())
    )
    processed.shuffle().bolt("kept", Kept)
    assert run_inline(topology.graph()).results["kept"][0] == steps


@batch
def doubled(table: Any) -> Derived:
    times = [2 * at for at in table["at"].to_pylist()]
    rows = table.set_column(1, "at", [times])
    return Derived(rows, pa.array(range(len(rows))))


def test_rows_of_columns_are_put_in_order() -> None:
    topology = Topology("clicks")
    source = Records([Click("a", at) for at in (3.0, 1.0, 2.0)], type=Click)
    clicks = topology.spout("clicks", source, event_time="at")
    ordered = clicks.flat_map(doubled, fields=Click).group_by("user").in_order("at", late=9)
    ordered.process(numbered).shuffle().bolt("kept", Kept)
    changes = run_inline(topology.graph()).results["kept"][0]
    assert changes == [Change("a", 1, 2.0), Change("a", 2, 4.0), Change("a", 3, 6.0)]


def test_a_second_run_continues_with_what_waits_and_what_came_too_late(tmp_path: Path) -> None:
    state = SqliteState(tmp_path / "p.db")
    results(Paced(5.0, 2.0), state=state)
    changes, late = results(Paced(1.0, 6.0), state=state)
    assert (changes, late) == ([Change("a", 3, 6.0)], [Click("a", 1.0)])


def test_if_the_function_raises_nothing_has_changed_and_the_topology_ends() -> None:
    def fails(click: Click, state: KeyState[int]) -> Iterator[Change]:
        state.value = (state.value or 0) + 1
        if click.at == 3.0:
            raise ValueError(f"change {state.value}")
        yield Change(click.user, state.value, click.at)

    with pytest.raises(TopologyFailed, match="change 2"):
        results(Paced(5.0, 2.0, 3.0), fails)


# ---- failures ------------------------------------------------------------------------------------


def topology_of(seed: int) -> Topology:
    topology = Topology(
        "clicks", workers=3, attempts_max=1_000, internals=Internals(peer_link_retry_s=0.5)
    )
    clicks = topology.spout("clicks", Clicks(seed), parallelism=2)
    ordered = clicks.group_by("user").in_order("at", DISORDER)
    rows = ordered.process(numbered, state=MemoryState(), parallelism=2)
    rows.shuffle().bolt("note", Note)
    return topology


def times_of(seed: int) -> dict[str, list[int]]:
    """The times of each user in their order."""
    clicks = [click for task in range(2) for click in clicks_of(seed, task)]
    return {user: sorted(c.at for c in clicks if c.user == user) for user in "abc"}


@seeds(300)
def test_each_change_has_one_number_whatever_fails(seed: int) -> None:
    """A number that was given to two records would show that a watermark which came again has
    handed a record on twice. A record that its spout has emitted twice has two numbers."""
    run = run_with_faults(seed, topology_of(seed))
    by_user: defaultdict[str, dict[int, int]] = defaultdict(dict)
    for (user, number), values in written_values(run).items():
        assert len(values) == 1, f"seed {seed}: {user} {number}"
        (by_user[user][number],) = values
    for user, times in times_of(seed).items():
        numbers = by_user[user]
        assert sorted(numbers) == [*range(1, len(numbers) + 1)], f"seed {seed}"
        in_order = [numbers[number] for number in sorted(numbers)]
        assert in_order == sorted(in_order), f"seed {seed}"
        assert set(in_order) == set(times), f"seed {seed}"


@seeds(20)
def test_without_failures_each_record_is_handed_on_once(seed: int) -> None:
    with SimCluster(seed, check=True) as cluster:
        run = cluster.submit(topology_of(seed).graph(), sample=1)
        assert run.wait(600)
        wrote = {place: [*values.elements()] for place, values in written_values(run).items()}
    for user, times in times_of(seed).items():
        for number, at in enumerate(times, 1):
            assert wrote.pop((user, number)) == [at]
    assert not wrote


# ---- declarations --------------------------------------------------------------------------------


def stream() -> Any:
    return Topology("clicks").spout("clicks", Records([Click("a", 1.0)], type=Click))


def test_wrong_declarations_say_what_helps() -> None:
    grouped = stream().group_by("user")
    with pytest.raises(UnknownField, match="'when'"):
        grouped.in_order("when")
    with pytest.raises(TopologyError, match="late is -1"):
        grouped.in_order("at", -1)
    with pytest.raises(TopologyError, match="'lat'"):
        grouped.in_order("at", lat=2)
    with pytest.raises(TopologyError, match=r"event_time= is of the order.*give it to in_order"):
        grouped.in_order("at").process(numbered, event_time="at")
    with pytest.raises(TopologyError, match="running totals"):
        stream().group_by("user").aggregate(count()).group_by("user").in_order("count")


def test_a_timer_without_on_timer_is_refused_when_it_is_set() -> None:
    with pytest.raises(TopologyFailed, match="on_timer="):
        results(Paced(1.0), with_timer)
