"""`stream.show()`: the first records of streams of both kinds, without any trace of it."""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sunshower import (
    Bolt,
    Context,
    KafkaSpout,
    KeyState,
    MemoryState,
    Records,
    Retry,
    Spout,
    SpoutCollector,
    SqliteState,
    Topology,
    Unavailable,
    batches,
    count,
    sessions,
    sum_,
    testing,
    tumbling,
)
from sunshower.connectors import FollowedFiles, ObjectFiles, PartitionedFiles
from sunshower.errors import DuplicateComponent, TopologyError, TopologyFailed
from sunshower.kafka import KafkaMessages, KafkaOptions, StartPosition
from sunshower.spark_integration import SparkBatchBolt, spark, table
from sunshower.trident import FixedBatchSpout, InMemory, InSqlite


class Order(NamedTuple):
    item: str
    amount: int
    at: int


class Price(NamedTuple):
    item: str
    price: int


ORDERS = [Order("abc"[n % 3], n % 7, n) for n in range(40)]
PRICES = [Price("a", 1), Price("b", 2)]


def doubled(order: Order) -> Order:
    return order._replace(amount=2 * order.amount)


def is_even(order: Order) -> bool:
    return order.amount % 2 == 0


def twice(order: Order) -> Iterator[Order]:
    yield order
    yield order._replace(at=order.at + 1)


def running(order: Order, state: KeyState[int]) -> Iterator[Order]:
    state.value = (state.value or 0) + order.amount
    yield order  # the sum depends on the order in which records come


STEPS: dict[str, Callable[[Any], Any]] = {
    "map": lambda orders: orders.map(doubled),
    "filter": lambda orders: orders.filter(is_even),
    "flat_map": lambda orders: orders.flat_map(twice),
    "merge": lambda orders: orders.filter(is_even).merge(orders.map(doubled)),
    "branch": lambda orders: orders.branch(is_even)[1],
}


def nothing(_: Any) -> None: ...


ENDS: dict[str, Callable[[Any, dict[str, Any]], Any]] = {
    "none": lambda orders, _: orders,
    "window": lambda orders, state: orders.group_by("item").window(
        tumbling(seconds=10, field="at"), count(), sum_("amount"), **state
    ),
    "sessions": lambda orders, state: orders.group_by("item").window(
        sessions(gap=2, field="at"), count(), **state
    ),
    "process": lambda orders, state: orders.group_by("item").process(running, **state),
}


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.lists(st.sampled_from([*STEPS]), max_size=3),
    st.sampled_from([*ENDS]),
    st.booleans(),
    st.booleans(),
)
def test_what_is_shown_is_what_a_run_emits_and_nothing_is_stored(
    tmp_path: Path, steps: list[str], end: str, in_batches: bool, has_sink: bool
) -> None:
    (tmp_path / "states.db").unlink(missing_ok=True)
    shop = Topology("shop")
    if in_batches:
        source = FixedBatchSpout(ORDERS, 10, type=Order)
        orders: Any = batches(shop, "orders", source, store=_refused)
    else:
        orders = shop.spout("orders", Records(ORDERS, type=Order))
    for step in steps:
        orders = STEPS[step](orders)
    state = {"state": SqliteState(tmp_path / "states.db"), "name": "kept"}
    rows = ENDS[end](orders, state)
    if has_sink and not in_batches:
        rows.shuffle().bolt("sink", _refused)
    shown = rows.show(1_000, within_s=60.0)
    assert shown.note == f"{len(shown)} records, and there are no more"
    assert not (tmp_path / "states.db").exists()
    (tmp_path / "states.db").unlink(missing_ok=True)
    emitted = _run(end, steps)
    assert Counter(map(tuple, shown.records)) == Counter(map(tuple, emitted))


def _run(end: str, steps: list[str]) -> list[Any]:
    """What an ordinary stream emits in a run."""
    shop = Topology("shop")
    orders: Any = shop.spout("orders", Records(ORDERS, type=Order))
    for step in steps:
        orders = STEPS[step](orders)
    rows = ENDS[end](orders, {})
    rows.shuffle().bolt("sink", nothing)
    return testing.run(shop).emitted(rows.component, rows.id)


def _refused(*_: Any) -> None:
    raise AssertionError("a preview must not do this")


