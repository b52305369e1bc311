"""Tests that no two tasks share an object of user code: callables, groupings, batch steps."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from sunshower import Bolt, Spout, Topology, run_inline
from sunshower.clock import ManualClock
from sunshower.errors import SunshowerError, TopologyError
from sunshower.runtime.plan import Layout
from sunshower.simulation.cluster import SimCluster
from sunshower.topologies.graph import own_copy
from sunshower.trident import FixedBatchSpout, InMemory, batches

TOTAL = 12


class Numbers(Spout[tuple[int]]):
    emits = ("n",)

    def records(self) -> Iterator[tuple[int]]:
        yield from ((n,) for n in range(TOTAL))


class CountsRecords(Bolt[Any, None]):
    def prepare(self, context: Any) -> None:
        self.n = 0

    def process(self, record: Any) -> None:
        self.n += 1

    def result(self) -> int:
        return self.n


class RoundRobin:
    """A grouping that stores the targets of its subscription, and the number of its last choice."""

    def prepare(self, targets: Sequence[int]) -> None:
        assert not hasattr(self, "targets"), "prepared twice"
        self.targets, self.next = list(targets), 0

    def choose(self, record: Any) -> Sequence[int]:
        self.next += 1
        return [self.targets[self.next % len(self.targets)]]


CALLS: dict[int, int] = defaultdict(int)


class CountsCalls:
    """A bolt that is a callable object, and counts its calls."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, record: Any) -> None:
        self.calls += 1
        CALLS[id(self)] = self.calls


def grouped() -> Topology:
    """A topology that uses one grouping object in two subscriptions to a spout with two tasks."""
    grouping, topology = RoundRobin(), Topology("t")
    numbers = topology.spout("s", Numbers(), parallelism=2)
    numbers.custom(grouping).bolt("a", CountsRecords, parallelism=2)
    numbers.custom(grouping).bolt("b", CountsRecords, parallelism=3)
    return topology


EACH = {"a": [TOTAL, TOTAL], "b": [8, 8, 8]}


def test_each_sending_task_has_its_own_grouping_for_each_subscription() -> None:
    results = run_inline(grouped().graph(), clock=ManualClock(), steps_max=10_000).results
    assert {id: results[id] for id in EACH} == EACH


@pytest.mark.parametrize("layout", Layout)
def test_each_sending_task_has_its_own_grouping_in_each_layout(layout: Layout) -> None:
    run = SimCluster(0).submit(grouped().graph(), layout)
    assert run.wait(60.0)
    assert {id: run.results(id) for id in EACH} == EACH


def test_each_task_has_its_own_callable_object() -> None:
    CALLS.clear()
    topology = Topology("t")
    topology.spout("s", Numbers()).shuffle().bolt("b", CountsCalls(), parallelism=3)
    run_inline(topology.graph(), clock=ManualClock(), steps_max=10_000)
    assert len(CALLS) == 3
    assert sum(CALLS.values()) == TOTAL


def test_functions_and_bound_methods_are_not_copied() -> None:
    rows: list[int] = []
    assert own_copy(rows.append, "here") == rows.append
    grouping = RoundRobin()
    assert own_copy(grouping.choose, "here").__self__ is grouping
    assert own_copy(grouped, "here") is grouped


def test_the_error_for_an_object_that_cannot_be_copied_says_what_to_do() -> None:
    bolt: Any = CountsCalls()
    bolt.lock = threading.Lock()
    message = r"component 'b': CountsCalls cannot be copied.* in prepare"
    with pytest.raises(TopologyError, match=message):
        own_copy(bolt, "component 'b'")
    topology = Topology("t", attempts_max=1, task_errors_max=1)
    topology.spout("s", Numbers()).shuffle().bolt("b", bolt)
    with pytest.raises(SunshowerError, match="CountsCalls cannot be copied"):
        run_inline(topology.graph(), clock=ManualClock(), steps_max=10_000)


def test_an_object_in_two_places_of_a_batch_program_is_copied() -> None:
    grouping, topology = RoundRobin(), Topology("t")
    stream = batches(
        topology, "l", FixedBatchSpout([(n,) for n in range(8)], 4, fields=("n",)), store=InMemory()
    )
    CALLS.clear()
    counter = CountsCalls()
    left = stream.partition(grouping, parallelism=2).peek(counter).peek(counter)
    right = stream.partition(grouping, parallelism=3).peek(counter)
    left.merge(right).peek(counter)
    run_inline(topology.graph(), clock=ManualClock(), steps_max=10_000)
    assert sum(CALLS.values()) == 8 * 5
    assert len(CALLS) >= 2 + 2 + 3 + 2
