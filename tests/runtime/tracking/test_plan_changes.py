"""Changes of task counts: which tasks keep their ids, which tasks end, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sunshower import (
    Bolt,
    Collector,
    Counter,
    DirectStream,
    KeyState,
    KeyValueState,
    Number,
    Topology,
    Tuple,
)
from sunshower.errors import LifecycleError
from sunshower.runtime.control.placement import placed, replan, with_counts
from sunshower.runtime.control.plan_changes import ends_anew, leaving
from sunshower.runtime.plan import ACKER, Plan, make_plan
from sunshower.state import MemoryState


class Value(NamedTuple):
    value: int


def function(number: Number) -> Iterator[Value]:
    yield Value(number.value)


def counted(record: Value, state: KeyState[int]) -> None:
    state.value = (state.value or 0) + 1


class Held(Bolt[Any, None]):
    def process(self, record: Any) -> None: ...


class Portable(Held):
    def snapshot(self) -> None: ...

    def restore(self, state: None) -> None: ...


class Stored(Bolt[Value, None]):
    state: KeyValueState[int, int]

    def process(self, record: Value) -> None: ...


class Chooser(Bolt[Number, Number]):
    def execute(self, tuple: Tuple[Number], out: Collector[Any]) -> None: ...


class PortableChooser(Chooser):
    def snapshot(self) -> None: ...

    def restore(self, state: None) -> None: ...


def plan(**config: Any) -> Plan:
    topology = Topology("t", workers=2, **config)
    values = topology.spout("spout", Counter(9)).shuffle().bolt("function", function, 2)
    values.group_by("value").process(counted, state=MemoryState(), name="stored", parallelism=2)
    values.group_by("value").process(counted, name="memory", parallelism=2)
    values.fields("value").bolt("bolt", Stored, 2, state=MemoryState())
    values.shuffle().bolt("portable", Portable, 2)
    values.shuffle().bolt("held", Held, 2)
    return make_plan(topology.graph())


def ids(topology_plan: Plan) -> dict[tuple[str, int], int]:
    return {(task.component, task.index): task.id for task in topology_plan.tasks}


counts = st.dictionaries(
    st.sampled_from(["function", "stored", "portable", ACKER]), st.integers(1, 6)
)


PLAN = plan()


@given(st.lists(counts, min_size=1, max_size=4))
def test_a_task_keeps_its_id_and_no_id_is_used_twice(changes: list[dict[str, int]]) -> None:
    now, former = PLAN, set[int](ids(PLAN).values())
    for change in changes:
        then = with_counts(now, change, max(former))
        then = placed(then, replan(then, 3))
        wanted = {name: len(now.tasks_of(name)) for name in [*now.graph.components, ACKER]} | change
        assert {name: len(then.tasks_of(name)) for name in wanted} == wanted
        before, after = ids(now), ids(then)
        assert all(before[place] == id for place, id in after.items() if place in before)
        new = {id for place, id in after.items() if place not in before}
        assert not new & former
        former |= new
        for name in wanted:
            assert [task.index for task in then.tasks_of(name)] == [*range(wanted[name])]
        ended = {task.id for task in leaving(now, then)}
        changed = {name for name in wanted if len(now.tasks_of(name)) != wanted[name]} - {ACKER}
        assert {task.id for name in changed for task in now.tasks_of(name)} <= ended
        now = then


def test_the_same_numbers_change_nothing() -> None:
    now = plan()
    assert with_counts(now, {"function": 2, "spout": 1}) is now


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("spout", "own part of the source"),
        ("memory", "the state 'memory' of 'memory' is in memory"),
        ("held", "the object of 'held' may keep something in memory"),
        ("bolt", "its class may choose other keys for its state than those of the grouping"),
    ],
)
def test_changes_that_would_lose_a_state_or_a_position_are_refused_with_a_way_out(
    name: str, why: str
) -> None:
    with pytest.raises(LifecycleError, match=f"3 tasks of '{name}': .*{why}.* submit it"):
        with_counts(plan(), {"function": 4, name: 3})


def test_only_components_with_another_number_of_tasks_are_opened_again() -> None:
    now = plan()
    then = with_counts(now, {"portable": 3, "function": 1, ACKER: 4})
    assert {task.component for task in ends_anew(now, then)} == {"portable", "function"}
    assert then.graph.components["portable"].implementation is Portable, "the same code"


def test_unknown_names_and_impossible_numbers_are_refused() -> None:
    with pytest.raises(LifecycleError, match="has no component 'unknown'; it has: spout, function"):
        with_counts(plan(), {"unknown": 3})
    with pytest.raises(LifecycleError, match="there can be 1 to 4,096"):
        with_counts(plan(), {"function": 0})
    with pytest.raises(LifecycleError, match="submitted with ackers=0"):
        with_counts(plan(ackers=0), {ACKER: 2})


def test_direct_sender_is_opened_again_or_the_change_is_refused() -> None:
    def chosen(chooser: type[Chooser]) -> Plan:
        numbers = Topology("t").spout("spout", Counter(9))
        values = numbers.shuffle().bolt("chooser", chooser, fields=DirectStream(Number))
        values.direct().bolt("chosen", function, 2)
        return make_plan(numbers.topology.graph())

    with pytest.raises(LifecycleError, match=r"'chooser' sends to chosen tasks of it, and has to"):
        with_counts(chosen(Chooser), {"chosen": 3})
    now = chosen(PortableChooser)
    with pytest.raises(LifecycleError, match="'chooser' sends to chosen tasks of it, and may have"):
        with_counts(now, {"chosen": 1})
    ended = leaving(now, with_counts(now, {"chosen": 3}))
    assert [task.component for task in ended] == ["chooser", "chosen", "chosen"]
