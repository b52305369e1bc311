"""Where the batches are counted that a state is written with: its mark says so.

A spout with another id, or a store of batches that was removed, counts from 1 anew; a state that
has had batch 1 of the former ones would take the new one for a repeat, and pass it over.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass

from sunshower.stores.incarnation import incarnation
from sunshower.stores.tree import Tree
from sunshower.trident.stored import current_batch


@dataclass(frozen=True)
class CountedIn:
    """The store of a batch group, and what its coordinators keep there."""

    store: Callable[[], Tree]
    folders: tuple[str, ...]  # one of each spout

    def incarnation(self) -> str:
        """Another one for batches that are counted anew. Raises StoreUnreachable."""
        with closing(self.store()) as tree:
            return incarnation(tree, self.folders)

    def current(self) -> int:
        """The batch that is committed next: all before it are. Raises StoreUnreachable."""
        with closing(self.store()) as tree:
            return current_batch(tree, self.folders)
