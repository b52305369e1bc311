"""Joins as of a time: which version is valid, late changes, later runs, and wrong declarations."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from sunshower import Bolt, Context, Records, Spout, Topology, count, run_inline
from sunshower.clock import ManualClock
from sunshower.errors import RecordMismatch, TopologyError, UnknownField
from sunshower.state import SqliteState
from sunshower.topologies.streams import Stream
from tests.topologies.operators.joins.test_stream_joins import Order, Slow, source
from tests.topologies.operators.kinds import Kept


class Price(NamedTuple):
    item: str
    changed: float
    cents: int | None


FIELDS = ("item", "order", "at", "changed", "cents")
TABLE: dict[str, Any] = {"field": "changed", "wait": False}


def run_join(
    orders: Sequence[Order] | Spout[Any],
    prices: Sequence[Price] | Spout[Any],
    state: Any = None,
    **more: Any,
) -> tuple[list[Any], list[Any]]:
    """Run a join. Return (order, cents) of its records and of the late ones, sorted."""
    topology = Topology("orders")
    table = source(topology, Price, prices).group_by("item").table(**TABLE, state=state)
    settings: Any = {"how": "left", "fields": FIELDS, "as_of": "at"} | more
    joined = source(topology, Order, orders).join(table, "item", **settings)
    joined.shuffle().bolt("kept", Kept)
    joined.late.shuffle().bolt("late", Kept)
    results = run_inline(topology.graph(), clock=ManualClock()).results
    pairs, late = ([(row[1], row[4]) for row in results[name][0]] for name in ("kept", "late"))
    return sorted(pairs, key=repr), sorted(late, key=repr)


PRICES = [Price("x", 10, 1), Price("x", 20, 2), Price("x", 30, None), Price("x", 40, 4)]


@pytest.mark.parametrize("turned", [False, True])
def test_an_order_gets_the_price_that_was_valid_at_its_time(turned: bool) -> None:
    times = {"a": 9, "b": 10, "c": 19.9, "d": 20, "e": 35, "f": 100}
    orders = [Order(name, at, "x") for name, at in times.items()]
    step = -1 if turned else 1
    pairs, late = run_join(orders[::step], PRICES[::step], late=1_000)
    assert pairs == [("a", None), ("b", 1), ("c", 1), ("d", 2), ("e", None), ("f", 4)]
    assert late == []
    inner, _ = run_join(orders, PRICES, late=1_000, how="inner")
    assert inner == [pair for pair in pairs if pair[1] is not None]


def test_the_state_of_a_table_with_a_name_is_not_that_of_its_join(tmp_path: Path) -> None:
    """Two operators that write one state would drop each other's entries."""
    state = SqliteState(tmp_path / "prices.db", name="prices")
    pairs, _ = run_join([Order("a", 25, "x")], PRICES, state, late=1_000)
    assert pairs == [("a", 2)]
    assert [key for key, _ in SqliteState(state.file).items("prices")] == ["x"]
    assert [*SqliteState(state.file).items("prices-as-of")]


def test_a_version_is_valid_for_a_time_only() -> None:
    orders = [Order("a", 25, "x"), Order("b", 26, "x"), Order("c", 41, "x")]
    pairs, _ = run_join(orders, PRICES, late=1_000, valid_for=5)
    assert pairs == [("a", 2), ("b", None), ("c", 4)]


@pytest.mark.parametrize("turned", [False, True])
def test_the_same_of_two_changes_with_one_time_counts_in_each_order(turned: bool) -> None:
    prices = [Price("x", 10, 7), Price("x", 10, 5), Price("x", 10, 7)]
    pairs, _ = run_join([Order("a", 10, "x")], prices[:: -1 if turned else 1])
    assert pairs == [("a", 7)]


def test_an_order_waits_for_the_watermarks_of_both_sides() -> None:
    """The price of 4 comes two seconds after the order that gets it."""
    orders = [Order(str(at), at, "x") for at in range(0, 12, 4)]
    prices = [Price("x", at, at) for at in (0, 3, 9)]
    pairs, _ = run_join(Slow(orders), Slow(prices, 2.0), late=8)
    assert pairs == [("0", 0), ("4", 3), ("8", 3)]


class Rarely(Spout[Price]):
    """A price, another one after half a minute, and nothing in between and after it."""

    emits = Price

    def open(self, context: Context) -> None:
        self.clock = context.clock

    def records(self) -> Iterator[Price | None]:
        begun_s = self.clock.now()
        yield Price("x", 0, 1)
        while self.clock.now() < begun_s + 30:
            yield None
        yield Price("x", 30, 2)
        while self.clock.now() < begun_s + 90:
            yield None


class Moments(Bolt[Any, None]):
    """Keeps the order, its price and the time of the clock of each record."""

    def prepare(self, context: Context) -> None:
        self.clock, self.begun_s = context.clock, context.clock.now()
        self.rows: list[tuple[float, int, float]] = []

    def process(self, record: Any) -> None:
        self.rows.append((record[2], record[4], self.clock.now() - self.begun_s))

    def result(self) -> list[tuple[float, int, float]]:
        return self.rows


