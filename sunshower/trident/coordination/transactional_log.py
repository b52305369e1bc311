"""Stores the metadata of batches (TransactionalLog), and which are committed (StoredProgress).

    path/7  {"from": 10, "to": 20}
    path/8  {"from": 20, "to": 30}      previous(9) → this; cleanup_before(8) removes 7

Storm: org.apache.storm.trident.topology.state.RotatingTransactionalState, TransactionalState
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain
from typing import Any, TypeVar

from sunshower import versions
from sunshower.errors import (
    BatchError,
    IncompleteBatch,
    NodeExists,
    NoNode,
    StaleAttempt,
    StateMismatch,
    StoreUnreachable,
    WrongVersion,
)
from sunshower.failures import Cause, Failure
from sunshower.records import Schema
from sunshower.runtime.tasks.bolts.dead_letters import dead_letter
from sunshower.state.tree import Node, Tree
from sunshower.topologies.retry import DeadLetter

# ---- batch letters -------------------------------------------------------------------------------

_LENGTH = 8  # of a packed failure


def packed_failure(failure: Failure, times: int) -> list[Any]:
    """A failure and the number of failures, as plain values that a BatchCommand carries."""
    return [
        *(str(failure.cause), failure.component, failure.task, failure.reason),
        *(failure.exception, failure.traceback, failure.worker, times),
    ]


def is_packed(value: Any) -> bool:
    """Whether a value looks like a result of `packed_failure`."""
    return isinstance(value, list) and len(value) == _LENGTH and value[0] in set(Cause)


def letters(
    spout: str, txid: int, schema: Schema, rows: Sequence[Any], why: Sequence[Any], time: float
) -> list[DeadLetter]:
    """One letter for each row of a batch; its message id is the txid."""
    failure, times = _unpacked(why)
    records = (dict(zip(schema.fields, row, strict=True)) for row in schema.rows(rows))
    return [dead_letter(spout, txid, record, failure, times, time=time) for record in records]


def letter_without_rows(
    spout: str, txid: int, error: IncompleteBatch, why: Sequence[Any], time: float
) -> DeadLetter:
    """The letter, without a record, for rows of a batch that can no longer be emitted."""
    failure, times = _unpacked(why)
    failure = replace(failure, reason=str(error), exception=type(error).__name__)
    return dead_letter(spout, txid, {}, failure, times, time=time)


def _unpacked(why: Sequence[Any]) -> tuple[Failure, int]:
    cause, *place, times = why
    return Failure(Cause(cause), *place), times


# ---- transactional log ---------------------------------------------------------------------------


def mismatch(path: str, content: Any, wanted: str) -> StateMismatch:
    """The error for a node with an unexpected value."""
    return StateMismatch(
        f"{path} holds {content!r:.200}, which is not {wanted}: it is corrupt, or of something "
        "else. Give the spout another id or the group another store, or remove the node to start "
        "over"
    )


def encode(value: Any, path: str) -> bytes:
    """A value for the node at `path`. Raises BatchError if JSON cannot represent it."""
    try:
        return json.dumps(value, allow_nan=False).encode()
    except (TypeError, ValueError) as error:
        raise BatchError(
            f"{value!r:.200} cannot be kept at {path}: {error}. Make it of numbers, strings, lists "
            "and objects, as in JSON"
        ) from error


def decode(node: Node, path: str) -> Any:
    """The value of a node. Raises StateMismatch if it is not JSON."""
    try:
        return json.loads(node.value)
    except ValueError as error:
        raise mismatch(path, node.value, "JSON") from error


class JsonNode:
    """A node as last read or written by this client. Each write names the version that it replaces,
    so neither a late write nor one of an earlier life can replace a later one."""

    def __init__(self, tree: Tree, path: str) -> None:
        self._tree = tree
        self.path = path
        self.version: int | None = None  # None: it does not exist
        self.value: Any = None  # as JSON decodes it, so a tuple is a list
        self.unanswered: list[bytes] = []  # writes that may have replaced the node, or still may

    def read(self) -> bool:
        """Read the node. Returns whether it exists; raises StateMismatch if it is not JSON."""
        node = self._tree.get(self.path)
        self.version = None if node is None else node.version
        self.value = None if node is None else decode(node, self.path)
        return node is not None

    def write(self, value: Any) -> None:
        """Write the node. Raises WrongVersion, NodeExists or NoNode if another client has written
        or removed it since."""
        written = encode(value, self.path)
        try:
            if self.version is None:
                self._tree.create(self.path, written)
                self.version = 0
            else:
                self.version = self._tree.set(self.path, written, self.version)
        except StoreUnreachable:
            self.unanswered.append(written)
            raise
        self.unanswered.clear()  # the new version makes late writes fail
        self.value = json.loads(written)

    def overwrite(self, value: Any) -> None:
        """Write the node, whatever it holds; clients that have read it before can write no more."""
        while True:
            self.read()
            with suppress(WrongVersion, NodeExists, NoNode):
                return self.write(value)

    def holds_unanswered(self) -> bool:
        """Whether the node holds what an own write without an answer has written, or an equal value
        of another client."""
        if not self.unanswered or (node := self._tree.get(self.path)) is None:
            return False
        return node.version == self._next_version and node.value in self.unanswered

    def accept_unanswered(self) -> None:
        """Let the next write replace what an own write without an answer has written."""
        self.version = self._next_version
        self.unanswered.clear()

    @property
    def _next_version(self) -> int:
        return 0 if self.version is None else self.version + 1


class TransactionalLog:
    """Values by txid below `path`, in memory and in the tree; opening it reads them all.

    Values are returned as JSON decodes them. Every method may raise StoreUnreachable; the next call
    then reads the nodes again. Only one process at a time may write below a path. Raises
    StateMismatch for a node of another kind.
    """

    def __init__(self, tree: Tree, path: str) -> None:
        self._tree = tree
        self._path = path
        self._known: dict[int, JsonNode] | None = None  # None: read them first
        self._nodes()

    def keys(self) -> list[int]:
        """The txids that have a value, ascending."""
        return sorted(self._nodes())

    def __contains__(self, txid: object) -> bool:
        return txid in self._nodes()

    def get(self, txid: int) -> Any:
        """The value of a txid; None if there is none."""
        node = self._nodes().get(txid)
        return None if node is None else node.value

    def previous(self, txid: int) -> Any:
        """The value of the greatest smaller txid that has one; None if there is none."""
        return self.get(max((key for key in self._nodes() if key < txid), default=0))

    def last(self) -> Any:
        """The value of the greatest txid; None if there is none."""
        return self.get(max(self._nodes(), default=0))

    def override(self, txid: int, value: Any) -> None:
        """Set a value, replacing any other. Raises BatchError if JSON cannot represent it."""
        path = self._path_of(txid)
        if txid in self and encode(self.get(txid), path) == encode(value, path):
            return
        try:
            try:
                self._write(txid, value)
            except NoNode:  # removed by a write without an answer
                self._write(txid, value)
        except (WrongVersion, NodeExists) as error:
            raise self._changed(path, error) from error

    def remove(self, txid: int) -> None:
        """Remove a value, if there is one."""
        if txid in self:
            try:
                self._delete(txid, self._nodes()[txid].version)
            except WrongVersion as error:
                raise self._changed(self._path_of(txid), error) from error

    def cleanup_before(self, txid: int) -> None:
        """Remove the values of all smaller txids, which nobody needs any more."""
        for key in self.keys():
            if key < txid:
                self._delete(key, None)

    def _delete(self, txid: int, version: int | None) -> None:
        nodes, self._known = self._nodes(), None
        with suppress(NoNode):
            self._tree.delete(self._path_of(txid), version)
        del nodes[txid]
        self._known = nodes

    def _write(self, txid: int, value: Any) -> None:
        """Write over the value that is known. Raises what `JsonNode.write` does; unless the write
        succeeds, all nodes are read again."""
        nodes = self._nodes()
        node = nodes.get(txid) or JsonNode(self._tree, self._path_of(txid))
        self._known = None
        node.write(value)
        nodes[txid] = node
        self._known = nodes

    def _nodes(self) -> dict[int, JsonNode]:
        if self._known is None:
            nodes: dict[int, JsonNode] = {}
            for name in self._tree.children(self._path):
                node = JsonNode(self._tree, f"{self._path}/{name}")
                if not (name.isascii() and name.isdecimal()):
                    raise mismatch(node.path, name, "the number of a batch")
                if node.read():
                    nodes[int(name)] = node
            self._known = nodes
        return self._known

    def _path_of(self, txid: int) -> str:
        return f"{self._path}/{txid}"

    @staticmethod
    def _changed(path: str, error: Exception) -> StoreUnreachable:
        return StoreUnreachable(
            f"{path} has changed meanwhile ({error}): a write that was not answered has come late. "
            "It is read again"
        )


# ---- stored progress -----------------------------------------------------------------------------
# The stored progress of a batch group: next batch, attempts, epoch and skipped batches.
#
#     <root>/<spout id>/coordinator/currtx         7              the batch to be committed next
#     <root>/<spout id>/coordinator/currattempts   {"7": 2}       the attempt begun last, by txid
#     <root>/<spout id>/coordinator/epoch          3              the lives of the coordinator
#     <root>/<spout id>/coordinator/skipped        {"7": [why]}   skipped batches, and why;
#                                                  {"8": 3}       counted failures of others
#     <root>/<spout id>/coordinator/topology       "words"        the topology that owns all this
#     <root>/<spout id>/coordinator/version        1              of these nodes; see versions.py
#
# Paths and values are Storm's, except the last four. Each life of the master rewrites all nodes
# but the last two. Every write names the version that it replaces, so a former life that still
# runs can write no more. Each spout of a group has the same nodes; where they differ, the highest
# value counts. Storm: org.apache.storm.trident.topology.MasterBatchCoordinator, TransactionalState

_CURRENT, _ATTEMPTS, _EPOCH, _SKIPPED = "currtx", "currattempts", "epoch", "skipped"
_NAMES = (_EPOCH, _ATTEMPTS, _SKIPPED, _CURRENT)  # in the order in which a new life writes them
_TOPOLOGY, _VERSION = "topology", "version"
_NONE: Mapping[int, int] = {}
_ROUNDS_MAX = 20  # how often another writer may interfere while a life begins

T = TypeVar("T")


class StoredProgress:
    """The nodes of one group, opened for one life of its master. Raises StoreUnreachable, after
    which a call may be repeated; StateMismatch for invalid nodes and for those of another topology;
    StaleAttempt once a later life has begun."""

    def __init__(self, tree: Tree, root: str, spouts: Sequence[str], topology: str) -> None:
        self._tree = tree
        self._folders = [coordinator_path(root, spout) for spout in spouts]
        self._nodes: dict[str, JsonNode] = {}
        self.current = 1  # the txid to be committed next
        self.attempts: dict[int, int] = {}  # of `current` and later ones: txid → attempt begun last
        self.skipped: dict[int, list[Any]] = {}  # likewise: txid → why, see packed_failure
        self.failures: dict[int, int] = {}  # likewise: txid → counted failures
        self.epoch = 1
        self._claim(_VERSION, versions.PROGRESS, _check_version)
        self._claim(_TOPOLOGY, topology, _check_owner)
        self._begin_life()

    def skip(self, txid: int, why: list[Any]) -> None:
        """Store that a batch is skipped, and why. From now on any attempt may emit its dead
        letters, so no later life may count its rows."""
        skipped = {
            number: reason for number, reason in self.skipped.items() if number >= self.current
        }
        failures = {number: times for number, times in self.failures.items() if number != txid}
        self._store_troubles(skipped | {txid: why}, failures)

    def begin(self, attempts: Mapping[int, int], failures: Mapping[int, int] = _NONE) -> None:
        """Store the attempts that have begun and the counted failures. Call it before the first
        tuple of a new attempt."""
        if failures != self.failures:
            self._store_troubles(self.skipped, failures)
        self._write_all(_ATTEMPTS, _named(attempts))
        self.attempts = dict(attempts)

    def committed(self, txid: int) -> None:
        """Store that a batch is committed and the next one is current."""
        self._write_all(_CURRENT, txid + 1)
        self.current = txid + 1

    def _store_troubles(self, skipped: dict[int, list[Any]], failures: Mapping[int, int]) -> None:
        self._write_all(_SKIPPED, _named({**failures, **skipped}))
        self.skipped, self.failures = skipped, dict(failures)

    def _claim(self, name: str, ours: T, check: Callable[[str, JsonNode, T], None]) -> None:
        """Write what marks the folders as ours, unless one has a mark that `check` refuses."""
        nodes = [JsonNode(self._tree, f"{folder}/{name}") for folder in self._folders]
        for folder, node in zip(self._folders, nodes, strict=True):
            if node.read():
                check(folder, node, ours)
        for node in nodes:
            if node.version is None:
                with suppress(NodeExists):  # a late write of a former life
                    node.write(ours)

    def _begin_life(self) -> None:
        for _ in range(_ROUNDS_MAX):
            self._read_all()
            try:
                self._write_all(_EPOCH, self.epoch)
                self._write_all(_ATTEMPTS, _named(self.attempts))
                self._write_all(_SKIPPED, _named({**self.failures, **self.skipped}))
                self._write_all(_CURRENT, self.current)
                return
            except StaleAttempt:
                continue  # another writer interfered: retry with a higher epoch
        raise StaleAttempt(
            f"another coordinator keeps writing below {self._folders[0]}: is the same topology "
            "running twice with one store? Stop one, or give it another store"
        )

    def _read_all(self) -> None:
        values: dict[str, list[Any]] = {name: [] for name in _NAMES}
        for folder in self._folders:
            for name in _NAMES:
                self._nodes[f"{folder}/{name}"] = node = JsonNode(self._tree, f"{folder}/{name}")
                if node.read():
                    values[name].append(_CHECKS[name](node.value, node.path))
        self.current = max(values[_CURRENT], default=1)
        self.epoch = max(values[_EPOCH], default=0) + 1
        self.attempts = {}
        for txid, attempt in chain.from_iterable(mapping.items() for mapping in values[_ATTEMPTS]):
            if txid >= self.current:
                self.attempts[txid] = max(attempt, self.attempts.get(txid, attempt))
        stored = chain.from_iterable(mapping.items() for mapping in values[_SKIPPED])
        troubles = {txid: trouble for txid, trouble in stored if txid >= self.current}
        self.skipped = {txid: why for txid, why in troubles.items() if is_packed(why)}
        self.failures = {txid: n for txid, n in troubles.items() if txid not in self.skipped}

    def _write_all(self, name: str, value: Any) -> None:
        for folder in self._folders:
            self._write(folder, self._nodes[f"{folder}/{name}"], value)

    def _write(self, folder: str, node: JsonNode, value: Any) -> None:
        while True:
            try:
                return node.write(value)
            except (WrongVersion, NodeExists, NoNode) as error:
                # A later life may have written the same value, but then the epoch before it.
                if not (node.holds_unanswered() and self._is_epoch_unchanged(folder)):
                    raise _stale(node.path, error) from error
                node.accept_unanswered()

    def _is_epoch_unchanged(self, folder: str) -> bool:
        path = f"{folder}/{_EPOCH}"
        now = self._tree.get(path)
        return now is not None and now.version == self._nodes[path].version


def _check_version(folder: str, node: JsonNode, ours: int) -> None:
    remedy = "use the release that wrote it, or give the batches another store"
    versions.check(folder, node.value, ours, remedy)


def _check_owner(folder: str, node: JsonNode, topology: str) -> None:
    if not isinstance(node.value, str):
        raise mismatch(node.path, node.value, "the id of a topology")
    if node.value != topology:
        raise StateMismatch(
            f"{folder} is of topology {node.value!r}, and here is {topology!r}, which would go on "
            "where that one is: give this one's spout another id, or its batches another store; if "
            f"it was only renamed, remove {node.path}"
        )


def coordinator_path(root: str, spout: str) -> str:
    """The node below which the coordinator of a spout stores its progress."""
    return f"{root.rstrip('/')}/{spout}/coordinator"


def current_batch(tree: Tree, folders: Sequence[str]) -> int:
    """The txid to be committed next, from the coordinator nodes of a group."""
    nodes = [JsonNode(tree, f"{folder}/{_CURRENT}") for folder in folders]
    return max((_txid(node.value, node.path) for node in nodes if node.read()), default=1)


def meta_path(coordinator: str) -> str:
    """The node below which the metadata of a spout's batches are, by txid."""
    return f"{coordinator}/meta"


