"""Resource requests that Ray refuses, whatever its nodes have."""

from __future__ import annotations

import pytest

from sunshower import Counter, Resources, Topology
from sunshower.actors.run import create_workers, why_refused
from sunshower.errors import ClusterError
from sunshower.runtime.plan import make_plan


@pytest.mark.parametrize(
    ("custom", "why"),
    [
        ({"TPU": 3}, "'TPU' was set to 3 which is not a supported chip configuration"),
        ({"neuron_cores": 1.5}, "must be whole numbers"),
        ({"NPU": 1.5}, "1.5 NPU: more than one must be a whole number"),
    ],
)
def test_amounts_that_ray_does_not_take_are_refused(custom: dict[str, float], why: str) -> None:
    assert why in (why_refused(Resources(custom=custom)) or "")


@pytest.mark.parametrize("custom", [{}, {"TPU": 4}, {"NPU": 0.5}, {"license": 1.5}])
def test_other_amounts_are_not_refused(custom: dict[str, float]) -> None:
    assert why_refused(Resources(num_cpus=0.5, num_gpus=2, memory=5, custom=custom)) is None


def test_a_topology_with_a_sum_that_ray_refuses_does_not_start() -> None:
    topology = Topology("chips", workers=1)
    topology.spout("numbers", Counter(), 3, resources=Resources(custom={"TPU": 1}))
    message = r"'chips' cannot start: worker 0 would request 3 TPU for numbers\[0\], numbers\[1\]"
    with pytest.raises(ClusterError, match=message):
        create_workers("chips-1", make_plan(topology.graph()))