def test_a_table_that_orders_are_joined_with_is_read_before_them() -> None:
    shop = Topology("shop")
    prices = shop.spout("prices", Records(PRICES, type=Price)).group_by("item").table()
    orders = shop.spout("orders", Records(ORDERS[:4], type=Order))
    joined = orders.join(prices, "item")
    assert [(row[0], row[-1]) for row in joined.show().records] == [("a", 1), ("b", 2), ("a", 1)]


@pytest.mark.parametrize("in_batches", [False, True])
def test_a_table_says_that_streams_are_shown(in_batches: bool) -> None:
    shop = Topology("shop")
    if in_batches:
        source = FixedBatchSpout(PRICES, 1, type=Price)
        prices: Any = batches(shop, "prices", source, store=InMemory()).group_by("item")
        table = prices.table(state=MemoryState())
    else:
        table = shop.spout("prices", Records(PRICES, type=Price)).group_by("item").table()
    with pytest.raises(TopologyError, match=r"table of its latest .*other.join\(table\).show\(…\)"):
        table.show()
    assert not hasattr(table, "unknown")


def test_the_first_records_of_an_endless_source_end_the_run() -> None:
    class Endless(Spout[Order]):
        def records(self) -> Iterator[Order]:
            yield from iter(lambda: ORDERS[5], None)

    shop = Topology("shop")
    shown = shop.spout("orders", Endless()).map(doubled).show(3, within_s=60.0)
    assert shown.records == [doubled(ORDERS[5])] * 3
    assert repr(shown) == "item  amount  at\n" + "c     10      5\n" * 3 + "(the first 3)"


def test_a_followed_folder_is_read_from_its_start_without_storing_a_position(
    tmp_path: Path,
) -> None:
    (tmp_path / "orders.csv").write_text("item,amount,at\na,1,2\nb,3,4\n")
    shop = Topology("shop")
    files = FollowedFiles(f"{tmp_path}/*.csv", type=Order, positions=InSqlite(tmp_path / "p.db"))
    orders = shop.spout("orders", files)
    before = sorted(tmp_path.iterdir())
    assert orders.show(2).records == orders.show(2).records == [Order("a", 1, 2), Order("b", 3, 4)]
    assert sorted(tmp_path.iterdir()) == before


def test_a_source_that_cannot_be_read_beside_a_run_is_refused() -> None:
    shop = Topology("shop")
    options = KafkaOptions(first=StartPosition.LATEST)
    spout = KafkaSpout(
        {"bootstrap.servers": "none:9", "group.id": "readers"}, topics=["orders"], options=options
    )
    with pytest.raises(TopologyError, match="cannot be read beside a run"):
        shop.spout("orders", spout).show()


def test_requests_are_refused() -> None:
    shop = Topology("shop")
    asked = shop.requests("ask", Price).map(lambda price: (price.item,), fields=["item"])
    asked.answer()
    with pytest.raises(TopologyError, match=r"follow from requests 'ask'.*run_inline"):
        asked.show()


def test_declarations_go_on_after_a_preview_and_after_a_graph() -> None:
    shop = Topology("shop")
    orders = batches(shop, "orders", FixedBatchSpout(ORDERS, 10, type=Order), store=InMemory())
    assert len(orders.show(3)) == 3
    totals = orders.group_by("item").aggregate(count(), state=MemoryState(), name="totals")
    shop.graph()
    assert len(totals.show(2)) == 2
    assert "(totals" not in shop._repr_html_()
    assert "totals" in shop._repr_html_()


SETTINGS = {"bootstrap.servers": "none:9"}  # so an attempt to write would fail


def objects(rows: Any, folder: Path) -> Any:
    return rows.apply(ObjectFiles(folder / "out"))


def partitions(rows: Any, folder: Path) -> Any:
    window = tumbling(seconds=20, field="at")
    return rows.apply(PartitionedFiles(folder / "out", window, state=SqliteState(folder / "s.db")))


def messages(rows: Any, folder: Path) -> Any:
    state = SqliteState(folder / "s.db")
    return rows.apply(KafkaMessages(SETTINGS, "t", transactional_id="t", state=state, key="item"))


def spark_table(rows: Any, folder: Path) -> Any:
    return rows.apply(spark(_refused).write(table(folder / "out")))


