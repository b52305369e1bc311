"""A word that says which making of some folders of a tree this is: who removes them makes another.

<folder>/incarnation      9f1c…      written once, by whoever asks first
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from contextlib import suppress

from sunshower.errors import NodeExists
from sunshower.stores.tree import Tree


def incarnation(tree: Tree, folders: Sequence[str]) -> str:
    """The same for all who ask, as long as one of the folders stays; the others follow it.

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
