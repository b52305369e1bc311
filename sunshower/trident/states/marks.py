"""The mark of a task's part of a state: which batch wrote it last, and the keys of that batch.

The word    {"topology":"words","batches":"9f1c…","kind":"opaque","parallelism":2,
             "epoch":1,"txid":7,"attempt":0,"version":1}
The journal {"written":["storm"],"removed":[]}      keys of that batch

A writer with a smaller (epoch, txid, attempt) gets StaleAttempt. A writer of another topology, kind
or batch numbering gets StateMismatch.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, NoReturn
from urllib.parse import quote

from sunshower import versions
from sunshower.errors import (
    FailedBatch,
    NodeExists,
    NoNode,
    StaleAttempt,
    StateMismatch,
    StoreUnreachable,
    WrongVersion,
)
from sunshower.state.backing import Home, Mark
from sunshower.state.tree import Tree, incarnation
from sunshower.topologies.operators.keyed.stored_values import key_of, text_of_key
from sunshower.topologies.operators.port import Attempt
from sunshower.topologies.operators.states import Place, StateKind
from sunshower.trident.coordination.transactional_log import JsonNode, current_batch, mismatch

_ANOTHER = "give the state another name, under which it begins empty"
_CAN_CHANGE = (
    ". The number of tasks can change for states of ordinary streams whose tasks are chosen by "
    "their key; not for batches(…)"
)


# ---- counted -------------------------------------------------------------------------------------
# The coordinator's record of a state: the batch group that writes it, and its last write.
#
# A spout with another id, or a new batch store, counts from 1 again. A state that has batch 1 of
# the former numbering would take the new batch 1 for a repeat and ignore it: so its mark records
# the numbering. And a state that was rolled back, replaced or emptied would be written on as if
# nothing had happened: so each task notes here which attempt it has written, after the write and
# before the batch is acked.
#
#     <root>/<spout id>/coordinator/states/<state>/<task>     {"txid": 7, "attempt": 0, "epoch": 1}


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


# ---- marks ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Journal:
    """Keys of the last batch, as JSON texts."""

    written: tuple[str, ...] = ()  # all written keys; only of opaque states
    removed: tuple[str, ...] = ()  # null now; removed with the next batch

    def text(self) -> str:
        return f'{{"written":[{",".join(self.written)}],"removed":[{",".join(self.removed)}]}}'


@dataclass(frozen=True)
class StateOwner:
    """The task and the store of a part of a state."""

    place: Place
    kind: StateKind
    where: str  # the file or the server

    def __str__(self) -> str:
        return f"state {self.place.state!r} in {self.where}, task {self.place.index}"

    def mark(self, attempt: Attempt, journal: Journal) -> Mark:
        """The mark that is written with a batch."""
        word = {**self._identity(), **attempt._asdict(), "version": versions.STATE}
        if (moving := self.place.moving) is not None:
            word["spread"] = moving.spread
        return Mark(json.dumps(word), journal.text())

    def last(self, mark: Mark) -> Attempt:
        """The last attempt that wrote the state. Raises StateMismatch if another owner wrote it,
        and StoreUnreachable if another number of tasks has the values now."""
        found, attempt = self.read(mark)
        if is_moved(found):
            self._moved_away(found)
        return attempt

    def read(self, mark: Mark) -> tuple[dict[str, Any], Attempt]:
        """A mark, and its attempt. Raises StateMismatch if another owner wrote it."""
        try:
            found = json.loads(mark.word)
            attempt = Attempt(found["txid"], found["attempt"], found["epoch"])
        except (ValueError, TypeError, KeyError):
            self.corrupt("its mark", mark.word)
        if not all(type(number) is int and number >= 0 for number in attempt):
            self.corrupt("its mark", mark.word)
        way_out = "use the release that wrote it, or give the state another name"
        version = versions.STATE_MOVED if is_moved(found) else versions.STATE
        versions.check(str(self), found.get("version", 1), version, way_out)
        for what, ours in self._identity().items():
            if found.get(what) != ours:
                if what == "batches":
                    self._counted_elsewhere(attempt)
                hint = _CAN_CHANGE if what == "parallelism" else ""
                raise StateMismatch(
                    f"{self} was written with {what} {found.get(what)!r}, and this is {ours!r}: "
                    f"set that back, or {_ANOTHER}{hint}"
                )
        return found, attempt

    def check_home(self, found: Home, ours: Home) -> None:
        """Raise StateMismatch for a part of a task that does not exist with this parallelism."""
        if found.state == ours.state and found.task >= self.place.parallelism:
            raise StateMismatch(
                f"{self} has {self.place.parallelism} tasks, and task {found.task} has written "
                f"there, too: give it back the parallelism that it had, or {_ANOTHER}"
            )

    def journal(self, mark: Mark) -> Journal:
        """The keys of the last batch. Raises StateMismatch."""
        try:
            found = json.loads(mark.journal)
            return Journal(_texts(found["written"]), _texts(found["removed"]))
        except (ValueError, TypeError, KeyError):
            self.corrupt("its journal", mark.journal)

    def check(self, last: Attempt | None, attempt: Attempt) -> None:
        """Raise StaleAttempt, FailedBatch or StateMismatch unless `attempt` may write after
        `last`."""
        if last is None:
            return
        if order_of(attempt) < order_of(last):
            raise StaleAttempt(
                f"{self} was written by {describe_attempt(last)} already, so "
                f"{describe_attempt(attempt)} writes nothing: a later attempt or a later "
                "coordinator has taken over. If none has, then the store of the batches was "
                "removed and that of the state was not: remove both to start over"
            )
        if attempt.txid < last.txid:
            if self.place.moving is not None:
                raise FailedBatch(f"{self} was written meanwhile by an earlier life of its task")
            self._counted_elsewhere(last)

    def corrupt(self, what: str, found: str) -> NoReturn:
        raise StateMismatch(
            f"{self}: {what} cannot be read: {found[:100]!r}. Somebody else has written there; "
            "give the state another name, under which it begins empty"
        )

    def _moved_away(self, found: dict[str, Any]) -> NoReturn:
        tasks = found["next"][1] if found.get("next") else found.get("parallelism")
        if self.place.moving is None:
            raise StateMismatch(
                f"{self} is one of an ordinary stream that has {tasks} tasks now: {_ANOTHER}"
            )
        raise StoreUnreachable(
            f"{self} has moved to a run with {tasks} tasks, so this one writes nothing more. If "
            "that run has ended, start this one again, and the state moves back"
        )

    def _counted_elsewhere(self, last: Attempt) -> NoReturn:
        raise StateMismatch(
            f"{self} was written by {describe_attempt(last)}, and batches are counted elsewhere "
            "than they were then: by a spout with another id, or in another store or one that was "
            "removed. Give back the id and the store, or give the state another name"
        )

    def _identity(self) -> dict[str, Any]:
        return {
            "topology": self.place.topology,
            "batches": self.place.batches,
            "kind": self.kind.value,
            "parallelism": self.place.parallelism,
        }


def is_moved(word: dict[str, Any]) -> bool:
    """Whether the values of a part are with other tasks now, or are not all there yet."""
    return word.get("version") == versions.STATE_MOVED


def _texts(found: Sequence[Any]) -> tuple[str, ...]:
    return tuple(text_of_key(key_of(json.dumps(key))) for key in found)
