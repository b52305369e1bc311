"""What the master of a batch group must not forget: which batch is next, which attempts there were.

    <root>/<spout id>/coordinator/currtx         7              the batch to be committed next
    <root>/<spout id>/coordinator/currattempts   {"7": 2}       the attempt begun last, by txid
    <root>/<spout id>/coordinator/epoch          3              the lives of the coordinator

Paths and values are Storm's, but for the epoch: each life of the master writes all nodes anew, and
every write names the version it replaces, so a former life that is not dead cannot write any more.
Of several spouts each has the same; where they differ, the highest counts.
Storm: org.apache.storm.trident.topology.MasterBatchCoordinator, TransactionalState
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sunshower.errors import NodeExists, NoNode, StaleAttempt, StoreUnreachable, WrongVersion
from sunshower.stores.tree import Tree
from sunshower.trident.nodes import decode, encode, mismatch

_CURRENT, _ATTEMPTS, _EPOCH = "currtx", "currattempts", "epoch"
_NAMES = (_EPOCH, _ATTEMPTS, _CURRENT)  # in the order in which a new life writes them
_ROUNDS_MAX = 20  # in which somebody else may write while a life begins


@dataclass
class _Kept:
    """A node as it was read or written last."""

    version: int | None  # None: it is not there
    tried: bytes | None = None  # what may have been written: the store did not answer


class CoordinatorMemory:
    """The nodes of one group, opened for one life of its master.

    Raises StoreUnreachable, after which a call may be repeated; StateMismatch for nodes that
    nobody here can have written; StaleAttempt once a later life has begun.
    """

    def __init__(self, tree: Tree, root: str, spouts: Sequence[str]) -> None:
        self._tree = tree
        self._folders = [coordinator_path(root, spout) for spout in spouts]
        self._nodes: dict[str, _Kept] = {}
        self.current = 1  # the txid to be committed next
        self.attempts: dict[int, int] = {}  # of `current` and later ones: txid → begun last
        self.epoch = 1
        self._begin_life()

    def begin(self, attempts: Mapping[int, int]) -> None:
        """Keep which attempts have begun: to be called before the first tuple of a new one."""
        self._write_all(_ATTEMPTS, _named(attempts))
        self.attempts = dict(attempts)

    def committed(self, txid: int) -> None:
        """Keep that a batch is committed, and so the next one is current."""
        self._write_all(_CURRENT, txid + 1)
        self.current = txid + 1

    def _begin_life(self) -> None:
        for _ in range(_ROUNDS_MAX):
            self._read_all()
            try:
                self._write_all(_EPOCH, self.epoch)
                self._write_all(_ATTEMPTS, _named(self.attempts))
                self._write_all(_CURRENT, self.current)
                return
            except StaleAttempt:
                continue  # somebody has written in between: he is to be the former one
        raise StaleAttempt(
            f"another coordinator keeps writing below {self._folders[0]}: is the same topology "
            "running twice with one store? Stop one, or give it another root"
        )

    def _read_all(self) -> None:
        found: dict[str, list[Any]] = {name: [] for name in _NAMES}
        for folder in self._folders:
            for name in _NAMES:
                path = f"{folder}/{name}"
                node = self._tree.get(path)
                self._nodes[path] = _Kept(None if node is None else node.version)
                if node is not None:
                    found[name].append(_CHECKS[name](decode(node, path), path))
        self.current = max(found[_CURRENT], default=1)
        self.epoch = max(found[_EPOCH], default=0) + 1
        self.attempts = {}
        for one in found[_ATTEMPTS]:
            for txid, attempt in one.items():
                if txid >= self.current:
                    self.attempts[txid] = max(attempt, self.attempts.get(txid, attempt))

    def _write_all(self, name: str, value: Any) -> None:
        if any(kept.tried is not None for kept in self._nodes.values()):
            self._find_out()
        for folder in self._folders:
            self._write(f"{folder}/{name}", value)

    def _write(self, path: str, value: Any) -> None:
        kept, written = self._nodes[path], encode(value, path)
        try:
            if kept.version is None:
                self._tree.create(path, written)
                kept.version = 0
            else:
                kept.version = self._tree.set(path, written, kept.version)
        except (WrongVersion, NodeExists, NoNode) as error:
            raise _stale(path, error) from error
        except StoreUnreachable:
            kept.tried = written
            raise

    def _find_out(self) -> None:
        """Which writes without an answer were carried out, and whether anybody else has written."""
        for path, kept in self._nodes.items():
            node = self._tree.get(path)
            if (None if node is None else node.version) == kept.version:
                kept.tried = None  # it was not
                continue
            ours = 0 if kept.version is None else kept.version + 1
            if node is None or node.version != ours or node.value != kept.tried:
                raise _stale(path, "somebody has written there")
            kept.version, kept.tried = node.version, None


def coordinator_path(root: str, spout: str) -> str:
    """Below which node the coordinator of a spout keeps what it knows."""
    return f"{root.rstrip('/')}/{spout}/coordinator"


def meta_path(root: str, spout: str, txid: int | None = None) -> str:
    """Where it is kept what each batch of a spout is made of; that of one batch."""
    folder = f"{coordinator_path(root, spout)}/meta"
    return folder if txid is None else f"{folder}/{txid}"


def _stale(path: str, why: object) -> StaleAttempt:
    return StaleAttempt(
        f"{path} is of a later coordinator ({why}): this one stops. If no task was started anew, "
        "the same topology runs twice with one store: stop one, or give it another root"
    )


def _named(attempts: Mapping[int, int]) -> dict[str, int]:
    return {str(txid): attempt for txid, attempt in sorted(attempts.items())}


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
    if not isinstance(value, dict) or not all(
        name.isascii() and name.isdecimal() and _is_count(attempt, 0)
        for name, attempt in value.items()
    ):
        raise mismatch(path, value, 'numbers of attempts by batch, such as {"7": 2}')
    return {int(name): attempt for name, attempt in value.items()}


_CHECKS: dict[str, Callable[[Any, str], Any]] = {
    _CURRENT: _txid,
    _ATTEMPTS: _attempts,
    _EPOCH: _epoch,
}
