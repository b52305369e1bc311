"""Encodes values as JSON in the nodes of a tree, as Storm's TransactionalState does."""

from __future__ import annotations

import json
from typing import Any

from sunshower.errors import BatchError, StateMismatch
from sunshower.state.tree import Node


def encode(value: Any, path: str) -> bytes:
    """A value for the node at `path`. Raises BatchError if JSON cannot represent it."""
    try:
        return json.dumps(value, allow_nan=False).encode()
    except (TypeError, ValueError) as error:
        raise BatchError(
            f"{value!r:.200} cannot be kept at {path}: {error}. Make it of numbers, strings, lists "
            "and objects, as JSON knows them"
        ) from error


def decode(node: Node, path: str) -> Any:
    """The value of a node. Raises StateMismatch if it is not JSON."""
    try:
        return json.loads(node.value)
    except ValueError as error:
        raise mismatch(path, node.value, "JSON") from error


def mismatch(path: str, found: Any, wanted: str) -> StateMismatch:
    """The error for a node with an unexpected value."""
    return StateMismatch(
        f"{path} holds {found!r:.200}, which is not {wanted}: it is corrupt, or of something else. "
        "Give the spout another id or the group another root, or remove the node to begin anew"
    )