@pytest.mark.parametrize("tasks", [1, 2])
def test_a_table_that_rarely_changes_delays_nothing(tasks: int) -> None:
    """Each order, but the last one, leaves with the next one, not half a minute later."""
    topology = Topology("orders")
    prices = topology.spout("prices", Rarely())
    table = prices.group_by("item").table(**TABLE)
    orders = source(topology, Order, Slow([Order(str(at), at, "x") for at in range(60)]))
    joined = orders.join(table, "item", as_of="at", fields=FIELDS, late=1, parallelism=tasks)
    joined.shuffle().bolt("moments", Moments)
    (rows,) = run_inline(topology.graph(), clock=ManualClock()).results["moments"]
    assert [(at, cents) for at, cents, _ in sorted(rows)] == [
        (at, 1 if at < 30 else 2) for at in range(60)
    ]
    assert max(moment - at for at, _, moment in rows if at < 58) < 4


def test_a_late_change_counts_for_the_orders_after_it_and_a_late_order_is_not_joined() -> None:
    orders = [Order("a", 0, "x"), Order("b", 50, "x"), Order("c", 1, "x"), Order("d", 60, "x")]
    prices = [Price("x", 0, 1), Price("y", 50, 9), Price("x", 40, 2), Price("y", 60, 9)]
    pairs, late = run_join(Slow(orders), Slow(prices))
    assert late == [("c", None)]
    assert pairs == [("a", 1), ("b", 2), ("d", 2)]


def test_versions_and_the_time_are_there_in_the_next_run(tmp_path: Path) -> None:
    state = SqliteState(tmp_path / "prices.db")
    assert run_join([Order("a", 25, "x")], PRICES[:2], state)[0] == [("a", 2)]
    again = [Order("b", 35, "x"), Order("c", 9, "x")]
    pairs, late = run_join(again, PRICES, state)  # reads the table again
    assert pairs == [("b", None)]
    assert late == [("c", None)]


def test_a_table_that_is_read_again_has_no_late_changes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    state = SqliteState(tmp_path / "prices.db")
    for orders in ([Order("a", 45, "x")], []):
        topology = Topology("orders")
        table = source(topology, Price, PRICES).group_by("item").table(**TABLE, state=state)
        joined = source(topology, Order, orders).join(table, "item", fields=FIELDS, as_of="at")
        joined.shuffle().bolt("kept", Kept)
        done = run_inline(topology.graph(), clock=ManualClock())
        assert done.snapshot.component("table-as-of").late == 0
    assert not caplog.messages


def test_only_the_last_version_before_the_watermark_is_kept(tmp_path: Path) -> None:
    state = SqliteState(tmp_path / "prices.db")
    prices = [Price("x", at, at) for at in range(40)]
    run_join(Slow([Order("a", at, "y") for at in range(40)]), Slow(prices), state)
    waiting = [key for key, _ in state.items("table-as-of") if key[0] == "waiting"]
    assert 1 <= len(waiting) < 5


def test_times_may_be_datetimes_of_different_zones() -> None:
    class Sale(NamedTuple):
        item: str
        at: datetime

    class Rate(NamedTuple):
        item: str
        changed: datetime
        rate: int

    noon = datetime(2026, 6, 1, 12, tzinfo=UTC).replace(tzinfo=None)
    topology = Topology("sales")
    sales = topology.spout("sales", Records([Sale("a", noon)], type=Sale))
    utc = [Rate("a", noon.replace(tzinfo=UTC) - timedelta(hours=hours), hours) for hours in (1, 3)]
    table = topology.spout("rates", Records(utc, type=Rate)).group_by("item").table(**TABLE)
    joined = sales.join(table, as_of="at", zone="Europe/Berlin", late=1e5)
    joined.shuffle().bolt("kept", Kept)
    (rows,) = run_inline(topology.graph(), clock=ManualClock()).results["kept"]
    assert [row[-1] for row in rows] == [3]  # noon in Berlin is ten in UTC


# ---- wrong declarations -------------------------------------------------------------------------


class Streams(NamedTuple):
    orders: Stream[Order]
    prices: Stream[Price]


def join(table: dict[str, Any] = TABLE, **changed: Any) -> Callable[[Streams], Any]:
    settings: Any = {"on": "item", "as_of": "at", "fields": FIELDS} | changed
    return lambda s: s.orders.join(s.prices.group_by("item").table(**table), **settings)


@pytest.mark.parametrize(
    ("assemble", "error", "message"),
    [
        (join({}), TopologyError, 'give it to the table, as in table(field="changed")'),
        (join(as_of="when"), UnknownField, "no field 'when'"),
        (join(within=3), TopologyError, "no setting 'within'"),
        (join(how="semi"), TopologyError, 'how is \'semi\'; it is "inner" or "left"'),
        (join(valid_for=-1), TopologyError, "valid_for is -1"),
        (join(on="at"), RecordMismatch, "Order.*at is float, and Price.*item is str"),
        (
            lambda s: s.orders.join(
                s.orders.group_by("item").aggregate(count()).group_by("item").table(),
                "item",
                as_of="at",
            ),
            TopologyError,
            "give it to the table",
        ),
        (
            lambda s: (
                s.orders.group_by("item")
                .aggregate(count())
                .join(s.prices.group_by("item").table(**TABLE), as_of="count")
            ),
            TopologyError,
            "A join as of a time would count every update.*join before the aggregate",
        ),
        (
            lambda s: s.orders.join(s.prices.group_by("item").table(**TABLE), "item", late=3),
            TopologyError,
            "'late' is for the join of two streams, or as_of= a time",
        ),
    ],
)
def test_wrong_joins_are_refused(assemble: Any, error: type[Exception], message: str) -> None:
    topology = Topology("orders")
    streams = Streams(*(source(topology, kind, []) for kind in (Order, Price)))
    with pytest.raises(error, match=message.replace("(", r"\(").replace(")", r"\)")):
        assemble(streams)
