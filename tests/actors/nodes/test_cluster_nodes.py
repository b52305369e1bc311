"""What the report of Ray's autoscaler says about nodes that may be added."""

from __future__ import annotations

import json

import pytest

from sunshower.actors.nodes.cluster_nodes import may_add_nodes


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
