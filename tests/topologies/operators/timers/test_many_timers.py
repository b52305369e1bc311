"""Any number of timers of a key, by name or by time, against a plain program."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest

from sunshower import (
    Context,
    KeyList,
    KeyMap,
    KeyState,
    Records,
    Retry,
    Spout,
    Topology,
    run_inline,
)
from sunshower.clock import ManualClock
from sunshower.errors import TopologyFailed
from sunshower.simulation.cluster import SimCluster
from sunshower.state import SqliteState
from tests.seeds import seeds
from tests.topologies.operators.kinds import Kept
from tests.topologies.operators.timers.test_timer_swarm import timer_topology
from tests.topologies.operators.windows.window_swarm import (
    Click,
    clicks_of,
    run_with_faults,
    written_values,
)

FIELDS = ("key", "name", "at")
WHAT = ("name", "remove", "time", "forget", "timer")
NAMES = ("again", "stops", "moves", "other")
GAP = 7


class Order(NamedTuple):
    key: str
    at: float
    what: str  # what to do with timers
    name: str
    after: float


def changes(order: Order, state: KeyState[list[Any]]) -> None:
    """Sets, moves or removes a timer of each kind, and notes what it had been set to."""
    at = order.at + order.after
    match order.what:
        case "name":
            state.value = [*(state.value or []), (order.name, state.timers[order.name])]
            state.timers[order.name] = at
        case "remove":
            state.timers[order.name] = None
        case "time":
            state.timers.add(at)
        case "forget":
            state.timers.remove(at)
        case "timer":
            state.timer = at


def fires(key: str, state: KeyState[list[Any]]) -> Iterator[tuple[str, Any, float]]:
    yield key, state.fired, state.time
    if state.fired == "again" and state.time < 60:
        state.timers["again"] = state.time + 7
    if state.fired == "stops":
        state.timers["again"] = None
        state.timer = None
    if state.fired == "moves":
        state.timers["again"] = state.time + 3


def plain_program(orders: list[Order]) -> tuple[list[Any], dict[str, list[Any]]]:
    """The firings, in order, and the values of keys. A record is processed before the timers of its
    time."""
    timers: dict[tuple[str, Any], float] = {}
    fired, values = list[Any](), defaultdict[str, list[Any]](list)

    def fire(until: float) -> None:
        while due := [(at, *entry) for entry, at in timers.items() if at <= until]:
            at, key, name = min(due, key=lambda timer: timer[0])
            del timers[key, name]
            fired.append((key, name, at))
            if name == "again" and at < 60:
                timers[key, "again"] = at + 7
            if name == "stops":
                timers.pop((key, "again"), None)
                timers.pop((key, None), None)
            if name == "moves":
                timers[key, "again"] = at + 3

    for order in orders:
        at = order.at + order.after
        match order.what:
            case "name":
                before = timers.get((order.key, order.name))
                values[order.key].append((order.name, before))
                timers[order.key, order.name] = at
            case "remove":
                timers.pop((order.key, order.name), None)
            case "time":
                timers[order.key, at] = at
            case "forget":
                timers.pop((order.key, at), None)
            case "timer":
                timers[order.key, None] = at
        fire(order.at)
    fire(1e9)
    return fired, dict(values)


class Paced(Spout[Order]):
    """Emits each record after the watermark of the one before."""

    emits = Order

    def __init__(self, orders: list[Order]) -> None:
        self.orders = orders

    def open(self, context: Context) -> None:
        self.clock = context.clock

    def records(self) -> Iterator[Order | None]:
        for order in self.orders:
            yield order
            until_s = self.clock.now() + 1
            while self.clock.now() < until_s:
                yield None


def orders_of(seed: int) -> list[Order]:
    """Orders with times of their own, so that the order of the timers is known."""
    random, added = Random(seed), list[tuple[str, float]]()
    orders = []
    for n in range(0, 40, 2):
        key, what = random.choice("ab"), random.choice(["name"] * 3 + list(WHAT))
        after = random.choice((2, 5, 11)) + (n + 1) / 1_024
        if what == "forget" and added:
            key, at = added.pop(random.randrange(len(added)))
            after = at - n
        orders.append(Order(key, float(n), what, random.choice(NAMES), after))
        if what == "time":
            added.append((key, n + after))
    return orders


def run(orders: list[Order], state: Any, **settings: Any) -> tuple[list[Any], Any]:
    topology = Topology("orders")
    rows = topology.spout("orders", Paced(orders)).group_by("key")
    outputs = rows.process(
        settings.pop("function", changes),
        on_timer=settings.pop("on_timer", fires),
        event_time="at",
        fields=FIELDS,
        state=state,
        name="p",
        **settings,
    )
    outputs.global_().bolt("kept", Kept)
    done = run_inline(topology.graph(), clock=ManualClock()).results
    return done["kept"][0], done["p"]


@pytest.mark.parametrize("stored", [False, True])
@seeds(200)
def test_timers_fire_as_in_a_plain_program(seed: int, stored: bool, tmp_path: Path) -> None:
    orders = orders_of(seed)
    state = SqliteState(tmp_path / "timers.db") if stored else None
    rows, values = run(orders, state, parallelism=1 + seed % 2)
    fired, expected = plain_program(orders)
    for key in "ab":  # in the order of each key; tasks have none between them
        assert [row for row in rows if row[0] == key] == [row for row in fired if row[0] == key]
    contents = dict(state.items()) if state else {k: v for task in values for k, v in task.items()}
    assert contents == expected


def test_a_key_may_have_thousands_of_timers_and_all_fire_at_the_end() -> None:
    def sets(order: Order, state: KeyState[int]) -> None:
        for second in range(12_000):
            state.timers.add(order.at + second)

    def counts(key: str, state: KeyState[int]) -> Iterator[tuple[str, Any, float]]:
        state.value = (state.value or 0) + 1
        if state.value == 12_000:
            yield key, state.fired, state.time

    rows, _ = run([Order("a", 0.0, "", "", 0)], None, function=sets, on_timer=counts)
    assert rows[0] == ("a", 11_999, 11_999)


@pytest.mark.parametrize("by_name", [False, True])
def test_timers_that_are_set_without_an_end_fail_with_the_remedy(by_name: bool) -> None:
    def sets(order: Order, state: KeyState[int]) -> None:
        state.timers.add(order.at + 5)

    def again(key: str, state: KeyState[int]) -> Iterator[tuple[str, Any, float]]:
        if by_name:
            state.timers["again"] = state.time + 1
        else:
            state.timers.add(state.time + 1)
        yield from ()

    with pytest.raises(TopologyFailed, match=r"if not state\.ended"):
        run([Order("a", 0.0, "", "", 0)], None, function=sets, on_timer=again)


def test_a_timer_that_another_one_removes_or_moves_at_the_same_time_does_not_fire() -> None:
    def sets(order: Order, state: KeyState[int]) -> None:
        state.timers["first"] = 5
        state.timers["second"] = 5
        state.timers["third"] = 6
        state.timer = 6

    def removes(key: str, state: KeyState[int]) -> Iterator[tuple[str, Any, float]]:
        yield key, state.fired, state.time
        if state.fired == "first":
            assert [state.timers["second"], state.timers["third"], state.timer] == [5, 6, 6]
            assert state.timers["first"] is None
            state.timers["second"] = None
            state.timers["third"] = 8
            state.timer = 7

    rows, _ = run([Order("a", 0.0, "", "", 0)], None, function=sets, on_timer=removes)
    assert rows == [("a", "first", 5), ("a", None, 7), ("a", "third", 8)]


def test_times_of_timers_are_read_as_event_times() -> None:
    noon = datetime(2024, 6, 1, 12, tzinfo=UTC)

    def sets(order: Order, state: KeyState[list[Any]]) -> None:
        state.timers["aware"] = noon
        state.timers["naive"] = noon.replace(tzinfo=None)
        state.timers.add(noon + timedelta(hours=1))
        state.timers.remove(noon + timedelta(hours=2))

    rows, _ = run([Order("a", 0.0, "", "", 0)], None, function=sets, zone="Europe/Berlin")
    seconds = noon.timestamp()
    assert rows == [
        ("a", "naive", seconds - 7_200),
        ("a", "aware", seconds),
        ("a", seconds + 3_600, seconds + 3_600),
    ]


class Cart(NamedTuple):
    items: list[int]
    at: float


def test_lists_and_maps_have_timers_too_and_keys_may_be_lists() -> None:
    def appends(cart: Cart, state: KeyList[float]) -> None:
        state.append(cart.at)
        state.timers[f"{len(state)}"] = cart.at + 3

    def puts(cart: Cart, state: KeyMap[str, float]) -> None:
        state["at"] = cart.at
        state.timers.add(cart.at + 3)

    def ends(items: Any, state: Any) -> Iterator[tuple[int, Any, float]]:
        yield sum(items), state.fired, state.time

    topology = Topology("carts")
    carts = topology.spout("carts", Records([Cart([1, 2], 1.0), Cart([1, 2], 5.0)], type=Cart))
    for name, function in (("lists", appends), ("maps", puts)):
        outputs = carts.group_by("items").process(
            function, on_timer=ends, event_time="at", name=name, fields=("n", "name", "at")
        )
        outputs.shuffle().bolt(f"{name}-kept", Kept)
    done = run_inline(topology.graph(), clock=ManualClock()).results
    assert done["lists-kept"] == [[(3, "1", 4.0), (3, "2", 8.0)]]
    assert done["maps-kept"] == [[(3, 4.0, 4.0), (3, 8.0, 8.0)]]


def collects(order: Order, state: KeyState[list[float]]) -> None:
    """Appends when the timer was due, which the calls before have set."""
    known = state.timers["due"]
    state.value = state.value or [0.0] * 300
    state.value.append(-1.0 if known is None else known)
    state.timers["due"] = order.at + 100
    if order.what == "fails":
        raise ValueError(order.what)


def never(key: str, state: KeyState[list[float]]) -> Iterator[tuple[str, Any, float]]:
    state.timers["due"] = None
    yield from ()


def test_a_long_value_that_depends_on_timers_is_restored_after_a_failure(tmp_path: Path) -> None:
    """Calls that have read timers are not repeated: they would read others then."""
    orders = [Order("a", float(n), "fails" if n == 5 else "", "", 0) for n in range(9)]
    retry = Retry(attempts=1, dead_letters=tmp_path / "dead.jsonl")
    topology = Topology("orders")
    source = topology.spout("orders", Records(orders, type=Order), retry=retry)
    source.group_by("key").process(
        collects, on_timer=never, event_time="at", name="p", late=100, fields=FIELDS
    )
    (values,) = run_inline(topology.graph(), clock=ManualClock()).results["p"]
    times = [order.at + 100 for order in orders if order.what != "fails"]
    assert values["a"][300:] == [-1.0, *times[:-1]]


def test_timers_without_on_timer_and_names_that_are_no_texts_are_refused() -> None:
    def sets(order: Order, state: KeyState[int]) -> None:
        state.timers["a"] = 5

    def numbers(order: Order, state: KeyState[int]) -> None:
        state.timers[5] = 5  # type: ignore[index]

    topology = Topology("orders", attempts_max=1)
    source = topology.spout("orders", Records([Order("a", 0.0, "", "", 0)], type=Order))
    source.group_by("key").process(sets)
    with pytest.raises(TopologyFailed, match="there is no on_timer= for the timer of a state"):
        run_inline(topology.graph(), clock=ManualClock())
    with pytest.raises(TypeError, match="5 names no timer"):
        numbers(Order("a", 0.0, "", "", 0), KeyState(None))


def test_a_function_is_tested_without_a_store() -> None:
    state = KeyState[list[Any]](None, 10)
    changes(Order("a", 10, "name", "again", 5), state)
    assert (state.value, state.timers["again"], state.timers["other"]) == (
        *([("again", None)], 15),
        None,
    )
    assert state.fired is None


@pytest.mark.parametrize("tasks", [1, 2, 3])
def test_timers_move_to_another_number_of_tasks(tasks: int, tmp_path: Path) -> None:
    def sets(order: Order, state: KeyState[list[Any]]) -> None:
        state.timers[order.name] = order.at + 10
        state.timers.add(order.at + 20)

    class Endless(Paced):
        def records(self) -> Iterator[Order | None]:
            yield from super().records()
            while True:
                yield None

    state = SqliteState(tmp_path / "timers.db")
    orders = [Order(key, 0.0, "", f"name {n}", 0) for key in "abcdef" for n in range(2)]
    results: list[list[Any]] = []
    for seed, source, number in ((1, Endless(orders), 2), (2, Paced([]), tasks)):
        topology = Topology("orders")
        outputs = topology.spout("orders", source).group_by("key").process(
            sets, on_timer=fires, event_time="at", name="p", fields=FIELDS, state=state,
            parallelism=number,
        )  # fmt: skip
        outputs.global_().bolt("kept", Kept)
        with SimCluster(seed) as cluster:
            current = cluster.submit(topology.graph())
            assert current.wait(60.0) == (seed == 2)
            results.append(sorted(current.results("kept")[0], key=repr))
    assert results[0] == []
    names = [(key, f"name {n}", 10.0) for key in "abcdef" for n in range(2)]
    times = [(key, 20.0, 20.0) for key in "abcdef"]
    assert results[1] == sorted([*names, *times], key=repr)


# ---- under faults --------------------------------------------------------------------------------


def gathers(click: Click, state: KeyState[set[int]]) -> None:
    """Keep a click until one of its two timers fires."""
    state.value = {*(state.value or ()), click.at}
    if click.at % 2:
        state.timers[f"click {click.at}"] = click.at + GAP
    else:
        state.timers.add(click.at + GAP)


def emits(key: Any, state: KeyState[set[int]]) -> Iterator[tuple[str, float, str]]:
    yield key[0], state.time, str(int(state.time) - GAP)


@seeds(100)
def test_each_timer_of_a_key_fires_in_spite_of_faults(seed: int) -> None:
    topology = timer_topology(seed, ("user",), "at", functions=(gathers, emits))
    seconds: defaultdict[str, set[int]] = defaultdict(set)
    for (user, _), texts in written_values(run_with_faults(seed, topology)).items():
        seconds[user].update(map(int, texts))
    for user in "abc":
        expected = {c.at for task in range(2) for c in clicks_of(seed, task) if c.user == user}
        assert seconds[user] == expected, f"seed {seed}, user {user}"
