"""Adds nodes for the autoscaler in autoscaled.py: each is some processes on this machine."""

from __future__ import annotations

from typing import Any

from ray.autoscaler._private.fake_multi_node.node_provider import FakeMultiNodeProvider


class LocalNodes(FakeMultiNodeProvider):  # type: ignore[misc]
    """Ray's own provider for tests cannot start nodes of a type that declares its memory."""

    def create_node_with_resources_and_labels(
        self, node_config: Any, tags: Any, count: int, resources: dict[str, float], labels: Any
    ) -> None:
        rest = {name: amount for name, amount in resources.items() if name != "memory"}
        super().create_node_with_resources_and_labels(node_config, tags, count, rest, labels)