def spark_function(rows: Any, folder: Path) -> Any:
    return rows.apply(spark(_refused).write(_refused))


def spark_bolt(rows: Any, folder: Path) -> Any:
    return rows.shuffle().bolt("sink", SparkBatchBolt(spark(_refused, out=Order).write(_refused)))


class Written(Bolt[Order, Order]):
    """A user's bolt that writes, and emits what it has written."""

    writes_outside = True
    process = _refused


def own_bolt(rows: Any, folder: Path) -> Any:
    return rows.shuffle().bolt("sink", Written())


@pytest.mark.parametrize(
    ("sink", "in_batches"),
    [
        *(
            (own_bolt, False),
            (objects, True),
            (partitions, True),
            (messages, True),
            (spark_table, True),
        ),
        *((spark_function, True), (spark_bolt, False), (partitions, False)),
    ],
)
def test_what_a_sink_returns_is_refused_and_what_is_before_it_is_shown(
    tmp_path: Path, sink: Callable[[Any, Path], Any], in_batches: bool
) -> None:
    shop = Topology("shop")
    if in_batches:
        source = FixedBatchSpout(ORDERS, 10, type=Order)
        orders: Any = batches(shop, "orders", source, store=InMemory())
    else:
        orders = shop.spout("orders", Records(ORDERS, type=Order))
    orders = orders.map(doubled)
    written = sink(orders, tmp_path)
    with pytest.raises(TopologyError, match="show the stream in front of the sink"):
        written.show()
    assert len(orders.show(40, within_s=60.0)) == 40
    assert list(tmp_path.iterdir()) == []


def test_steps_beside_the_shown_one_do_not_run() -> None:
    shop = Topology("shop")
    orders = shop.spout("orders", Records(ORDERS, type=Order)).map(doubled)
    orders.peek(_refused)
    assert len(orders.show(2)) == 2


def test_the_first_error_ends_it_with_the_lines_of_the_user_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def broken(order: Order) -> Order:
        return order._replace(item=order.item + order.amount)

    shop = Topology("shop")
    orders = shop.spout(
        "orders", Records(ORDERS, type=Order), retry=Retry(dead_letters="dead.jsonl")
    )
    with pytest.raises(TopologyFailed, match="fields `item`, `amount`") as caught:
        orders.map(broken).show()
    assert len(traceback.format_exception(caught.value)) <= 15
    assert len(caught.value._render_traceback_()) <= 15
    assert not caplog.records


class BadSource(Spout[Order]):
    """It raises in one of its methods, after a record in `records`."""

    def __init__(self, bad: str) -> None:
        self.bad = bad

    def open(self, context: Context) -> None:
        if self.bad == "open":
            raise ValueError("no")

    def records(self) -> Iterator[Order]:
        yield ORDERS[0]
        raise ValueError("no")


class BadNextTuple(Spout[Order]):
    def next_tuple(self, out: SpoutCollector[Order]) -> None:
        raise ValueError("no")


class BadBolt(Bolt[Order, Order]):
    def prepare(self, context: Context) -> None:
        raise ValueError("no")

    def process(self, record: Order) -> Iterator[Order]:
        yield record


@pytest.mark.parametrize("source", [BadSource("open"), BadSource("records"), BadNextTuple()])
def test_an_error_of_a_source_ends_it(source: Spout[Order]) -> None:
    with pytest.raises(TopologyFailed, match="raised ValueError: no"):
        Topology("shop").spout("orders", source).show(2, within_s=1e6)


class Tagged(Bolt[Order, Order]):
    operators = 2  # an attribute of the user's own

    def process(self, order: Order) -> Iterator[Order]:
        yield order


def test_a_bolt_may_have_an_attribute_that_stages_have_too() -> None:
    shop = Topology("shop")
    tagged = shop.spout("orders", Records(ORDERS, type=Order)).shuffle().bolt("tag", Tagged())
    assert tagged.show(3).records == ORDERS[:3]


def test_an_error_in_prepare_ends_it() -> None:
    orders = Topology("shop").spout("orders", Records(ORDERS, type=Order))
    with pytest.raises(TopologyFailed, match="raised ValueError: no"):
        orders.shuffle().bolt("checked", BadBolt()).show(within_s=1e6)


