"""Keyed states after kills, outages and rebalances, their expiry, and their new versions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any

import pytest

from sunshower import (
    Bolt,
    Cause,
    Collector,
    Context,
    KeyState,
    KeyValueState,
    Records,
    Spout,
    Topology,
    Tuple,
)
from sunshower.clock import ManualClock
from sunshower.errors import (
    ClusterError,
    StateMismatch,
    StoreUnreachable,
    TopologyFailed,
    WrongVersion,
)
from sunshower.simulation.cluster import SimCluster
from sunshower.state import MemoryState
from sunshower.topologies.operators.keyed.keyed_store import KeyedStore
from sunshower.topologies.streams import GroupedRecords
from tests.seeds import seeds
from tests.topologies.operators.test_keyed_process import (
    CLICKS,
    Click,
    Session,
    click_topology,
    number,
    run,
    sessions,
)
from tests.trident.rigs.unsure import Troubles, UnsureState


def gather(click: Click, state: KeyState[dict[str, Any]]) -> list[Session]:
    """Store the seconds of the clicks of a user, and the number of clicks."""
    if state.value is None:
        state.value = {"seconds": set(), "times": 0}
    state.value["seconds"].add(click.second)
    state.value["times"] += 1
    return [Session(click.user, click.second, state.value["times"])]


def check_no_click_is_missing(state: Any) -> int:
    """Assert that each click is in the state. Return the number of clicks in it, with replays."""
    states = dict(state.items())
    for user in {click.user for click in CLICKS}:
        seconds = {click.second for click in CLICKS if click.user == user}
        assert states[user]["seconds"] == seconds
        assert states[user]["times"] >= len(seconds)
    return sum(value["times"] for value in states.values())


class Gather(Bolt[Click, Session]):
    """`gather` as a bolt."""

    state: KeyValueState[str, dict[str, Any]]

    def process(self, click: Click) -> list[Session]:
        value = self.state.setdefault(click.user, {"seconds": set(), "times": 0})
        value["seconds"].add(click.second)
        value["times"] += 1
        return [Session(click.user, click.second, value["times"])]


class GatherInPairs(Bolt[Click, Session]):
    """`gather` as a bolt with anchors, which acks clicks in pairs."""

    state: KeyValueState[str, dict[str, Any]]

    def prepare(self, context: Context) -> None:
        self.waiting: list[tuple[Tuple[Click], Any]] = []

    def execute(self, tuple: Tuple[Click], out: Collector[Any]) -> None:
        self.waiting.append((tuple, out))
        for session in Gather.process(self, tuple.record):  # type: ignore[arg-type]
            out.emit(session, tuple)
        if len(self.waiting) > 1:
            self.tick()

    def tick(self) -> None:
        for tuple, out in self.waiting:
            out.ack(tuple)
        self.waiting = []


_GATHERERS: list[Callable[[GroupedRecords[Click], Any], Any]] = [
    lambda c, state: c.process(gather, state=state, parallelism=2),
    lambda c, state: c.stream.fields("user").bolt("own", Gather, 2, state=state),
    lambda c, state: c.stream.fields("user").bolt("own", GatherInPairs, 2, state=state, tick_s=0.1),
]


@seeds(300, kinds=3)
def test_no_click_is_missing_from_a_state_although_workers_die(seed: int) -> None:
    """Up to three kills. Even seeds use a store whose calls fail, or take effect late or twice."""
    draw = Random(seed)
    inner = MemoryState()
    troubles = Troubles(draw, 0.1)
    state = inner if seed % 2 else UnsureState(inner, troubles)
    topology = click_topology(
        lambda c: _GATHERERS[seed % 3](c, state), workers=3, message_timeout_s=10.0
    )
    with SimCluster(seed, latency_s=0.005) as cluster:
        current = cluster.submit(topology.graph())
        for _ in range(draw.randrange(1, 4)):
            if not current.wait(draw.uniform(0.005, 0.08)):
                with suppress(ClusterError):  # the worker has just died
                    current.kill_worker(draw.randrange(3))
        assert current.wait(600), current.snapshot()
        clicks = current.snapshot().component("clicks")
    troubles.calm()
    assert clicks.acked >= len(CLICKS)
    assert not clicks.pending
    check_no_click_is_missing(inner)


@dataclass
class StoreCalls:
    """The number of calls of a store, and of those that it has refused."""

    writes: int = 0
    refused: int = 0


@dataclass(frozen=True)
class OutageState:
    """A state in memory that is unavailable for the 4th to the 19th write."""

    inner: MemoryState = field(default_factory=MemoryState)
    calls: StoreCalls = field(default_factory=StoreCalls)
    kind = MemoryState.kind

    def __deepcopy__(self, memo: Any) -> OutageState:
        return self

    def make(self, place: Any) -> Any:
        store: Any = self.inner.make(place)
        store._backing.put = partial(self.put, store._backing.put)
        return store

    def put(self, put: Callable[..., None], *args: Any) -> None:
        self.calls.writes += 1
        if 3 < self.calls.writes < 20:
            self.calls.refused += 1
            raise StoreUnreachable("the store is unavailable")
        put(*args)


def gather_into(state: Any, clicks: GroupedRecords[Click]) -> Any:
    return clicks.process(gather, state=state)


def test_an_outage_of_the_store_charges_no_attempt() -> None:
    for seed in range(5):
        state = OutageState()
        topology = click_topology(partial(gather_into, state), workers=2)
        with SimCluster(seed, latency_s=0.005) as cluster:
            current = cluster.submit(topology.graph())
            assert current.wait(300), current.snapshot()
            clicks = current.snapshot().component("clicks")
        assert state.calls.refused == 16
        assert (clicks.acked, clicks.pending, clicks.dead) == (len(CLICKS), 0, 0)
        assert set(clicks.causes) <= {Cause.UNAVAILABLE.value}
        times = check_no_click_is_missing(state.inner)
        assert times <= len(CLICKS) + clicks.replayed


@dataclass
class NeedsDependency:
    """Gathers clicks, and needs a dependency that is unavailable for the 21st to the 60th call."""

    calls: StoreCalls = field(default_factory=StoreCalls)

    def __deepcopy__(self, memo: Any) -> NeedsDependency:
        return NeedsDependency(self.calls)

    def prepare(self, context: Context) -> None:
        """Without `prepare`, no new object of the bolt would be tried."""

    def __call__(self, click: Click, state: KeyState[dict[str, Any]]) -> list[Session]:
        rows = gather(click, state)
        self.calls.writes += 1
        if 20 < self.calls.writes <= 60:
            raise ConnectionRefusedError("it is unavailable")
        return rows


@pytest.mark.parametrize("stored", [False, True])
def test_an_outage_of_a_dependency_charges_no_attempt(stored: bool) -> None:
    """New objects of the bolt are tried beside the old one, each with the store open."""
    state = MemoryState() if stored else None
    topology = click_topology(
        lambda c: c.process(NeedsDependency(), state=state, parallelism=2), workers=2
    )
    with SimCluster(1, latency_s=0.005) as cluster:
        current = cluster.submit(topology.graph())
        assert current.wait(300), current.snapshot()
        clicks = current.snapshot().component("clicks")
        results = {
            k: v for task in current.results("NeedsDependency") if task for k, v in task.items()
        }
    assert (clicks.acked, clicks.pending, clicks.dead) == (len(CLICKS), 0, 0)
    assert set(clicks.causes) == {Cause.UNAVAILABLE.value}
    assert clicks.causes[Cause.UNAVAILABLE.value] >= 40
    assert check_no_click_is_missing(state or results) <= len(CLICKS) + clicks.replayed


class Late(Troubles):
    """When it is armed, the next write raises, and takes effect later."""

    is_armed = False
    waiting: Callable[[], None]

    def put(self, write: Callable[[], None]) -> None:
        if self.is_armed:
            self.is_armed, self.waiting = False, write
            raise StoreUnreachable("it happens later")
        write()


def test_a_write_that_may_still_take_effect_is_fenced_before_the_next_read() -> None:
    """Otherwise a task would compute with the value before this write, and overwrite it."""
    inner, late = MemoryState(), Late(Random(0), 0.0)
    store = KeyedStore(UnsureState(inner, late), "own", "here")
    store.open(context := Context("shop", "own", 1, 0, 1, clock=ManualClock()))
    store.put("a", 1)
    late.is_armed = True
    with pytest.raises(StoreUnreachable, match="it happens later"):
        store.commit()
    assert not store.is_open
    store.open(context)
    assert store.get("a") is None
    with pytest.raises(WrongVersion):
        late.waiting()
    store.put("b", 2)
    store.commit()
    assert dict(inner.items()) == {"b": 2}


# ---- time and versions --------------------------------------------------------------------------


class Slowly(Spout[Click]):
    """Emits a click of user a every second except from 10 to 19, and one of b at the start."""

    def open(self, context: Context) -> None:
        self.clock = context.clock

    def records(self) -> Iterator[Click | None]:
        start = self.clock.now()
        yield Click("b", 0)
        for second in [*range(10), *range(20, 30)]:
            while self.clock.now() < start + second:
                yield None
            yield Click("a", second)


def test_a_state_that_is_not_written_for_its_ttl_is_absent_and_removed() -> None:
    state = MemoryState()
    topology = click_topology(lambda c: c.process(number, state=state, ttl_s=5), Slowly())
    with SimCluster(1) as cluster:
        current = cluster.submit(topology.graph())
        assert not current.wait(4)
        assert {key for key, _ in state.items()} == {"a", "b"}
        assert not current.wait(14)
        assert not dict(state.items())  # removed by a tick
        assert current.wait(60)
        (rows,) = current.results("kept")
    assert [session.clicks for session in rows if session.user == "a"] == [
        *range(1, 11),
        *range(1, 11),
    ]


@dataclass
class Longer:
    """`Visit` in the next version of the program."""

    first: int
    seconds: int


def longer(click: Click, visit: KeyState[Longer]) -> None:
    assert visit.value is not None
    visit.value.seconds += 1000


def migrated(version: int, value: Any) -> Longer:
    assert version == 1
    return Longer(value["first"], value["last"] - value["first"])


def test_states_of_another_version_are_refused_or_migrated() -> None:
    state = MemoryState(name="visits")
    run(click_topology(lambda c: c.process(sessions, state=state), CLICKS[:2]))

    def again(**settings: Any) -> None:
        topology = Topology("clicks")
        clicks = topology.spout("clicks", Records(CLICKS[:1], type=Click))
        clicks.group_by("user").process(longer, state=state, **settings)
        run(topology)

    for settings, message in (
        ({}, "a record Visit is stored, and no annotation of the state names it. Give new"),
        ({"version": 2}, "are of version 1, and this is version 2: give migrate="),
    ):
        with pytest.raises((StateMismatch, TopologyFailed)) as raised:
            again(**settings)
        assert message in str(raised.value)
    again(version=2, migrate=migrated)
    assert dict(state.items()) == {
        "a": {"first": 0, "seconds": 1000},
        "b": {"first": 7, "seconds": 0},
    }
    again(version=2)
