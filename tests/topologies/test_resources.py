"""Resources that tasks request: valid amounts, and the sum over a worker's tasks."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from copy import deepcopy
from math import inf, nan
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ray import cloudpickle

from sunshower import Counter, Number, Resources, Topology
from sunshower.errors import ConfigError, TopologyError
from sunshower.runtime.plan import Layout, make_plan
from sunshower.topologies.operators.aggregators import count

ONE = Resources(num_cpus=1, memory=2 * 1024**3, custom={"license": 1})


def same(number: Number) -> Iterator[Number]:
    yield number


@pytest.mark.parametrize("name", ["num_cpus", "num_gpus", "memory"])
@pytest.mark.parametrize("amount", [-1, nan, inf, "1", None, True, []])
def test_an_invalid_amount_is_refused_by_its_name(name: str, amount: Any) -> None:
    with pytest.raises(ConfigError, match=f"^Resources: {name} is .*it must be an amount of at"):
        Resources(**{name: amount})


@pytest.mark.parametrize(
    ("custom", "message"),
    [
        ({"CPU": 1}, "'CPU' in custom is a resource of Ray's own; give num_cpus="),
        ({"GPU": 1}, "'GPU' in custom is a resource of Ray's own; give num_gpus="),
        ({"memory": 1}, "'memory' in custom is a resource of Ray's own; give memory="),
        ({"object_store_memory": 1}, "Ray sizes its object store by itself"),
        ({"": 1}, "a name in custom is ''"),
        ({1: 1}, "a name in custom is 1"),
        ({"license": -1}, r"custom\['license'\] is -1"),
        ({"license": 0.00005}, "Ray counts in steps of 0.0001"),
        ([("license", 1)], "give an amount for each name"),
    ],
)
def test_an_invalid_custom_resource_is_refused(custom: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Resources(custom=custom)


def test_a_fraction_of_a_byte_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^Resources: memory is 0\.5; it counts bytes"):
        Resources(memory=0.5)


def test_resources_keep_a_copy_of_their_custom_amounts() -> None:
    custom = {"license": 1.0}
    resources = Resources(custom=custom)
    custom["license"] = -1.0
    assert resources.amounts == {"license": 1.0}
    with pytest.raises(TypeError, match="does not support item assignment"):
        resources.custom["license"] = -1.0  # type: ignore[index]


def test_equal_resources_have_equal_hashes_whatever_the_order_of_their_names() -> None:
    first, second = Resources(custom={"a": 1, "b": 2}), Resources(custom={"b": 2, "a": 1})
    assert {first, second, ONE} == {first, ONE}


@pytest.mark.parametrize(
    "copied",
    [
        deepcopy,
        lambda resources: pickle.loads(pickle.dumps(resources)),
        lambda resources: cloudpickle.loads(cloudpickle.dumps(resources)),
    ],
    ids=["deepcopy", "pickle", "cloudpickle"],
)
def test_resources_are_copied_and_pickled(copied: Any) -> None:
    assert copied(ONE) == ONE


def test_resources_of_another_type_are_refused_where_they_are_declared() -> None:
    topology = Topology("t")
    with pytest.raises(TopologyError, match=r"^topology 't', spout 's': resources is 1; give"):
        topology.spout("s", Counter(1), resources=1)  # type: ignore[arg-type]


def test_a_worker_requests_the_sum_over_its_tasks_and_ackers_request_nothing() -> None:
    topology = Topology("t", workers=2)
    numbers = topology.spout("s", Counter(1), resources=Resources(num_cpus=0.5))
    numbers.shuffle().bolt("b", same, 3, resources=ONE)
    plan = make_plan(topology.graph())
    assert plan.request_of(0) == Resources(
        num_cpus=2.5, memory=4 * 1024**3, custom={"license": 2}
    ), "the spout, and the bolt's tasks 0 and 2"
    assert plan.request_of(1) == ONE
    alone = make_plan(topology.graph(), Layout.ISOLATE)
    requests = [alone.request_of(worker) for worker in alone.workers]
    assert requests == [Resources(num_cpus=0.5), ONE, ONE, ONE, Resources()]


def test_stages_of_streams_declare_resources_too() -> None:
    topology = Topology("t")
    numbers = topology.spout("s", Counter(1))
    numbers.shuffle().stage("mapped", 2, ONE).flat_map(same)
    numbers.group_by("value").aggregate(count(), name="counted", resources=ONE)
    components = topology.graph().components
    assert [name for name, c in components.items() if c.resources == ONE] == [
        "mapped",
        "counted",
    ]


@given(st.lists(st.integers(0, 20_000), max_size=30))
def test_a_sum_is_an_amount_that_ray_can_count(steps: list[int]) -> None:
    parts = [Resources(num_cpus=step / 10_000, custom={"a": step / 10_000}) for step in steps]
    total = Resources.total(parts)
    assert total.num_cpus == total.amounts.get("a", 0.0) == sum(steps) / 10_000


def test_more_than_one_gpu_is_a_whole_number() -> None:
    part = Resources(num_gpus=0.6)
    assert Resources.total([part]).num_gpus == 0.6
    assert Resources.total([part, part]).num_gpus == 2
