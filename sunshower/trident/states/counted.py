"""Identifies the batch store that numbers the batches of a state; the state's mark records it.

A spout with another id, or a new batch store, counts from 1 again. A state that has batch 1 of the
former numbering would take the new batch 1 for a repeat and ignore it.

<folder>/incarnation      9f1c…      written once, by the first client that asks
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass

from sunshower.errors import NodeExists
from sunshower.state.tree import Tree
from sunshower.trident.coordination.stored_progress import current_batch


@dataclass(frozen=True)
class CountedIn:
    """The store of a batch group, and its coordinators' nodes."""

    store: Callable[[], Tree]
    folders: tuple[str, ...]  # one per spout

    def incarnation(self) -> str:
        """An id that differs for every new numbering of batches. Raises StoreUnreachable."""
        with closing(self.store()) as tree:
            return incarnation(tree, self.folders)

    def current(self) -> int:
        """The txid to be committed next; all before it are. Raises StoreUnreachable."""
        with closing(self.store()) as tree:
            return current_batch(tree, self.folders)


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
