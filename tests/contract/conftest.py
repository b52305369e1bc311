"""The clusters that the contract is tried on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from sunshower import Topology
from sunshower.runtime.cluster import Cluster, Run
from sunshower.runtime.plan import Layout
from sunshower.simulation.cluster import SimCluster

Submit = Callable[..., Run]


@pytest.fixture(params=["sim", pytest.param("ray", marks=pytest.mark.ray)])
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    if request.param == "ray":
        yield request.getfixturevalue("ray_cluster")
        return
    with SimCluster(seed=1, check=True) as cluster:
        yield cluster


@pytest.fixture
def submit(cluster: Cluster) -> Iterator[Submit]:
    """Start a topology, isolated and with a whole history unless told otherwise; it is stopped."""
    runs: list[Run] = []

    def start(topology: Topology, layout: Layout = Layout.ISOLATE, **how: Any) -> Run:
        runs.append(cluster.submit(topology.graph(), layout, **{"sample": 1, **how}))
        return runs[-1]

    yield start
    for run in runs:
        run.stop()
