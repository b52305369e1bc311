"""Placement of running tasks on other workers: even, with few moves; state in memory stays."""

from __future__ import annotations

from collections import Counter as Multiset
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sunshower import BatchBolt, Bolt, Counter, Number, Spout, Topology
from sunshower.errors import LifecycleError
from sunshower.runtime.control.placement import placed, replan
from sunshower.runtime.plan import ACKER, Layout, Plan, make_plan
from sunshower.topologies.graph import can_move


class Value(NamedTuple):
    value: int


def function(number: Number) -> Iterator[Value]:
    yield Value(number.value)


class Held(Bolt[Any, None]):
    def process(self, record: Any) -> None: ...


class Portable(Held):
    def snapshot(self) -> int:
        return 1

    def restore(self, state: int) -> None: ...


class HalfPortable(Held):
    def snapshot(self) -> int:
        return 1


class HeldColumns(BatchBolt[Any, None]):
    def process(self, table: Any) -> None: ...


class Manual(Spout[Number]):
    def next_tuple(self, out: Any) -> None: ...


def plan(
    *parallelism: int, sink: Any = function, layout: Layout = Layout.PACK, **config: Any
) -> Plan:
    topology = Topology("t", **config)
    spout, *bolts = parallelism
    stream = topology.spout("spout", Counter(9), parallelism=spout)
    for index, tasks in enumerate(bolts):
        last = index == len(bolts) - 1
        stream.shuffle().bolt(f"bolt{index}", sink if last else function, parallelism=tasks)
    return make_plan(topology.graph(), layout)


def per_worker(topology_plan: Plan, component: str | None = None) -> Multiset[int]:
    """How many tasks each worker has, ackers aside; those with none are left out."""
    names = topology_plan.graph.components if component is None else [component]
    return Multiset(task.worker for name in names for task in topology_plan.tasks_of(name))


def is_even(counts: Multiset[int], workers: int) -> bool:
    numbers = [*counts.values(), *[0] * (workers - len(counts))]
    return max(numbers) - min(numbers) <= 1


parallelisms = st.lists(st.integers(1, 7), min_size=2, max_size=4)
counts = st.lists(st.integers(1, 8), min_size=1, max_size=4)


@given(parallelisms, st.integers(1, 5), counts)
def test_tasks_stay_the_same_and_are_even_after_any_number_of_changes(
    parallelism: list[int], workers: int, changes: list[int]
) -> None:
    first = plan(*parallelism, workers=workers)
    now = first
    for count in changes:
        now = placed(first, replan(now, count))
        assert [(t.id, t.component, t.index) for t in now.tasks] == [
            (t.id, t.component, t.index) for t in first.tasks
        ]
        assert is_even(per_worker(now), count)
        assert all(is_even(per_worker(now, c), count) for c in now.graph.components)
        beside = {spout.worker for spout in now.spouts}
        assert {acker.worker for acker in now.tasks_of(ACKER)} <= beside
        assert placed(now, replan(now, count)) == now, "an even placement does not change"


@given(st.integers(1, 12), st.integers(1, 6), st.integers(1, 6))
def test_no_task_moves_that_could_stay(tasks: int, before: int, after: int) -> None:
    """One component: each worker keeps as many as it may have, and the rest moves."""
    old = plan(tasks, workers=before)
    new = placed(old, replan(old, after))
    stayed = sum(
        a.worker == b.worker
        for a, b in zip(old.tasks_of("spout"), new.tasks_of("spout"), strict=True)
    )
    small, larger = divmod(tasks, after)
    had = sorted(per_worker(old).values(), reverse=True)[:after]
    room = [small + 1] * larger + [small] * (after - larger)
    assert stayed == sum(map(min, had, room))


def test_new_worker_gets_its_share() -> None:
    old = plan(3, 6, workers=2)
    new = placed(old, replan(old, 3))
    assert per_worker(new) == {0: 3, 1: 3, 2: 3}


def test_isolated_tasks_have_a_worker_each_and_one_of_each_worker_stays() -> None:
    old = plan(2, 3, workers=2)
    new = placed(old, replan(old, None, Layout.ISOLATE))
    assert sorted(task.worker for task in new.tasks) == list(range(len(new.tasks)))
    stayed = [a.worker for a, b in zip(old.tasks, new.tasks, strict=True) if a.worker == b.worker]
    assert sorted(stayed) == [0, 1]


def test_isolated_tasks_can_be_packed() -> None:
    old = plan(2, 3, layout=Layout.ISOLATE)
    new = placed(old, replan(old, 2, Layout.PACK))
    assert sorted(per_worker(new).values()) == [2, 3]
    assert (old.layout, new.layout) == (Layout.ISOLATE, Layout.PACK)
    assert len(placed(old, replan(new, 3)).workers) == 3


def test_isolate_takes_no_other_number_of_workers() -> None:
    with pytest.raises(LifecycleError, match="cannot be 2 workers: leave out the number"):
        replan(plan(2, 3), 2, Layout.ISOLATE)


# ---- state in memory ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sink", "movable"),
    [
        (function, True),
        (Held, False),
        (Held(), False),
        (Portable, True),
        (Portable(), True),
        (HalfPortable, False),
        (HeldColumns, False),
    ],
)
def test_which_bolts_can_move(sink: Any, movable: bool) -> None:
    assert can_move(plan(1, 1, sink=sink).graph.components["bolt0"]) is movable


def test_a_position_can_move_and_message_ids_of_its_own_cannot() -> None:
    assert can_move(plan(1, 1).graph.components["spout"])
    topology = Topology("t")
    topology.spout("spout", Manual).shuffle().bolt("bolt", function)
    assert not can_move(topology.graph().components["spout"])


@given(st.integers(1, 6), st.integers(1, 6), st.integers(1, 4), st.integers(0, 4))
def test_pinned_tasks_stay_where_they_are(spouts: int, held: int, workers: int, more: int) -> None:
    old = plan(spouts, held, sink=Held, workers=workers)
    new = placed(old, replan(old, len(old.workers) + more))
    assert new.tasks_of("bolt0") == old.tasks_of("bolt0")
    assert is_even(per_worker(new, "spout"), len(old.workers) + more)


def test_the_worker_that_is_removed_is_one_without_state() -> None:
    old = plan(4, 1, 2, sink=Held, workers=4)
    old = placed(old, [3, 2, 1, 0, 3, 3, 2, *[task.worker for task in old.tasks[7:]]])
    assert placed(old, replan(old, 2)).workers == [2, 3]


def test_state_that_can_neither_stay_nor_move_is_named_with_the_way_out() -> None:
    with pytest.raises(LifecycleError) as error:
        replan(plan(1, 3, sink=Held, workers=3), 2)
    message = str(error.value)
    assert "bolt0[2] on worker 2" in message
    assert "snapshot() and restore(state) for 'bolt0'" in message
    assert "nothing has been changed" in message
