"""Declarations of numbers that follow the load, and what refuses them."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Iterator
from typing import Any

import pytest

from sunshower import Bolt, Config, Counter, Number, Topology, between, count
from sunshower.config import Between
from sunshower.errors import ConfigError, TopologyError
from sunshower.runtime.plan import make_plan
from sunshower.state import SqliteState
from sunshower.topologies.components import Stateless
from sunshower.trident import FixedBatchSpout, InMemory, batches

BOUNDS = between(1, 8)


def pass_on(number: Number) -> Iterator[Number]:
    yield number


class Plain(Bolt[Number, None]):
    def process(self, record: Number) -> None: ...


class KeepsNothing(Stateless, Plain):
    pass


class Chooses(Bolt[Number, Number]):
    def process(self, record: Number) -> Iterator[Number]:
        yield record


def test_its_value_is_the_present_number() -> None:
    number = Between(1, 8, 3)
    assert (number, str(number), f"{number}", json.dumps(number)) == (3, "3", "3", "3")
    assert repr(number) == "between(1, 8)"
    for other in (pickle.loads(pickle.dumps(number)), copy.deepcopy(number)):
        assert (other, other.least, other.most) == (3, 1, 8)


@pytest.mark.parametrize(
    ("least", "most", "why"),
    [
        (0, 3, "least is 0; it must be a whole number of at least 1"),
        (3, 2, "most is 2; it must be a whole number of at least 3"),
        (1, 2.5, "most is 2.5; it must be"),
    ],
)
def test_wrong_bounds_are_refused(least: Any, most: Any, why: str) -> None:
    with pytest.raises(ConfigError, match=f"between: {why}"):
        between(least, most)


def test_tasks_and_workers_begin_with_the_least_number() -> None:
    topology = Topology("t", workers=between(2, 4))
    numbers = topology.spout("numbers", Counter())
    numbers.shuffle().bolt("bolt", KeepsNothing(), parallelism=between(3, 8))
    plan = make_plan(topology.graph())
    assert (len(plan.tasks_of("bolt")), len(plan.workers)) == (3, 2)
    assert repr(plan.with_tasks(plan.tasks[:-1]).graph.components["bolt"].parallelism) == (
        "between(3, 8)"
    )
    assert repr(Config(workers=between(2, 4)).workers) == "between(2, 4)"


def ordinary(impl: Any, state: Any = None, tasks: Any = BOUNDS) -> Topology:
    topology = Topology("t")
    numbers = topology.spout("numbers", Counter())
    if impl is not None:
        numbers.shuffle().bolt("it", impl, parallelism=tasks)
    else:
        totals = numbers.group_by("value").aggregate(
            count(), name="it", state=state, parallelism=tasks
        )
        totals.shuffle().bolt("next", pass_on_total)
    return topology


def pass_on_total(total: Any) -> None: ...


def spout(tasks: Any = BOUNDS) -> Topology:
    topology = Topology("t")
    numbers = topology.spout("it", Counter(), parallelism=tasks)
    numbers.shuffle().bolt("bolt", pass_on)
    return topology


def without_key(tasks: Any = BOUNDS) -> Topology:
    topology = Topology("t")
    totals = topology.spout("numbers", Counter()).aggregate(
        count(), name="it", state=SqliteState("t.db"), parallelism=tasks
    )
    totals.shuffle().bolt("next", pass_on_total)
    return topology


def exactly_once(source: int = 1, **stage: Any) -> Topology:
    topology = Topology("t")
    rows = batches(
        topology,
        "it",
        FixedBatchSpout([("a",)], 1, fields=("word",)),
        parallelism=source,
        store=InMemory(),
    )
    rows.shuffle(parallelism=between(1, 8)).peek(print) if not stage else None
    rows.group_by("word").aggregate(count(), name="count", state=SqliteState("t.db"), **stage).peek(
        print
    )
    return topology


@pytest.mark.parametrize(
    ("topology", "why"),
    [
        (spout(), "follow the load; give a number: each task of a spout has its own part of the"),
        (ordinary(Plain()), "the object of 'it' may keep something in memory"),
        (ordinary(None), "the state 'it' of 'it' is in memory"),
        (without_key(), "its state has no key by which records find their task"),
        (exactly_once(between(1, 1)), "its tasks are those of the source 'it'"),
    ],
)  # fmt: skip
def test_what_a_rebalance_refuses_is_refused_at_the_declaration(
    topology: Topology, why: str
) -> None:
    with pytest.raises(TopologyError, match=why):
        topology.graph()


@pytest.mark.parametrize(
    "topology",
    [
        ordinary(pass_on),
        ordinary(KeepsNothing()),
        ordinary(None, SqliteState("t.db")),
        exactly_once(),
        exactly_once(parallelism=between(1, 4)),
    ],
)
def test_what_can_have_other_numbers_of_tasks_may_follow_the_load(topology: Topology) -> None:
    topology.graph()


def test_workers_are_refused_if_a_task_cannot_move() -> None:
    topology = Topology("t", workers=between(1, 4))
    topology.spout("numbers", Counter()).shuffle().bolt("it", Plain())
    says = r"cannot move .* Write snapshot\(\) and restore\(state\) for it, or give a number"
    with pytest.raises(TopologyError, match=says):
        topology.graph()


@pytest.mark.parametrize(
    "topology",
    [
        *(spout(2), ordinary(Plain(), tasks=2), ordinary(None, tasks=2), without_key(1)),
        ordinary(None, SqliteState("t.db")),  # "Give it a state= in a store"
        ordinary(KeepsNothing()),  # "write a snapshot() that returns None"
    ],
)
def test_what_a_refusal_names_is_accepted(topology: Topology) -> None:
    topology.graph()
    for workers, bolt in ((2, Plain()), (between(1, 4), KeepsNothing())):
        fixed = Topology("t", workers=workers)
        fixed.spout("numbers", Counter()).shuffle().bolt("it", bolt)
        fixed.graph()
