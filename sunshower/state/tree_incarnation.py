"""Identifies one creation of a set of folders of a tree: it changes when they are recreated.

<folder>/incarnation      9f1c…      written once, by the first client that asks
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from contextlib import suppress

from sunshower.errors import NodeExists
from sunshower.state.tree import Tree


def incarnation(tree: Tree, folders: Sequence[str]) -> str:
    """The same value for all clients while at least one folder remains; others are copied from it.

    Raises StoreUnreachable.
    """
    paths = [f"{folder}/incarnation" for folder in sorted(folders)]
    nodes = [tree.get(path) for path in paths]
    if not any(nodes):
        with suppress(NodeExists):
            tree.create(paths[0], uuid.uuid4().hex.encode())
        nodes[0] = tree.get(paths[0])
    value = next(node.value for node in nodes if node is not None)
    for path, node in zip(paths, nodes, strict=True):
        if node is None:
            with suppress(NodeExists):
                tree.create(path, value)
    return value.decode(errors="replace")
