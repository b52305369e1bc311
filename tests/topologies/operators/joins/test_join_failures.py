"""Joins whose downstream bolt fails, and joins that continue in a later run or another process."""

from __future__ import annotations

from collections import Counter
from enum import Enum
from typing import Any

import pytest

from sunshower import Context, Records, Retry, Topology, run_inline
from sunshower.clock import ManualClock
from sunshower.errors import TopologyFailed
from sunshower.state import MemoryState
from sunshower.topologies.operators.keyed.keyed_store import KeyedStore
from sunshower.topologies.operators.states import Spread
from tests.topologies.operators.joins.test_stream_joins import WITHIN, Order, Payment, Slow, source
from tests.topologies.operators.kinds import Kept


class Refuses(Kept):
    """Raises for the first `times` pairs with 13 cents."""

    def __init__(self, times: int) -> None:
        self.times = times

    def process(self, record: Any) -> None:
        if record[-1] == 13 and self.times:
            self.times -= 1
            raise ValueError("thirteen")
        super().process(record)


def test_a_pair_that_fails_is_a_dead_letter_of_its_second_record_alone() -> None:
    topology = Topology("orders")
    orders = source(topology, Order, [Order("a", 0, "x"), Order("b", 0, "y")])
    payments = topology.spout(
        "payments",
        Slow([Payment("a", 1, 5), Payment("a", 2, 13), Payment("b", 3, 5)], 1.0),
        fields=Payment,
        retry=Retry(attempts=2, dead_letters=True),
    )
    orders.join(payments, "order", **WITHIN).shuffle().bolt("kept", Refuses(99))
    payments.stream("dead_letters").shuffle().bolt("letters", Kept)
    done = run_inline(topology.graph(), clock=ManualClock())
    assert done.results["kept"] == [[("a", 0, "x", 1, 5), ("b", 0, "y", 3, 5)]]
    ((letter, *_),) = done.results["letters"]
    assert "13" in str(letter)
    assert done.snapshot.component("orders").failed == 0


class Shade(Enum):
    RED = 1


def test_a_record_that_cannot_be_stored_fails_alone() -> None:
    values: list[Any] = ["x", Shade.RED, "z"]
    topology = Topology("orders")
    orders = topology.spout(
        "orders",
        Records([(key, 0, value) for key, value in zip("abc", values, strict=True)]),
        fields=("order", "at", "item"),
        retry=Retry(attempts=1, dead_letters=True),
    )
    payments = source(topology, Payment, [Payment(key, 1, 5) for key in "abc"])
    orders.join(payments, "order", **WITHIN).shuffle().bolt("kept", Kept)
    orders.stream("dead_letters").shuffle().bolt("letters", Kept)
    done = run_inline(topology.graph(), clock=ManualClock())
    assert [row[0] for row in done.results["kept"][0]] == ["a", "c"]
    assert len(done.results["letters"][0]) == 1


def test_a_dictionary_may_be_the_key_of_records_without_a_partner() -> None:
    key: Any = {"shop": 1}
    topology = Topology("orders")
    orders = source(topology, Order, [Order(key, 0, "x")])
    payments = source(topology, Payment, [Payment("b", 1, 5)])
    joined = orders.join(payments, "order", how="left", **WITHIN)
    joined.shuffle().bolt("kept", Kept)
    done = run_inline(topology.graph(), clock=ManualClock())
    assert done.results["kept"] == [[(key, 0, "x", None, None)]]


def test_a_replayed_record_is_stored_and_joined_twice() -> None:
    """As docs/GUARANTEES.md describes it."""
    topology = Topology("orders")
    items = [Order("a", 0, "x"), Order("b", 0, "x"), Order("b", 0, "x"), Order("a", 2, "y")]
    orders = source(topology, Order, Slow(items))
    payments = source(topology, Payment, Slow([Payment("a", 0, 13), Payment("a", 1, 6)], 1.0))
    orders.join(payments, "order", **WITHIN).shuffle().bolt("kept", Refuses(1))
    (rows,) = run_inline(topology.graph(), clock=ManualClock()).results["kept"]
    assert Counter(rows) == {
        ("a", 0, "x", 0, 13): 1,
        ("a", 0, "x", 1, 6): 1,
        ("a", 2, "y", 0, 13): 2,
        ("a", 2, "y", 1, 6): 1,
    }


@pytest.mark.parametrize("form", ["bucket", "record"])
@pytest.mark.parametrize("how", ["inner", "outer"])
def test_records_that_an_earlier_release_has_stored_find_their_partners(
    form: str, how: Any
) -> None:
    """In buckets of `within`, whose records were one value, and later one each."""
    early, late = [0, [0, "x"], False], [12, [12, "y"], False]
    former: dict[Any, Any]
    if form == "bucket":
        former = {("bucket", "a", 0): [[early], []], ("bucket", "a", 1): [[late], []]}
    else:
        former = {("record", "a", 0, 0, 0): early, ("record", "a", 1, 0, 0): late}
    state = MemoryState()
    store = KeyedStore(state, "join", "here", spread=Spread.BY_GROUP)
    store.open(Context("orders", "join", 1, 0, 1, clock=ManualClock()))
    store.put_all(former, [*former])
    store.commit()
    topology = Topology("orders")
    orders = source(topology, Order, Slow([Order("b", 0, "z")]))
    payments = source(topology, Payment, Slow([Payment("a", 9, 1), Payment("a", 22, 2)]))
    orders.join(payments, "order", **WITHIN, how=how, state=state).shuffle().bolt("kept", Kept)
    (rows,) = run_inline(topology.graph(), clock=ManualClock()).results["kept"]
    alone = [("b", 0, "z", None, None)] if how == "outer" else []
    pairs = [("a", 0, "x", 9, 1), ("a", 12, "y", 9, 1), ("a", 12, "y", 22, 2)]
    assert sorted(rows) == sorted([*pairs, *alone])
    assert not [key for key, _ in state.items("join") if key[0] in ("bucket", "record", "waiting")]


def test_a_join_with_other_bounds_does_not_read_the_state_of_another_kind() -> None:
    state = MemoryState()

    def run(**bounds: Any) -> None:
        topology = Topology("orders")
        orders = source(topology, Order, [Order("a", 0, "x")])
        payments = source(topology, Payment, [])
        joined = orders.join(payments, "order", other_on="paid", state=state, **bounds)
        joined.shuffle().bolt("kept", Kept)
        run_inline(topology.graph(), clock=ManualClock())

    run(keep_s=None)
    with pytest.raises(TopologyFailed, match="was stored by a join with other bounds"):
        run(within=10, field="at", other_field="on")
