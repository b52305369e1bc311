"""Identifies the batch store that numbers the batches of a state; the state's mark records it.

A spout with another id, or a new batch store, counts from 1 again. A state that has batch 1 of the
former numbering would take the new batch 1 for a repeat and ignore it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass

from sunshower.state.tree import Tree, incarnation
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