def _stale(path: str, why: object) -> StaleAttempt:
    return StaleAttempt(
        f"{path} is of a later coordinator ({why}): this one stops. If no task was restarted, "
        "the same topology runs twice with one store: stop one, or give it another store"
    )


def _named(values: Mapping[int, T]) -> dict[str, T]:
    return {str(txid): value for txid, value in sorted(values.items())}


def _is_count(value: Any, least: int) -> bool:
    return type(value) is int and value >= least


def _txid(value: Any, path: str) -> int:
    if not _is_count(value, 1):
        raise mismatch(path, value, "the number of a batch, from 1 on")
    return int(value)


def _epoch(value: Any, path: str) -> int:
    if not _is_count(value, 1):
        raise mismatch(path, value, "the number of a coordinator's life, from 1 on")
    return int(value)


def _attempts(value: Any, path: str) -> dict[int, int]:
    if not _is_by_txid(value) or not all(_is_count(attempt, 0) for attempt in value.values()):
        raise mismatch(path, value, 'numbers of attempts by batch, such as {"7": 2}')
    return {int(name): attempt for name, attempt in value.items()}


def _skipped(value: Any, path: str) -> dict[int, Any]:
    good = _is_by_txid(value) and all(
        is_packed(reason) or _is_count(reason, 1) for reason in value.values()
    )
    if not good:
        raise mismatch(path, value, "failures by batch")
    return {int(name): reason for name, reason in value.items()}


def _is_by_txid(value: Any) -> bool:
    return isinstance(value, dict) and all(name.isascii() and name.isdecimal() for name in value)


_CHECKS: dict[str, Callable[[Any, str], Any]] = {
    _CURRENT: _txid,
    _ATTEMPTS: _attempts,
    _EPOCH: _epoch,
    _SKIPPED: _skipped,
}
