"""Which partitions there are in a batch, and whose each is: told by the coordinator with each txid.

    {"txid": 7, "partitions": ["a", null, "c"], "gone": []}    "c" is of task 2 modulo the tasks

A partition keeps its place while it is there, and nobody else moves when one vanishes: its place
stays empty until a new one takes it. What has vanished between two attempts of a batch is `gone`:
the batch has nothing of it now, and whoever has it writes that over what an earlier attempt wrote.
Storm: PartitionedTridentSpoutExecutor.Coordinator, .getPartitionsForTask (a list without gaps)
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from copy import deepcopy
from typing import Any

from sunshower.errors import TopologyError
from sunshower.stores.tree import Tree, parent
from sunshower.topologies.components import Context
from sunshower.trident.spouts.partitioned import Partitioned
from sunshower.trident.spouts.port import SpoutKind
from sunshower.trident.spouts.shelf import NOTHING, Shelf
from sunshower.trident.spouts.unplanned import BaseCoordinator


def places(before: Sequence[str | None], there: Collection[str]) -> list[str | None]:
    """The list of a batch, from that of the batch before."""
    kept = [name if name in there else None for name in before]
    new = sorted({*there}.difference(before))
    for at, name in enumerate(kept):
        if name is None and new:
            kept[at] = new.pop(0)
    return [*kept, *new]


def own(metadata: Any, context: Context) -> list[str]:
    """Those of a task, each batch another one first, so that none waits for long."""
    mine = metadata["partitions"][context.index :: context.parallelism]
    names = [name for name in mine if name is not None]
    first = metadata["txid"] % max(len(names), 1)
    return names[first:] + names[:first]


def at_end(spout: Partitioned, name: str, metadata: Any) -> bool:
    """Whether nothing will ever come in a partition after a batch that left it there."""
    known = metadata is not NOTHING and metadata is not None
    return known and spout.is_end(name, metadata)


class PartitionsCoordinator(BaseCoordinator):
    """See the port `Coordinator`. Where a batch must be the same again, each of its attempts has
    the partitions of the first."""

    def __init__(self, spout: Partitioned, tree: Tree, path: str, context: Context) -> None:
        self._spout = deepcopy(spout)
        self._spout.open(context)
        self._tree, self._emitters = tree, f"{parent(path)}/user"
        self._ended: set[str] = set()
        self._ends = type(spout).is_end is not Partitioned.is_end

    def initialize(self, txid: int, previous: Any, current: Any) -> Any:
        if current is not None and self._spout.kind is SpoutKind.TRANSACTIONAL:
            return current
        there = self._spout.partitions()
        if len({*there}) < len(there) or not all(there):
            raise TopologyError(
                f"{type(self._spout).__name__}.partitions() returns {[*there]!r:.200}; each "
                "partition needs a name, and no two the same one"
            )
        before = current or previous
        listed = before["partitions"] if before else []
        gone = [name for name in listed if name and name not in there] if current else []
        kept = places(listed, {*there, *gone})
        return {"txid": txid, "partitions": kept, "gone": gone}

    def is_last(self, metadata: Any) -> bool:
        names = [name for name in metadata["partitions"] if name is not None]
        return self._ends and bool(names) and all(self._at_end(n, metadata["txid"]) for n in names)

    def _at_end(self, name: str, txid: int) -> bool:
        if name not in self._ended:
            found = Shelf(self._tree, self._emitters, name).before(txid + 1)
            if at_end(self._spout, name, found):
                self._ended.add(name)
        return name in self._ended

    def close(self) -> None:
        self._spout.close()
