"""Joins of two streams: their pairs, late records, and wrong declarations."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from itertools import permutations
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sunshower import Context, Records, Retry, Spout, Topology, count, run_inline, tumbling
from sunshower.clock import ManualClock
from sunshower.errors import RecordMismatch, TopologyError, UnknownField
from sunshower.state import SqliteState
from sunshower.topologies.streams import Stream
from tests.topologies.operators.kinds import Kept


class Order(NamedTuple):
    order: str
    at: float
    item: str


class Payment(NamedTuple):
    paid: str
    on: float
    cents: int


class Paid(NamedTuple):
    order: str
    at: float | None
    item: str | None
    on: float | None
    cents: int | None


R = TypeVar("R")
WITHIN: dict[str, Any] = {"other_on": "paid", "field": "at", "other_field": "on", "within": 10}


class Slow(Spout[Any]):
    """Emits one record a second, from `begin_s` after its start."""

    def __init__(self, records: Sequence[Any], begin_s: float = 0.0) -> None:
        self.all, self.begin_s = records, begin_s

    def open(self, context: Context) -> None:
        self.clock = context.clock

    def records(self) -> Iterator[Any]:
        begun_s = self.clock.now() + self.begin_s
        for number, record in enumerate(self.all):
            while self.clock.now() < begun_s + number:
                yield None
            yield record


def source(topology: Topology, kind: type[R], records: Sequence[R] | Spout[Any]) -> Stream[R]:
    spout = records if isinstance(records, Spout) else Records(records)
    return topology.spout(kind.__name__.lower() + "s", spout, fields=kind)


def run_join(
    left: Sequence[Order] | Spout[Any], right: Sequence[Payment] | Spout[Any], **more: Any
) -> tuple[list[Any], list[Any]]:
    """Run a join. Return its records and the late records, both sorted by their repr."""
    topology = Topology("orders")
    orders, payments = source(topology, Order, left), source(topology, Payment, right)
    joined = orders.join(payments, "order", **(WITHIN | more))
    joined.shuffle().bolt("kept", Kept)
    joined.late.shuffle().bolt("late", Kept)
    results = run_inline(topology.graph(), clock=ManualClock()).results
    return sorted(results["kept"][0], key=repr), sorted(results["late"][0], key=repr)


def model(left: Sequence[Order], right: Sequence[Payment], how: str, within: float) -> list[Any]:
    """Return the records of the join as a plain program computes them, if none is late."""
    pairs = [(o, p) for o in left for p in right if o[0] == p[0] and abs(o[1] - p[1]) <= within]
    rows = [(*o, *p[1:]) for o, p in pairs]
    if how != "inner":
        rows += [(*o, None, None) for o in left if all(paired is not o for paired, _ in pairs)]
    if how == "outer":
        paid = [id(p) for _, p in pairs]
        rows += [(p[0], None, None, *p[1:]) for p in right if id(p) not in paid]
    return sorted(rows, key=repr)


KEYS, TIMES = st.sampled_from("ab"), st.integers(-30, 30).map(lambda n: n / 4)
ORDERS = st.lists(st.builds(Order, KEYS, TIMES, st.sampled_from("xy")), max_size=25)
PAYMENTS = st.lists(st.builds(Payment, KEYS, TIMES, st.integers(1, 3)), max_size=25)


@given(
    ORDERS,
    PAYMENTS,
    st.sampled_from(["inner", "left", "outer"]),
    st.sampled_from([0, 0.1, 0.25, 1, 3, 100]),
    st.sampled_from([1, 2]),
)
def test_a_join_has_the_pairs_of_a_plain_program(
    left: list[Order], right: list[Payment], how: Any, within: float, tasks: int
) -> None:
    rows, late = run_join(left, right, how=how, within=within, late=100, parallelism=tasks)
    assert rows == model(left, right, how, within)
    assert late == []


def test_times_may_be_datetimes_and_the_bounds_are_included() -> None:
    class Sent(NamedTuple):
        order: int
        at: datetime

    def at(second: int) -> Sent:
        return Sent(1, datetime.fromtimestamp(second, UTC))

    topology = Topology("orders")
    left = topology.spout("left", Records([at(0), at(100)], type=Sent))
    right = topology.spout("right", Records([at(10), at(89), at(111)], type=Sent))
    joined = left.join(right, "order", within=10, field="at", fields=("order", "first", "second"))
    joined.shuffle().bolt("kept", Kept)
    (rows,) = run_inline(topology.graph(), clock=ManualClock()).results["kept"]
    assert rows == [(1, at(0).at, at(10).at)]


def test_a_pair_is_emitted_at_once_and_a_record_without_a_partner_with_the_watermark() -> None:
    """The run takes 35 s, and the records of the join are emitted earlier."""
    seen: list[tuple[float, Any]] = []

    class Timed(Kept):
        def prepare(self, context: Context) -> None:
            super().prepare(context)
            self.clock, self.begun_s = context.clock, context.clock.now()

        def process(self, record: Any) -> None:
            seen.append((self.clock.now() - self.begun_s, record))

    orders = [Order("a", 0, "x"), Order("b", 1, "y"), *(Order("c", n, "z") for n in range(2, 35))]
    payments = [Payment("a", 3, 5), *(Payment("d", n, 1) for n in range(4, 35))]
    topology = Topology("orders")
    left, right = (
        source(topology, Order, Slow(orders)),
        source(topology, Payment, Slow(payments, 1.0)),
    )
    left.join(right, "order", **WITHIN, how="left").shuffle().bolt("timed", Timed)
    run_inline(topology.graph(), clock=ManualClock())
    (paid_s, paid), (alone_s, alone) = seen[:2]
    assert (paid, alone) == (("a", 0, "x", 3, 5), ("b", 1, "y", None, None))
    assert 1 <= paid_s < 2
    assert 11 <= alone_s < 25  # the bucket of 0 to 10 ends when the watermark has passed 20
    assert len(seen) == 2 + 33


def test_a_record_behind_the_watermark_is_late() -> None:
    orders = [Order("a", 0, "x"), Order("a", 50, "x"), Order("a", 39, "late"), Order("a", 40, "y")]
    payments = [Payment("a", 50, 1), Payment("a", 61, 2)]
    rows, late = run_join(Slow(orders), Slow(payments, 1.5), how="outer", late=10)
    assert late == [("a", 39, "late", None, None)]
    assert rows == model([o for o in orders if o.item != "late"], payments, "outer", 10)


def test_a_stream_is_joined_with_itself_and_with_a_branch_of_its_stage() -> None:
    orders = [Order("a", 0, "x"), Order("a", 1, "y"), Order("b", 1, "x")]
    topology = Topology("orders")
    stream = source(topology, Order, orders).filter(lambda order: order.item < "z")
    names = ("order", "at", "item", "other_at", "other_item")
    pairs = stream.join(stream, "order", field="at", within=0, fields=names)
    pairs.shuffle().bolt("kept", Kept)
    (rows,) = run_inline(topology.graph(), clock=ManualClock()).results["kept"]
    assert sorted(rows) == [(*o, *o[1:]) for o in orders]


def test_operators_after_a_join_receive_records_with_and_without_a_partner() -> None:
    topology = Topology("orders")
    orders = source(topology, Order, [Order("a", 0, "x"), Order("b", 1, "y")])
    payments = source(topology, Payment, [Payment("a", 3, 5)])
    paid = orders.join(payments, "order", **WITHIN, how="left", fields=Paid)
    paid.map(lambda pair: (pair.order, pair.cents), fields=("order", "cents")).group_by(
        "order"
    ).aggregate(count(), name="totals")
    results = run_inline(topology.graph(), clock=ManualClock()).results
    assert results["totals"] == [{"a": 1, "b": 1}]


def test_an_invalid_event_time_fails_its_record_alone() -> None:
    dead: list[Any] = []

    class Letters(Kept):
        def process(self, record: Any) -> None:
            dead.append(record)

    topology = Topology("orders")
    bad: list[Order] = [Order("a", "now", "x"), Order("a", 1, "y")]  # type: ignore[arg-type]
    orders = topology.spout(
        "orders", Records(bad, type=Order), retry=Retry(attempts=1, dead_letters=True)
    )
    payments = source(topology, Payment, [Payment("a", 3, 5)])
    orders.join(payments, "order", **WITHIN).shuffle().bolt("kept", Kept)
    orders.stream("dead_letters").shuffle().bolt("letters", Letters)
    (rows,) = run_inline(topology.graph(), clock=ManualClock()).results["kept"]
    assert rows == [("a", 1, "y", 3, 5)]
    assert "'now' is no event time" in str(dead)


class Place(NamedTuple):
    shop: str
    shelf: int


class Sold(NamedTuple):
    place: Place
    at: float


class Filled(NamedTuple):
    place: Place
    on: float


class Both(NamedTuple):
    place: Place
    at: float | None
    on: float | None


def test_a_key_that_is_a_record_is_emitted_as_this_record(tmp_path: Path) -> None:
    first, second, third = (Place("a", shelf) for shelf in range(3))
    topology = Topology("places")
    sold = source(topology, Sold, [Sold(first, 1), Sold(second, 2)])
    filled = source(topology, Filled, [Filled(first, 3), Filled(third, 4)])
    state = SqliteState(tmp_path / "places.db")
    times: dict[str, Any] = {"field": "at", "other_field": "on", "within": 10}
    both = sold.join(filled, "place", **times, how="outer", fields=Both, state=state)
    both.map(place_of).shuffle().bolt("kept", Kept)
    (rows,) = run_inline(topology.graph(), clock=ManualClock()).results["kept"]
    assert sorted(rows) == [("a", 0), ("a", 1), ("a", 2)]


def place_of(both: Both) -> Place:
    return Place(both.place.shop, both.place.shelf)


@pytest.mark.parametrize("how", ["left", "outer", "semi", "anti"])
@pytest.mark.parametrize("keys", [*permutations((1, True, 1.0, Decimal(1)))])
def test_each_record_has_the_key_that_it_came_with(how: Any, keys: Sequence[Any]) -> None:
    """Equal keys of several types are one key of the join."""
    topology = Topology("orders")
    orders = source(topology, Order, [Order(key, n, "x") for n, key in enumerate(keys)])
    one: Any = 1
    paid = [Payment("1", 0, 5)] + [Payment(one, n, 5) for n in range(4) if how == "semi"]
    payments = source(topology, Payment, paid)
    joined = orders.join(payments, "order", **{**WITHIN, "within": 0, "late": 9}, how=how)
    joined.shuffle().bolt("kept", Kept)
    (rows,) = run_inline(topology.graph(), clock=ManualClock()).results["kept"]
    of_orders = {row[1]: repr(row[0]) for row in rows if row[1] is not None}
    assert of_orders == dict(enumerate(map(repr, keys)))


# ---- semi and anti joins, and joins without a limit ---------------------------------------------


@pytest.mark.parametrize(("how", "expected"), [("semi", ["x"]), ("anti", ["y", "z"])])
def test_a_semi_or_an_anti_join_emits_records_of_its_stream_as_they_are(
    how: Any, expected: list[str]
) -> None:
    topology = Topology("orders")
    items = [Order("a", 0, "x"), Order("b", 1, "y"), Order("a", 20, "z")]
    orders = source(topology, Order, items)
    payments = source(topology, Payment, [Payment("a", 3, 5), Payment("a", 4, 5)])
    joined = orders.join(payments, "order", **WITHIN, how=how)
    joined.filter(lambda order: type(order) is Order).shuffle().bolt("kept", Kept)
    (rows,) = run_inline(topology.graph(), clock=ManualClock()).results["kept"]
    assert sorted(order[2] for order in rows) == expected


class Timed(Kept):
    """Keeps when its records come, too."""

    def prepare(self, context: Context) -> None:
        super().prepare(context)
        self.clock, self.begun_s = context.clock, context.clock.now()

    def process(self, record: Any) -> None:
        super().process((round(self.clock.now() - self.begun_s), record[0]))


def test_keep_s_is_how_long_records_wait_by_the_clock() -> None:
    orders = [Order(name, 0, "x") for name in "abcdef"]
    payments = [Payment(name, 0, 5) for name in "abcdef"]
    topology = Topology("orders")
    left = source(topology, Order, orders)
    right = source(topology, Payment, Slow(payments, 1.0))
    left.join(right, "order", other_on="paid", keep_s=4.5).shuffle().bolt("timed", Timed)
    (rows,) = run_inline(topology.graph(), clock=ManualClock()).results["timed"]
    assert rows == [(1, "a"), (2, "b"), (3, "c"), (4, "d")]


@pytest.mark.parametrize("state", [None, "orders.db"])
def test_a_join_without_a_limit_continues_in_the_next_run(
    state: str | None, tmp_path: Path
) -> None:
    def run(left: list[Order], right: list[Payment], how: Any) -> list[Any]:
        topology = Topology("orders")
        stored = SqliteState(tmp_path / f"{how}-{state}") if state else None
        orders, payments = source(topology, Order, left), source(topology, Payment, right)
        joined = orders.join(payments, "order", other_on="paid", keep_s=None, how=how, state=stored)
        joined.shuffle().bolt("kept", Kept)
        (rows,) = run_inline(topology.graph(), clock=ManualClock()).results["kept"]
        return sorted(rows)

    for how in ("inner", "semi"):
        assert run([Order("a", 0, "x"), Order("b", 0, "y")], [Payment("b", 9, 1)], how)
        records = run([Order("b", 0, "z")], [Payment("a", 9, 2)], how)
        assert [record[2] for record in records] == (["x", "z"] if state else [])


@pytest.mark.parametrize(
    ("interval", "message"),
    [
        ((1, 9), "before the record's own event time"),
        ((6, 5.5), "partners end at 5.5, before they begin, at 6"),
        (5, "returned 5; it returns"),
        ((5, None), "returned (5, None): field 'at': None is no event time"),
    ],
)
def test_a_wrong_interval_fails_its_record_alone(interval: Any, message: str) -> None:
    topology = Topology("orders")
    retry = Retry(attempts=1, dead_letters=True)
    items = [Order("a", 5, "x"), Order("a", 1, "y")]
    orders = topology.spout("orders", Records(items, type=Order), retry=retry)
    payments = source(topology, Payment, [Payment("a", 3, 5)])
    settings: Any = WITHIN | {"within": lambda order: interval if order.at == 5 else (1, 9)}
    orders.join(payments, "order", late=9, **settings).shuffle().bolt("kept", Kept)
    orders.stream("dead_letters").shuffle().bolt("letters", Kept)
    results = run_inline(topology.graph(), clock=ManualClock()).results
    assert results["kept"] == [[("a", 1, "y", 3, 5)]]
    assert message in str(results["letters"])


def test_intervals_of_datetimes_far_apart_and_without_length() -> None:
    class Sale(NamedTuple):
        item: str
        at: datetime
        ends: datetime

    class Bid(NamedTuple):
        item: str
        at: datetime

    def day(number: float) -> datetime:
        return datetime.fromtimestamp(number * 86_400, UTC)

    topology = Topology("sales")
    ends = [1, 1.5, 300]
    sales = topology.spout(
        "sales", Records([Sale("a", day(1), day(end)) for end in ends], type=Sale)
    )
    bids = topology.spout(
        "bids", Records([Bid("a", day(n)) for n in (1, 1.25, 299, 301)], type=Bid)
    )
    joined = sales.join(
        bids,
        "item",
        within=lambda sale: (sale.at, sale.ends),
        field="at",
        late=1e9,
        how="left",
        fields=Offered,
    )
    joined.shuffle().bolt("kept", Kept)
    (offers,) = run_inline(topology.graph(), clock=ManualClock()).results["kept"]
    pairs = {(offer[2], offer[3]) for offer in offers}
    assert len(offers) == len(pairs) == 6
    assert pairs == {
        *((day(1), day(1)), (day(1.5), day(1)), (day(1.5), day(1.25))),
        *((day(300), day(n)) for n in (1, 1.25, 299)),
    }


class Offered(NamedTuple):
    item: str
    at: datetime
    ends: datetime
    bid_at: datetime | None


# ---- wrong declarations -------------------------------------------------------------------------


class Parcel(NamedTuple):
    number: int
    at: float


class Strict(NamedTuple):
    order: str
    at: float
    item: str
    on: float
    cents: int


class Streams(NamedTuple):
    orders: Stream[Order]
    payments: Stream[Payment]
    parcels: Stream[Parcel]


def paid_of(payment: Payment) -> Paid:
    return Paid(payment.paid, payment.on, None, payment.on, payment.cents)


def join(**changed: Any) -> Callable[[Streams], Any]:
    settings = {"on": "order"} | WITHIN | changed
    arguments = {name: value for name, value in settings.items() if value != "-"}
    return lambda s: s.orders.join(s.payments, **arguments)


def endless(**changed: Any) -> Callable[[Streams], Any]:
    return join(**dict.fromkeys(("field", "other_field", "within"), "-"), **changed)


SECOND = tumbling(seconds=1, field="at")


@pytest.mark.parametrize(
    ("assemble", "error", "message"),
    [
        (lambda s: s.orders.join("payments", "order"), TopologyError, "'payments' is no stream"),
        (join(within="-"), TopologyError, "give within="),
        (join(gap=1), TopologyError, "no setting 'gap'"),
        (join(on="nr"), UnknownField, "no field 'nr'"),
        (join(other_field="at"), UnknownField, "no field 'at'"),
        (join(within=-1), TopologyError, "within is -1"),
        (join(within=(1, -1)), TopologyError, "within is -1"),
        (join(within=lambda: (0, 1)), TopologyError, "must take exactly one record"),
        (
            join(within="-", field="-"),
            TopologyError,
            "give within=.*keep_s=None keeps each for ever",
        ),
        (join(field="-"), TopologyError, "give field="),
        (
            join(keep_s=None),
            TopologyError,
            "within= is for a join by event time, and keep_s= for one",
        ),
        (
            join(within="-", keep_s=None),
            TopologyError,
            "field= is for a join by event time, and keep_s= for one without a limit",
        ),
        (endless(keep_s=0), TopologyError, "keep_s is 0"),
        *(
            (
                endless(keep_s=9, how=how),
                TopologyError,
                f'how="{how}" emits a record without a partner .* give within= and field=, or how=',
            )
            for how in ("left", "outer", "anti")
        ),
        (join(how="semi", fields=Paid), TopologyError, "emits records of Order.* as they are"),
        (
            lambda s: endless(keep_s=None)(s).window(SECOND, count()),
            TopologyError,
            "window 'windows': it is downstream of join 'join'",
        ),
        (join(how="right"), TopologyError, '"inner", "left", "outer", "semi" or "anti"'),
        (join(state="db"), TopologyError, "'db' is not a state"),
        (
            lambda s: s.orders.join(s.parcels, "order", other_on="number", field="at", within=1),
            RecordMismatch,
            "Order.*order is str, and Parcel.*number is int: no value of one equals",
        ),
        (
            lambda s: s.orders.join(s.orders, "order", field="at", within=1),
            RecordMismatch,
            "two fields would have one name",
        ),
        (join(fields=Strict, how="left"), RecordMismatch, "Strict.on is float, and it is None"),
        (
            lambda s: s.orders.join(
                s.payments.map(paid_of), "order", field="at", within=1, fields=tuple("abcdefg")
            ),
            RecordMismatch,
            "the first called order",
        ),
        (
            lambda s: s.orders.join(
                s.payments.map(paid_of),
                "order",
                field="at",
                within=1,
                fields=("order", *"abcdef"),
            ),
            TopologyError,
            "join 'join': its event time is 'at', which stream 'default' of spout 'payments' does",
        ),
    ],
)
def test_wrong_joins_are_refused(assemble: Any, error: type[Exception], message: str) -> None:
    topology = Topology("orders")
    streams = Streams(*(source(topology, kind, []) for kind in (Order, Payment, Parcel)))

    def declared() -> None:
        assemble(streams)
        topology.graph()

    with pytest.raises(error, match=message):
        declared()
