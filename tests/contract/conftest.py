"""Fixtures for the contract tests: clusters, simulated and on Ray, and runs on them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from sunshower import Layout, Topology
from sunshower.runtime.cluster import Cluster, Run
from sunshower.simulation.cluster import SimCluster
from tests.contract.topologies import TOTAL, Paced, chain

Submit = Callable[..., Run]
CLUSTERS = ["sim", pytest.param("ray", marks=pytest.mark.ray)]
PATIENCE_S = 60.0
ITEMS = 400


@pytest.fixture
def go(tmp_path: Path) -> Path:
    """The file that ends the pace of `paced`."""
    return tmp_path / "go"


@pytest.fixture
def paced(go: Path) -> Paced:
    """A source of ten items a second for 40 s, which does not end before the test lets it."""
    return Paced(ITEMS, 40.0, go)


@pytest.fixture(params=CLUSTERS)
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with cluster_of(request) as cluster:
        yield cluster


@contextmanager
def cluster_of(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    if request.param == "ray":
        yield request.getfixturevalue("ray_cluster")
        return
    with SimCluster(seed=1, check=True) as cluster:
        yield cluster


@pytest.fixture(scope="module", params=CLUSTERS)
def ended(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Run]:
    """A finished run in the layout `isolate`, with a whole history, and all trees traced."""
    go = tmp_path_factory.mktemp("ended") / "go"
    with cluster_of(request) as cluster:
        topology = chain(Paced(TOTAL, 60.0, go), name="ended", trace_share=1.0)
        run = cluster.submit(topology.graph(), Layout.ISOLATE, sample=1)
        try:
            assert not run.finished()
            assert not run.wait(0.2)
            go.touch()
            assert run.wait(PATIENCE_S)
            assert run.finished()
            yield run
        finally:
            run.stop()


@pytest.fixture
def submit(cluster: Cluster) -> Iterator[Submit]:
    """Start topologies, by default with a whole history; they are stopped at the end.

    Each process of a real cluster takes a second: by default only the simulator isolates tasks.
    """
    runs: list[Run] = []
    default = Layout.ISOLATE if isinstance(cluster, SimCluster) else Layout.PACK

    def start(topology: Topology, layout: Layout = default, **how: Any) -> Run:
        runs.append(cluster.submit(topology.graph(), layout, **{"sample": 1, **how}))
        return runs[-1]

    yield start
    for run in runs:
        run.stop()
