"""The coordinator's record of a state: the batch group that writes it, and its last write.

A spout with another id, or a new batch store, counts from 1 again. A state that has batch 1 of the
former numbering would take the new batch 1 for a repeat and ignore it: so its mark records the
numbering. And a state that was rolled back, replaced or emptied would be written on as if nothing
had happened: so each task notes here which attempt it has written, after the write and before the
batch is acked.

    <root>/<spout id>/coordinator/states/<state>/<task>     {"txid": 7, "attempt": 0, "epoch": 1}
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from sunshower.errors import NodeExists, NoNode, StateMismatch, WrongVersion
from sunshower.state.tree import Tree, incarnation
from sunshower.topologies.operators.port import Attempt
from sunshower.trident.coordination.stored_progress import current_batch
from sunshower.trident.coordination.transactional_log import JsonNode, mismatch


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

    def last_write(self, state: str, task: int) -> LastWrite:
        """The note of a task's last write. Raises StoreUnreachable, StateMismatch."""
        tree = self.store()
        try:
            name = f"states/{quote(state, safe='')}/{task}"
            return LastWrite(tree, [f"{folder}/{name}" for folder in self.folders])
        except BaseException:
            tree.close()
            raise


class LastWrite:
    """Which attempt a task of a state has written last, as noted in the store of the batches. The
    state itself may be ahead of the note, after a crash between the two writes, but never behind
    it. Read the note before the state, and close it."""

    def __init__(self, tree: Tree, paths: Sequence[str]) -> None:
        self._tree = tree
        self._nodes = [JsonNode(tree, path) for path in paths]
        found = [_attempt(node) for node in self._nodes if node.read()]
        self.attempt = max(found, key=order_of, default=None)  # None: the task has written nothing

    def check(self, found: Attempt | None, state: str) -> None:
        """Raise StateMismatch if a state whose last write is `found` is behind the note."""
        if self.attempt is None or (found and order_of(found) >= order_of(self.attempt)):
            return
        has = f"was last written by {describe_attempt(found)}" if found else "is empty"
        raise StateMismatch(
            f"{state} {has}, but it had {describe_attempt(self.attempt)} already, as "
            f"{self._nodes[0].path} in the store of the batches says: the state was emptied, "
            "replaced or rolled back (a file that was removed or is on another machine, a backup, "
            "a replica that did not have the last writes). Nothing is written to it. Put back what "
            "was there; or give the state another name, under which it begins empty with the next "
            "batch; or remove both the state and the store of the batches, to start over with the "
            "first batch"
        )

    def note(self, attempt: Attempt) -> None:
        """Note what the state has now. Raises StoreUnreachable: then the batch is tried again."""
        if attempt == self.attempt:
            return
        for node in self._nodes:
            self._note(node, attempt)
        self.attempt = attempt

    def close(self) -> None:
        self._tree.close()

    @staticmethod
    def _note(node: JsonNode, attempt: Attempt) -> None:
        while node.version is None or order_of(_attempt(node)) < order_of(attempt):
            try:
                node.write(attempt._asdict())
            except (WrongVersion, NodeExists, NoNode):  # an earlier or a later life of the task
                node.read()


def order_of(attempt: Attempt) -> tuple[int, int, int]:
    """The order of attempts: a later attempt has the greater value."""
    return attempt.epoch, attempt.txid, attempt.attempt


def describe_attempt(attempt: Attempt | None) -> str:
    """An attempt, for messages."""
    if attempt is None:
        return "nobody"
    coordinator = f" (coordinator {attempt.epoch})" if attempt.epoch else ""
    return f"batch {attempt.txid}, attempt {attempt.attempt}{coordinator}"


def _attempt(node: JsonNode) -> Attempt:
    value: Any = node.value
    if isinstance(value, dict) and value.keys() == {*Attempt._fields}:
        attempt = Attempt(**value)
        if all(type(number) is int and number >= 0 for number in attempt):
            return attempt
    raise mismatch(node.path, value, 'like {"txid": 7, "attempt": 0, "epoch": 1}')
