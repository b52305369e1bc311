"""Shared parts of both kinds of partitioned spouts: the adapter and the emitter's base class."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any, ClassVar

from sunshower.state.tree import Tree
from sunshower.topologies.components import Context
from sunshower.trident.coordination.attempts import Attempt
from sunshower.trident.spouts.ownership import PartitionsCoordinator
from sunshower.trident.spouts.partitioned import Partitioned
from sunshower.trident.spouts.port import BaseEmitter, Coordinator, Emitter, Rows
from sunshower.trident.spouts.settled import Settled
from sunshower.trident.spouts.shelf import Shelf


class PartitionsEmitter(BaseEmitter):
    """The base of partitioned emitters (port `Emitter`); subclasses implement `emit_batch`."""

    commits: ClassVar[bool]  # whether it takes part in the commit phase

    def __init__(self, spout: Partitioned, tree: Tree, path: str, context: Context) -> None:
        self._spout: Any = deepcopy(spout)
        self._spout.open(context)
        self._tree, self._path, self._context = tree, path, context
        self._settled = Settled(tree, path)
        self._shelves: dict[str, Shelf] = {}

    def emit_batch(self, attempt: Attempt, metadata: Any, rows: Rows) -> None:
        raise NotImplementedError

    def _look(self, name: str) -> Shelf:
        """Read the stored entries of a partition again."""
        self._shelves[name] = shelf = Shelf(self._tree, self._path, name)
        return shelf

    def success(self, attempt: Attempt) -> None:
        self._settled.heard(attempt.txid)
        for shelf in self._shelves.values():
            shelf.cleanup(attempt.txid)
        self._spout.committed(
            {name: shelf.before(attempt.txid + 1) for name, shelf in self._shelves.items()}
        )

    def close(self) -> None:
        self._spout.close()

    def figures(self) -> Mapping[str, float]:
        found: Mapping[str, float] = self._spout.figures()
        return found


class AdaptedPartitionedSpout:
    """Adapts a partitioned spout to the port `TridentSpout`, with the emitter of its kind."""

    def __init__(self, spout: Partitioned, emitter: type[PartitionsEmitter]) -> None:
        self._spout, self._emitter = spout, emitter
        self.emits, self.kind = spout.emits, spout.kind
        self.commits, self.parallelism_max = emitter.commits, spout.parallelism_max

    def coordinator(self, tree: Tree, path: str, context: Context) -> Coordinator:
        return PartitionsCoordinator(self._spout, tree, path, context)

    def emitter(self, tree: Tree, path: str, context: Context) -> Emitter:
        return self._emitter(self._spout, tree, path, context)
