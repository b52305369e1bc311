"""Tests that random topologies with slow bolts run at the speed of their slowest worker."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.simulated.overload import Run, run_overload
from benchmarks.simulated.shapes import FAMILIES, SERVICE_S, draw_shape
from sunshower.runtime.plan import ACKER
from tests.seeds import seeds

RECORDS = 10_000


@seeds(25)
def test_under_overload_the_topology_keeps_its_speed_and_loses_no_tuple(seed: int) -> None:
    run = run_overload(seed, RECORDS)
    assert not run.complaints, (run.shape, run.busy)
    assert not run.is_slow, (run.shape, run.busy)


def test_the_same_seed_is_the_same_topology_and_all_kinds_are_drawn() -> None:
    shapes = [draw_shape(seed) for seed in range(100)]
    assert shapes == [draw_shape(seed) for seed in range(100)]
    assert {shape.family for shape in shapes} == set(FAMILIES)
    bolts = [node for shape in shapes for node in shape.nodes if node.inputs]
    assert {bolt.kind for bolt in bolts} == {"process", "execute", "batch", "function"}
    assert {bolt.parallelism for bolt in bolts} == {1, 2, 3}
    assert {edge.grouping for bolt in bolts for edge in bolt.inputs} == {"shuffle", "fields", "all"}
    services_s = [bolt.service_s for bolt in bolts if bolt.service_s]
    assert min(services_s) < 100 * SERVICE_S[0]
    assert max(services_s) > 0.5 * SERVICE_S[1]


def test_work_is_the_time_of_the_tasks_of_a_worker_for_each_record() -> None:
    shape = next(s for s in map(draw_shape, range(100)) if s.family == "cycle" and s.rounds == 2)
    plan = shape.plan()
    inputs = shape.inputs_per_root("n")
    assert inputs["b"] == 3, "each record goes round twice more"
    expected = sum(inputs[node.id] * node.service_s for node in shape.nodes if node.inputs)
    assert sum(shape.work(plan, "n").values()) == pytest.approx(expected)
    assert all(task.component == ACKER or task.component in inputs for task in plan.tasks)


def test_a_run_lists_its_complaints() -> None:
    shape = draw_shape(0)
    good = Run(shape, 300.0, {"n": 100}, speed=0.95, latency_s=1.0, queued=[10] * 21)
    assert not good.complaints
    assert not good.is_slow
    assert replace(good, failed=2, causes={"timeout": 2}).complaints == [
        "2 failures: {'timeout': 2}"
    ]
    assert replace(good, speed=0.8).is_slow
    assert replace(good, speed=0.5).complaints == ["0.50 of the speed of the slowest worker alone"]
    assert "p99 latency" in replace(good, latency_s=2 * shape.timeout_s).complaints[0]
    assert "the queues grew" in replace(good, queued=[10] * 10 + [5_000] * 11).complaints[0]
    assert "the topology ended" in replace(good, error="it gave up").complaints[0]