def test_an_error_after_the_first_records_is_not_of_them() -> None:
    orders = Topology("shop").spout("orders", BadSource("records"))
    assert orders.show(1, within_s=1e6).records == ORDERS[:1]


def test_an_outage_is_waited_for() -> None:
    tries = Counter[str]()

    class Away(Spout[Order]):
        def records(self) -> Iterator[Order]:
            tries["records"] += 1
            if tries["records"] < 3:
                raise Unavailable("away")
            yield from ORDERS

    assert len(Topology("shop").spout("orders", Away()).show(2, within_s=1e6)) == 2


def failing(_: Any) -> Order:
    raise ValueError("no")


def test_an_error_without_ackers_ends_it_too() -> None:
    shop = Topology("shop", ackers=0)
    orders = shop.spout("orders", Records(ORDERS, type=Order))
    with pytest.raises(TopologyFailed, match="ValueError: no"):
        orders.map(failing).show()


def test_an_error_of_a_record_without_message_id_ends_it_too() -> None:
    class Untracked(Spout[Order]):
        def next_tuple(self, out: SpoutCollector[Order]) -> None:
            out.emit(ORDERS[0])

    with pytest.raises(TopologyFailed, match="ValueError: no"):
        Topology("shop").spout("orders", Untracked()).map(failing).show()


@pytest.mark.parametrize("is_read", [False, True])
@pytest.mark.parametrize("letters", [True, "dead.jsonl"])
def test_dead_letters_are_shown_as_a_stream(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, letters: bool | str, is_read: bool
) -> None:
    def odd(order: Order) -> Order:
        if is_even(order):
            return order
        raise ValueError("odd")

    monkeypatch.chdir(tmp_path)
    shop = Topology("shop")
    retry = Retry(attempts=4, initial_s=50, max_s=50, dead_letters=letters)
    orders = shop.spout("orders", Records(ORDERS, type=Order), retry=retry)
    checked = orders.filter(lambda order: order.item == "a").shuffle().stage("check", 2).map(odd)
    if is_read:
        checked.shuffle().bolt("sink", _refused)
        prices = shop.spout("prices", Records(PRICES, type=Price), retry=retry)
        checked.join(prices.group_by("item").table(), "item")  # nobody reads it
        state = SqliteState(tmp_path / "states.db")
        checked.group_by("item").process(running, state=state, name="sums")
    failed = orders.stream("dead_letters")
    of_a = [order for order in ORDERS if order.item == "a"]
    wrong = [order.at for order in of_a if not is_even(order)]
    assert sorted(letter.record["at"] for letter in failed.show(99, within_s=60.0).records) == wrong
    ats = failed.map(lambda letter: (letter.record["at"],), fields=["at"])
    assert sorted(at for (at,) in ats.show(99, within_s=60.0).records) == wrong
    with pytest.raises(TopologyFailed, match="ValueError: no"):
        failed.map(failing).show()
    assert not any(tmp_path.iterdir())


def test_a_cell_that_runs_again_says_which_one_to_run_first() -> None:
    shop = Topology("shop")
    orders = shop.spout("orders", Records(ORDERS, type=Order))
    with pytest.raises(DuplicateComponent) as caught:
        shop.spout("orders", Records(ORDERS, type=Order))
    assert "run the cell of the Topology first" in caught.value._render_traceback_()[-1]
    orders.map(doubled)
    again = orders.map(doubled)
    assert again.show(1).records == [doubled(ORDERS[0])]
    assert again.map(doubled).show(1).records == [doubled(doubled(ORDERS[0]))]


@given(
    st.lists(st.text(max_size=200), max_size=40),
    st.recursive(st.none(), lambda earlier: st.tuples(earlier, st.booleans()), max_leaves=4),
)
def test_an_error_of_any_length_and_any_chain_has_fifteen_lines_in_a_notebook(
    lines: list[str], chain: Any
) -> None:
    def fail(chain: Any) -> None:
        try:
            if chain is not None:
                fail(chain[0])
        except ValueError as error:
            if chain[1]:
                raise TopologyFailed("\n".join(lines)) from error
        raise TopologyFailed("\n".join(lines))

    with pytest.raises(TopologyFailed) as caught:
        fail(chain)
    shown = caught.value._render_traceback_()
    assert len(shown) <= 15
    assert shown[0].startswith('File "') or shown[0].startswith("TopologyFailed")
