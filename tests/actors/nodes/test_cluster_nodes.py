"""The data of Ray about nodes: their resources, their workers, and whether nodes may be added."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from ray._private import state

from sunshower import Resources
from sunshower.actors.names import worker_name
from sunshower.actors.nodes import (
    cluster_nodes,
    may_add_nodes,
    starting_workers,
    with_workers,
    workers_by_node,
)
from sunshower.runtime.control.nodes import NodeState, NodeView


@pytest.mark.parametrize(
    ("types", "may"),
    [({"ab12": "node_ab12"}, False), ({"ab12": "ray.head.default"}, True), (None, False)],
)
def test_nodes_of_a_declared_type_are_of_an_autoscaler(
    types: dict[str, str] | None, may: bool
) -> None:
    status = {"autoscaler_report": {"node_type_mapping": types}}
    assert may_add_nodes(json.dumps(status).encode()) is may


@pytest.mark.parametrize("status", [None, b'{"monitor_pid": 1}'])
def test_before_the_first_report_nodes_may_be_added(status: bytes | None) -> None:
    assert may_add_nodes(status)


def test_starting_workers_are_those_that_ray_creates_or_starts_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    actors = {
        "PENDING_CREATION": [worker_name("run", 0), worker_name("other", 3), "run/master", ""],
        "RESTARTING": [worker_name("run", 2)],
    }

    def selected(actor_state_name: str) -> dict[str, Any]:
        return {str(n): {"Name": name} for n, name in enumerate(actors[actor_state_name])}

    monkeypatch.setattr(state, "actors", selected)
    assert starting_workers("run") == {0, 2}


def test_actors_are_read_only_to_count_the_workers_of_nodes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    actors = {
        str(number): {"Name": name, "Address": {"NodeID": "a"}}
        for number, name in enumerate([worker_name("run", 0), worker_name("other", 3), "else"])
    }

    def alive(actor_state_name: str) -> dict[str, Any]:
        return {"ALIVE": actors}[actor_state_name]

    table = SimpleNamespace(
        total_resources_per_node=lambda: {"a": {"CPU": 2.0, "memory": 2.0**30}, "b": {}},
        available_resources_per_node=lambda: {"a": {"CPU": 1.0, "memory": 2.0**30 - 1}},
        get_draining_nodes=dict,
    )
    monkeypatch.setattr(state, "state", table)
    monkeypatch.delattr(state, "actors")
    nodes = cluster_nodes()
    total = Resources(num_cpus=2, memory=2**30)
    node = NodeState("a", total, Resources(num_cpus=1, memory=2**30 - 1))
    assert nodes == (node, NodeState("b"))
    monkeypatch.setattr(
        state, "actors", lambda actor_state_name: {"ALIVE": actors}[actor_state_name], raising=False
    )
    view = with_workers(NodeView(nodes), workers_by_node())
    assert [node.workers for node in view.nodes] == [2, 0]
