"""Checks the numbers of a topology in Ray's own metrics, which ray[default] exports."""

from __future__ import annotations

import importlib.util
import time
from typing import TYPE_CHECKING
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families

from sunshower import Counter, Number, Topology
from sunshower.actors.run import EXPORT_S

if TYPE_CHECKING:
    from sunshower.actors.cluster import RayCluster

EXPORTERS = ("aiohttp", "opencensus", "grpc")
Samples = dict[tuple[str, str], float]


def drop(number: Number) -> None: ...


def exported(topology: str) -> Samples:
    """Name and component → value, of all metrics of a topology on this node."""
    import ray

    (node,) = ray.nodes()
    url = f"http://{node['NodeManagerAddress']}:{node['MetricsExportPort']}/metrics"
    with urlopen(url, timeout=10) as answer:
        text = answer.read().decode()
    return {
        (sample.name, sample.labels["component"]): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.labels.get("topology") == topology
    }


@pytest.mark.ray
@pytest.mark.long
@pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in EXPORTERS),
    reason="this Ray exports no metrics: install ray[default]",
)
def test_ray_exports_the_counts_of_the_snapshot(ray_cluster: RayCluster) -> None:
    topology = Topology("numbers")
    topology.spout("count", Counter(500)).shuffle().bolt("drop", drop, 2)
    run = ray_cluster.submit(topology.graph())
    assert run.wait(120)
    expected: Samples = {("ray_sunshower_pending_tuples", "count"): 0.0}
    for component in ("count", "drop"):
        counts = run.snapshot().component(component)
        for name in ("emitted", "executed", "acked", "failed"):
            if number := getattr(counts, name):  # Ray exports no counter of zero
                expected[f"ray_sunshower_tuples_{name}_total", component] = number
    assert len(expected) == 5
    deadline_s = time.monotonic() + 12 * EXPORT_S
    while not (samples := exported("numbers")).items() >= expected.items():
        assert time.monotonic() < deadline_s, samples
    for component in ("count", "drop"):
        assert 0 <= samples["ray_sunshower_capacity", component] <= 1
