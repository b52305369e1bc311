"""The start of a topology while the head of the Ray cluster answers late."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import ray

from sunshower import Counter, Topology
from sunshower.actors import nodes
from sunshower.actors import run as run_module
from sunshower.actors.run import create_workers, wait_for_workers
from sunshower.errors import ClusterError
from sunshower.runtime.control.lifecycle import State
from sunshower.runtime.events.metrics import Snapshot
from sunshower.runtime.plan import Plan, make_plan


@pytest.fixture
def plan() -> Plan:
    topology = Topology("numbers")
    topology.spout("numbers", Counter())
    return make_plan(topology.graph())


@pytest.fixture(autouse=True)
def _late_head(monkeypatch: pytest.MonkeyPatch) -> None:
    def late() -> None:
        raise TimeoutError("Deadline Exceeded\nin a call")

    monkeypatch.setattr(nodes, "cluster_nodes", late)


def test_a_head_that_does_not_answer_is_named_before_any_worker_is_created(
    plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = SimpleNamespace(gcs_address="10.0.0.1:6379")
    monkeypatch.setattr(ray, "get_runtime_context", lambda: context)
    message = (
        "'numbers' cannot start: the head of the Ray cluster, 10.0.0.1:6379, .* Exceeded. Submit"
    )
    with pytest.raises(ClusterError, match=message):
        create_workers("numbers-1", plan)


def test_a_head_that_answers_late_does_not_end_the_wait_for_workers(
    plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s, states = iter(range(100)), iter([State.STARTING] * 5 + [State.ACTIVE])
    clock = SimpleNamespace(monotonic=lambda: next(now_s), sleep=lambda _: None)
    monkeypatch.setattr(run_module, "time", clock)
    wait_for_workers(plan, lambda: Snapshot("numbers", state=next(states)))
    assert next(states, None) is None
