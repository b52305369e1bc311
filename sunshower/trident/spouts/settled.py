"""How far a batch group is committed, as an emitter knows it: from what it hears, and the store."""

from __future__ import annotations

from sunshower.stores.tree import Tree, parent
from sunshower.trident.nodes import decode, mismatch


class Settled:
    """All batches up to a txid are committed, in all tasks. `path` is the emitter's: …/user."""

    def __init__(self, tree: Tree, path: str) -> None:
        self._tree = tree
        self._node = f"{parent(path)}/coordinator/currtx"  # as the master writes it, and Storm's
        self._txid = 0

    def heard(self, txid: int) -> None:
        """They are, up to this one."""
        self._txid = max(self._txid, txid)

    def up_to(self, txid: int) -> bool:
        """Whether they are, up to this one, for all that is known here. Raises StateMismatch."""
        if self._txid < txid and (node := self._tree.get(self._node)) is not None:
            current = decode(node, self._node)
            if not isinstance(current, int):
                raise mismatch(self._node, current, "the number of a batch")
            self.heard(current - 1)
        return self._txid >= txid
