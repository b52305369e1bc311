"""How far a batch group is committed, as an emitter knows it from `$success` and from the store."""

from __future__ import annotations

from sunshower.state.tree import Tree, parent
from sunshower.trident.coordination.txid_nodes import decode, mismatch


class Settled:
    """The txid up to which all batches are committed in all tasks. `path`: the emitter's …/user."""

    def __init__(self, tree: Tree, path: str) -> None:
        self._tree = tree
        self._node = f"{parent(path)}/coordinator/currtx"  # as the master and Storm write it
        self._txid = 0

    def heard(self, txid: int) -> None:
        """All batches up to `txid` are committed."""
        self._txid = max(self._txid, txid)

    def up_to(self, txid: int) -> bool:
        """Whether all batches up to `txid` are known to be committed. Raises StateMismatch."""
        if self._txid < txid and (node := self._tree.get(self._node)) is not None:
            current = decode(node, self._node)
            if not isinstance(current, int):
                raise mismatch(self._node, current, "the number of a batch")
            self.heard(current - 1)
        return self._txid >= txid
