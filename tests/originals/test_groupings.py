"""Groupings beside org.apache.storm.daemon.GrouperFactory: the same tuples and tasks."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sunshower.records import Schema
from sunshower.runtime.transport.routing import make_router
from sunshower.topologies import groupings
from sunshower.topologies.groupings import Grouping
from tests.originals.programs import Program

SCHEMA = Schema(("key", "other"))
KINDS: dict[str, Grouping] = {
    "shuffle": groupings.Shuffle(),
    "fields": groupings.Fields(("key",)),
    "partial key": groupings.PartialKey(("key",)),
    "global": groupings.Global(),
    "all": groupings.All(),
    "none": groupings.NoneGrouping(),
}
Rows = list[tuple[str, int]]
rows = st.lists(st.tuples(st.text("abc", max_size=2), st.integers(0, 9)), min_size=1, max_size=60)
tasks = st.integers(1, 7)


def of_both(storm: Program, kind: str, targets: int, given: Rows) -> list[list[list[int]]]:
    """The tasks of each tuple, from 10 on: in Storm, and here, where each is a batch."""
    numbers = [10 + number for number in range(targets)]
    router = make_router(KINDS[kind], numbers, (), SCHEMA, np.random.default_rng(1))
    first = np.arange(1)
    ours = [
        sorted(10 + target for target, which in router.shares([row], 1) if first[which].size)
        for row in given
    ]
    values = [row[:1] for row in given] if kind == "partial key" else given
    return [storm.run("Grouper", [kind, targets], values), ours]


@given(rows, tasks)
def test_global_is_the_lowest_task_and_all_are_all(
    storm: Program, given: Rows, targets: int
) -> None:
    for kind in ("global", "all"):
        theirs, ours = of_both(storm, kind, targets, given)
        assert [sorted(tasks) for tasks in theirs] == ours


@given(rows, tasks)
def test_each_tuple_goes_to_one_task(storm: Program, given: Rows, targets: int) -> None:
    for kind in ("shuffle", "fields", "partial key", "none"):
        for chosen in of_both(storm, kind, targets, given):
            assert all(
                len(tasks_of) == 1 and tasks_of[0] - 10 in range(targets) for tasks_of in chosen
            )


@given(rows, tasks)
def test_equal_keys_go_to_one_task_and_with_partial_key_to_two(
    storm: Program, given: Rows, targets: int
) -> None:
    for kind, most in (("fields", 1), ("partial key", 2)):
        for chosen in of_both(storm, kind, targets, given):
            tasks_of = defaultdict(set)
            for (key, _), (task,) in zip(given, chosen, strict=True):
                tasks_of[key].add(task)
            assert all(len(of_key) <= most for of_key in tasks_of.values())


@given(tasks, st.integers(1, 5))
def test_partial_key_takes_the_less_used_of_two(storm: Program, targets: int, rounds: int) -> None:
    for chosen in of_both(storm, "partial key", targets, [("a", 0)] * 2 * rounds):
        counts = [chosen.count([task]) for task in {task for (task,) in chosen}]
        assert counts in ([2 * rounds], [rounds, rounds])


@given(tasks, st.integers(1, 5))
def test_shuffle_takes_each_task_once_in_a_round(storm: Program, targets: int, rounds: int) -> None:
    for chosen in of_both(storm, "shuffle", targets, [("a", 0)] * targets * rounds):
        assert {chosen.count([task]) for (task,) in chosen} == {rounds}
