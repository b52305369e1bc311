"""One program with every keyed operator that follows event time, on either kind of stream."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from random import Random
from typing import Any, NamedTuple

from sunshower import KeyList, KeyState, Match, PatternStep, Records, Topology, run_inline
from sunshower.clock import ManualClock
from sunshower.topologies.operators.states import StateKind
from sunshower.trident import batches
from tests.trident.rigs.moving_states import (
    Life,
    MortalState,
    MovingProgram,
    Opaque,
    Transactional,
    keep_rows,
    stored_name,
)

KEYS = "abcde"
SIZE = 40
LATE, GAP, STEP = 6, 9, 3  # of event time


class Order(NamedTuple):
    key: str
    number: int
    at: int


class Price(NamedTuple):
    key: str
    at: int
    price: int | None  # None: the key is removed


class Run(NamedTuple):
    key: str
    numbers: tuple[int, ...]


class Due(NamedTuple):
    key: str
    at: float


class Total(NamedTuple):
    orders: int
    prices: int


def orders_of(draw: Random) -> list[list[Order]]:
    """Two partitions, in which no record comes more than LATE after one with a higher time."""
    logs: list[list[Order]] = [[], []]
    for number in range(SIZE):
        key = draw.choice(KEYS)
        logs[ord(key) % 2].append(Order(key, number, number * STEP))
    return [sorted(log, key=lambda order: order.at + draw.randrange(LATE + 1)) for log in logs]


def prices_of(draw: Random) -> list[list[Price]]:
    logs: list[list[Price]] = [[], []]
    for number in range(SIZE // 2):
        price = draw.choice((None, number, number))
        logs[number % 2].append(Price(draw.choice(KEYS), 2 * number * STEP + 1, price))
    return [sorted(log, key=lambda price: price.at + draw.randrange(LATE + 1)) for log in logs]


def remind(order: Order, state: KeyState[int]) -> None:
    state.value = (state.value or 0) + 1
    state.timers.add(state.time + GAP)


def reminded(key: str, state: KeyState[int]) -> Iterator[Due]:
    yield Due(key, state.time)


def collect_run(order: Order, state: KeyList[int]) -> None:
    state.append(order.number)
    state.timer = state.time + GAP


def run_is_over(key: str, state: KeyList[int]) -> Iterator[Run]:
    yield Run(key, tuple(state))
    state.clear()


def count_both(row: Order | Price, state: KeyState[Total]) -> None:
    total = state.value or Total(0, 0)
    is_order = isinstance(row, Order)
    state.value = Total(total.orders + is_order, total.prices + (not is_order))
    state.timers.add(state.time + GAP)


def both_are_due(key: str, state: KeyState[Total]) -> Iterator[Due]:
    yield Due(key, state.time)


def is_even(order: Order) -> bool:
    return order.number % 2 == 0


def is_odd(order: Order) -> bool:
    return order.number % 2 == 1


def rise(match: Match[Order]) -> Run:
    numbers = [order.number for orders in match.values() for order in orders]
    return Run(match["even"][0].key, tuple(numbers))


def order_of(row: tuple[Any, ...]) -> tuple[Any, ...]:
    return row[:3]


def half_of(order: Order) -> tuple[str, int, int]:
    return order.key, order.number * 2 // SIZE, order.at


def interval(order: Order) -> tuple[int, int]:
    return order.at, order.at + order.number % 11


JOINS: Mapping[str, Mapping[str, Any]] = {
    "inner": {"within": (4, 7)},
    "left": {"how": "left", "within": 5},
    "outer": {"how": "outer", "within": (0, 3)},
    "semi": {"how": "semi", "within": 4},
    "anti": {"how": "anti", "within": 4},
    "between": {"how": "left", "within": interval},
}
PAIR = ("key", "number", "at", "price_at", "price")
NAMES = ("timed", "ordered", "matched", "versions", "as-of", "ever", "both", *JOINS)
MORE = ("current", "distinct")  # which a program has if it is given their names


def declare(
    orders: Any, prices: Any, settings: Callable[[str], Any], names: Collection[str] = NAMES
) -> dict[str, Any]:
    """The rows of each operator of these names. `settings`: those of the operator of a name."""
    by_key = orders.group_by("key")
    in_order = by_key.in_order("at", late=LATE)
    steps = PatternStep("even", is_even), PatternStep("odd", is_odd, at_least=1, strict=True)

    def as_of(**options: Any) -> Any:
        table = prices.group_by("key").table(field="at", **settings("versions"))
        return orders.join(table, as_of="at", how="left", late=LATE, fields=PAIR, **options)

    def current(**options: Any) -> Any:
        """Each order: which version a table has depends on the moment."""
        table = prices.group_by("key").table(field="at", **options)
        return orders.join(table, how="left", fields=PAIR).map(order_of, fields=PAIR[:3])

    def joined(**options: Any) -> Any:
        fields = {} if options.get("how") in ("semi", "anti") else {"fields": PAIR}
        return orders.join(prices, "key", field="at", late=LATE, **fields, **options)

    halves = orders.map(half_of, fields=("key", "half", "at"))
    last, about = PatternStep("last", is_even, strict=True), {"event_time": "at", "late": LATE}
    operators: dict[str, Callable[..., Any]] = {
        "timed": partial(by_key.process, remind, on_timer=reminded, **about),
        "ordered": partial(in_order.process, collect_run, on_timer=run_is_over),
        "matched": partial(in_order.match, *steps, last, within=8 * STEP, select=rise),
        "as-of": as_of,
        "current": current,
        "distinct": partial(halves.distinct, ["key", "half"], **about),
        "ever": partial(orders.join, prices, "key", keep_s=None, fields=PAIR),
        **{name: partial(joined, **options) for name, options in JOINS.items()},
        "both": partial(
            by_key.connect(prices.group_by("key")).process,
            *(count_both,),
            on_timer=both_are_due,
            **about,
        ),
    }
    return {name: make(**settings(name)) for name, make in operators.items() if name in names}


def texts(rows: list[Any]) -> Counter[tuple[str, ...]]:
    return Counter(tuple(map(str, row)) for row in rows)


def of_ordinary_streams(
    seed: int, names: Collection[str] = NAMES
) -> dict[str, Counter[tuple[str, ...]]]:
    """The rows that ordinary streams make of the records of a program."""
    topology, draw = Topology("ordinary"), Random(seed)
    logs = orders_of(draw), prices_of(draw)
    streams = [
        topology.spout(kind.__name__, Records([row for log in part for row in log], type=kind))
        for kind, part in zip((Order, Price), logs, strict=True)
    ]
    outputs: dict[str, list[Any]] = {}
    for name, rows in declare(*streams, lambda name: {"name": name}, names).items():
        outputs[name] = []
        rows.peek(outputs[name].append)
    run_inline(topology.graph(), clock=ManualClock())
    return {name: texts(rows) for name, rows in outputs.items()}


class KeyedProgram(MovingProgram):
    """The same in batches, whose numbers of tasks differ from run to run. The rows of each operator
    are in the state of its name with "-rows"."""

    names = tuple(each for name in (*NAMES, *MORE) for each in (name, f"{name}-rows"))

    def __init__(
        self,
        seed: int,
        is_opaque: bool,
        store: Callable[[str, StateKind], Any],
        only: Collection[str] = NAMES,
    ) -> None:
        """`only`: the operators that it has."""
        self.only = only
        super().__init__(seed, is_opaque, StateKind.OPAQUE, store)
        draw = Random(seed)
        self.orders, self.prices = orders_of(draw), prices_of(draw)

    def topology(
        self, life: Life, tasks: Mapping[str, int], interval_s: float = 0.0, **config: Any
    ) -> Topology:
        def state(name: str) -> Any:
            inner = self.states[name]
            return MortalState(inner, life, inner.kind, stored_name(inner))

        def settings(name: str) -> Any:
            return {"state": state(name), "name": name, "parallelism": tasks.get(name, 1)}

        topology, draw = Topology("moving", **config), Random(self.draw.random())
        kind = Opaque if self.is_opaque else Transactional
        streams = []
        for type_, logs in ((Order, self.orders), (Price, self.prices)):
            spout = kind(logs, draw)
            spout.emits = type_  # type: ignore[assignment]
            about: Any = {"group": "g", "parallelism": tasks.get("in", 1)}
            if not streams:
                about |= {"store": self.batches, "max_batches": self.max_batches}
                about["interval_s"] = interval_s
            streams.append(batches(topology, type_.__name__, spout, **about))
        for name, rows in declare(*streams, settings, self.only).items():
            stored = rows.global_().partition_persist(state(f"{name}-rows"), keep_rows)
            stored.named(f"{name}-rows")
        return topology

    def rows(self) -> dict[str, Counter[tuple[str, ...]]]:
        """What each operator has made."""
        return {
            name: Counter(tuple(row) for row in self.stored(f"{name}-rows").get("rows", ()))
            for name in self.only
            if name != "versions"
        }

    def stored(self, name: str) -> dict[Any, Any]:
        """All that is in the state of a name."""
        return dict(self.states[name].items(stored_name(self.states[name])))

    def totals(self) -> dict[str, Any]:
        return self.stored("both")
