"""A state that a changed program declares otherwise is refused, and nothing of it changes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from sunshower import (
    CombinerAggregator,
    KeyList,
    KeyState,
    Records,
    Topology,
    average,
    count,
    count_distinct,
    first,
    last,
    max_,
    min_,
    reduce,
    run_inline,
    sessions,
    sliding,
    sum_,
    top,
    tumbling,
)
from sunshower.clock import ManualClock
from sunshower.errors import StateMismatch, TopologyFailed
from sunshower.state import MemoryState
from sunshower.topologies.graph import Graph
from sunshower.topologies.operators.state_shapes import StateShape, states_of
from sunshower.topologies.operators.state_slot import held_states
from sunshower.trident import FixedBatchSpout, InMemory, InSqlite, batches
from sunshower.trident.states.stored_states import StateImport, states_of_program


class Sale(NamedTuple):
    shop: str
    item: str
    cents: int
    at: int
    until: int = 0


SALES = [Sale("abc"[n % 3], "xy"[n % 2], n, n) for n in range(30)]


class Own(CombinerAggregator[Sale, int]):
    def init(self, record: Sale) -> int:
        return record.cents

    def combine(self, first: int, second: int) -> int:
        return first + second

    def zero(self) -> int:
        return 0


def is_cheap(sale: Sale) -> bool:
    return sale.cents < 9


def plus(value: int, sale: Sale) -> int:
    return value + sale.cents


def keep(sale: Sale, state: KeyState[int]) -> None:
    state.value = sale.cents


def keep_more(sale: Sale, state: KeyState[int]) -> None:
    state.value = (state.value or 0) + sale.cents


Declare = Callable[[Any, dict[str, Any]], Any]


def totals(*aggregators: Any, by: tuple[str, ...] = ("shop",)) -> Declare:
    return lambda sales, state: sales.group_by(*by).aggregate(*aggregators, **state)


def window(window: Any, *aggregators: Any, by: tuple[str, ...] = ("shop",)) -> Declare:
    return lambda sales, state: sales.group_by(*by).window(
        window, *(aggregators or (count(),)), **state
    )


def process(function: Any = keep, by: str = "shop") -> Declare:
    return lambda sales, state: sales.group_by(by).process(function, **state)


def table(by: str = "shop", **settings: Any) -> Declare:
    return lambda sales, state: sales.group_by(by).table(**state, **settings)


def join(left: str, right: str) -> Declare:
    names = ["shop", "at", "left", "at_right", "right"]
    settings: Any = {"within": 2, "field": "at", "fields": names}
    return lambda sales, state: sales.project("shop", "at", left).join(
        sales.project("shop", "at", right), "shop", **settings, **state
    )


def half(*right: str) -> Declare:
    """A semi join, which stores no values of its right side."""
    settings: Any = {"how": "semi", "within": 2, "field": "at"}
    return lambda sales, state: sales.project("shop", "at", "cents").join(
        sales.project("shop", "at", *right), "shop", **settings, **state
    )


def kept_state(graph: Graph) -> StateShape:
    (shape,) = (states["kept"] for bolt in graph.bolts if "kept" in (states := states_of(bolt)))
    return shape


def leave_out(sale: Any, state: KeyState[int]) -> Sequence[Any]:
    return ()


def in_order(sales: Any, state: dict[str, Any]) -> Any:
    return sales.group_by("shop").in_order("at").process(leave_out, fields=["shop"], **state)


def of_tuples(declare: Declare, *order: str) -> Declare:
    return lambda sales, state: declare(sales.project("shop", "at", *order), state)


def minutes(seconds: float = 10, **settings: Any) -> Any:
    return tumbling(**{"seconds": seconds, "field": "at", "at_end": "keep", **settings})


class Life:
    """Runs programs one after the other, with the same stores."""

    def __init__(self, *, of_batches: bool) -> None:
        self.state = MemoryState(name="sales")
        self.store: Any = InMemory()
        self.of_batches = of_batches

    def graph(self, declare: Declare, tasks: int = 1) -> Any:
        topology = Topology("shop")
        if self.of_batches:
            spout = FixedBatchSpout(SALES, 10, type=Sale)
            stream: Any = batches(topology, "sales", spout, store=self.store)
        else:
            stream = topology.spout("sales", Records(SALES, type=Sale))
        declare(stream, {"name": "kept", "state": self.state, "parallelism": tasks})
        return topology.graph()

    def run(self, declare: Declare, tasks: int = 1) -> None:
        run_inline(self.graph(declare, tasks), clock=ManualClock())

    def content(self) -> Any:
        return {home: dict(values) for home, values in self.state.shelf.values.items()}


@pytest.mark.parametrize("of_batches", [False, True])
@pytest.mark.parametrize("tasks", [1, 2])
@pytest.mark.parametrize(
    ("before", "after"),
    [
        (totals(count()), totals(sum_("cents"))),
        (totals(sum_("cents")), totals(sum_("at"))),
        (totals(max_("cents")), totals(min_("cents"))),
        (totals(count(), sum_("cents")), totals(sum_("cents"), count())),
        (totals(count()), totals(count(where=is_cheap))),
        (totals(average("cents")), totals(count())),
        (totals(top(3, by="cents")), totals(top(2, by="cents"))),
        (totals(first("cents", by="at")), totals(last("cents", by="at"))),
        (totals(count_distinct("item")), totals(count_distinct("item", "at"))),
        (totals(Own()), totals(reduce(plus, 0))),
        (totals(count()), totals(count(), by=("item",))),
        (totals(count()), totals(count(), by=("shop", "item"))),
        (window(minutes()), window(minutes(7))),
        (window(minutes()), window(minutes(field="until"))),
        (window(minutes()), window(minutes(), sum_("cents"))),
        (window(minutes()), window(minutes(), by=("item",))),
        (window(minutes()), window(minutes(offset=1))),
        (window(minutes()), window(sliding(seconds=10, every=5, field="at", at_end="keep"))),
        (window(minutes()), window(sessions(gap=2, field="at"))),
        (window(tumbling(count=4)), window(tumbling(count=8))),
        (process(), process(by="item")),
        (process(), window(minutes())),
        (totals(count()), process()),
        (table(), table("item")),
        (table(), table(broadcast=True)),
        (join("item", "cents"), join("cents", "item")),
        *(
            (of_tuples(declare, "item", "cents"), of_tuples(declare, "cents", "item"))
            for declare in (
                totals(top(3, by="at")),
                window(minutes(), reduce(lambda value, _: value, 0)),
                table(),
                in_order,
            )
        ),
    ],
)
def test_what_is_stored_is_not_taken_for_something_else(
    before: Declare, after: Declare, tasks: int, of_batches: bool
) -> None:
    life = Life(of_batches=of_batches)
    former, later = (kept_state(life.graph(declare)) for declare in (before, after))
    assert former.differences(later)  # so an upgrade is refused, too
    life.run(before)
    content = life.content()
    with pytest.raises((TopologyFailed, StateMismatch)) as raised:
        life.run(after, tasks)
    assert "was written with values" in str(raised.value)
    assert "give the state another name" in str(raised.value)
    assert life.content() == content
    life.run(before)


@pytest.mark.parametrize("of_batches", [False, True])
@pytest.mark.parametrize("tasks", [1, 2])
@pytest.mark.parametrize(
    ("before", "after"),
    [
        (totals(count()), totals(count(name="sales"))),
        (totals(sum_("cents", name="a")), totals(sum_("cents", name="b"))),
        (totals(count(where=is_cheap)), totals(count(where=lambda sale: sale.cents > 3))),
        (totals(reduce(plus, 0)), totals(reduce(lambda value, _: value + 1, 5, "sold"))),
        (totals(top(3, by="cents")), totals(top(3, by="cents", name="best"))),
        (window(minutes()), window(minutes(10.0, late=5, zone="UTC", ahead=None))),
        (window(sessions(gap=2, field="at")), window(sessions(gap=2.0, field="at", late=3))),
        (process(), process(keep_more)),
        (totals(reduce(plus, 0)), totals(reduce(plus, 0, where=is_cheap))),
        (half("item"), half("item", "cents")),
    ],
)
def test_what_may_change_continues(
    before: Declare, after: Declare, tasks: int, of_batches: bool
) -> None:
    life = Life(of_batches=of_batches)
    life.run(before)
    life.run(after, tasks)


def test_a_state_without_a_description_gets_one_with_its_next_write() -> None:
    """As one that an earlier release has written."""
    life = Life(of_batches=False)
    graph = life.graph(totals(count()))
    for held in held_states(graph.components["kept"]):
        held.slot.values = ""
    run_inline(graph, clock=ManualClock())
    life.run(totals(count()))
    with pytest.raises(TopologyFailed, match="'totals: count by shop', and this is"):
        life.run(totals(sum_("cents")))


@pytest.mark.parametrize("of_batches", [False, True])
def test_an_import_keeps_the_description(of_batches: bool) -> None:
    life = Life(of_batches=of_batches)
    for declare, says in [(totals(count()), ""), (totals(sum_("cents")), "written with values")]:
        (stored,) = states_of_program(life.graph(declare))
        target = StateImport("shop", stored, "sales.jsonl", 1)
        target.add("a", 7)
        if not says:
            target.write()
        else:
            with pytest.raises(StateMismatch, match=says):
                target.write()
    assert dict(stored.items()) == {"a": 7}


class Visit(NamedTuple):
    number: int


def in_a_list(sale: Sale, state: KeyList[Visit]) -> None:
    state.append(Visit(sale.cents))


def visit(sale: Sale, state: KeyState[Visit]) -> None:
    state.value = Visit(sale.cents)


@pytest.mark.parametrize("of_batches", [False, True])
@pytest.mark.parametrize("ttl_s", [None, 3600])
@pytest.mark.parametrize(
    ("function", "content"),
    [(visit, {"number": 27}), (in_a_list, [{"number": n} for n in range(0, 30, 3)])],
)
def test_both_kinds_of_stream_show_records_without_classes_as_fields(
    function: Any, content: Any, ttl_s: float | None, of_batches: bool
) -> None:
    life = Life(of_batches=of_batches)
    settings = {} if ttl_s is None else {"ttl_s": ttl_s}
    life.run(lambda sales, state: process(function)(sales, {**state, **settings}))
    assert dict(life.state.items())["a"] == content
    (_, *others) = states_of_program(
        life.graph(
            lambda sales, state: process()(
                sales, {**state, "state": MemoryState(name="other", shelf=life.state.shelf)}
            )
        )
    )
    assert [(other.name, other.get("a")) for other in others] == [("sales", content)]


def test_a_list_that_is_read_as_one_value_says_what_it_is() -> None:
    life = Life(of_batches=False)
    life.run(process(in_a_list))
    with pytest.raises(TopologyFailed, match="annotate KeyList, or give the state another name="):
        life.run(process(visit))


def test_a_state_that_is_behind_names_the_file_of_the_batches(tmp_path: Path) -> None:
    life = Life(of_batches=True)
    life.store = InSqlite(tmp_path / "progress.db")
    life.run(totals(count()))
    life.state = MemoryState(name="sales")
    with pytest.raises(TopologyFailed, match=r"store of the batches \(.*progress\.db\) says"):
        life.run(totals(count()))


@pytest.mark.parametrize(
    ("declare", "text"),
    [
        (totals(count()), "totals: count by shop"),
        (
            totals(count(where=is_cheap), sum_("cents")),
            "totals: count where, sum_(field=cents) by shop",
        ),
        (totals(reduce(plus, 0, where=is_cheap)), "totals: reduce by shop"),
        (
            totals(top(3, by="cents")),
            "totals: top(n=3, by=cents, rows=(shop+item+cents+at+until)) by shop",
        ),
        (window(minutes()), "window(seconds=10, at): count by shop"),
        (window(sessions(gap=2, field="at")), "sessions(gap=2, at): count by shop"),
        (process(), "process by shop"),
        (table(), "table by shop"),
        (half("item"), "join (at+cents) by shop"),
    ],
)
def test_the_descriptions_that_stores_have(declare: Declare, text: str) -> None:
    """A description that changes refuses each state that has it."""
    graph = Life(of_batches=False).graph(declare)
    (held,) = held_states(graph.components["kept"])
    assert held.slot.values == text
