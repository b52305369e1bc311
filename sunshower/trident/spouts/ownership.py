"""Which partitions there are in a batch, and whose each is: told by the coordinator with each txid.

    {"txid": 7, "partitions": ["a", null, "c"], "gone": []}    "c" is of task 2 modulo the tasks
    … "run": "5f….1"    of a bounded spout: its declaration, and how often that was run to its end
    … "origin": "t-1", "added": ["c"]    which were not there in the first batch of that origin

A partition keeps its place while it is there, and nobody else moves when one vanishes: its place
stays empty until a new one takes it. What has vanished between two attempts of a batch is `gone`:
the batch has nothing of it now, and whoever has it writes that over what an earlier attempt wrote.
Storm: PartitionedTridentSpoutExecutor.Coordinator, .getPartitionsForTask (a list without gaps)
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from copy import deepcopy
from typing import Any

from sunshower.errors import TopologyError
from sunshower.stores.tree import Tree, parent
from sunshower.topologies.components import Context
from sunshower.trident.nodes import mismatch
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


def _is_one(metadata: Any) -> bool:
    return isinstance(metadata, dict) and isinstance(metadata.get("partitions"), list)


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


def tell(spout: Partitioned, metadata: Any) -> None:
    """What a spout is to know of a batch before it is asked for it."""
    spout.run, spout.added = metadata.get("run", ""), metadata.get("added", ())


class PartitionsCoordinator(BaseCoordinator):
    """See the port `Coordinator`. Where a batch must be the same again, each of its attempts has
    the partitions of the first."""

    def __init__(self, spout: Partitioned, tree: Tree, path: str, context: Context) -> None:
        self._spout = deepcopy(spout)
        self._spout.open(context)
        self._tree, self._emitters, self._metas = tree, f"{parent(path)}/user", f"{path}/meta"
        self._ended: set[tuple[str, str]] = set()  # runs and partitions
        self._is_new = True  # no batch has been begun in this life
        self._ends = type(spout).is_end is not Partitioned.is_end

    def initialize(self, txid: int, previous: Any, current: Any) -> Any:
        at, before = (txid - 1, previous) if current is None else (txid, current)
        if before is not None and not _is_one(before):
            raise mismatch(f"{self._metas}/{at}", before, 'like {"txid": 7, "partitions": ["a"]}')
        if current is not None and self._spout.kind is SpoutKind.TRANSACTIONAL:
            return current
        there = self._spout.partitions()
        if len({*there}) < len(there) or not all(there):
            raise TopologyError(
                f"{type(self._spout).__name__}.partitions() returns {[*there]!r:.200}; each "
                "partition needs a name, and no two the same one"
            )
        listed = before["partitions"] if before else []
        gone = [name for name in listed if name and name not in there] if current else []
        kept = places(listed, {*there, *gone})
        made = {"txid": txid, "partitions": kept, "gone": gone}
        if self._spout.declared:
            made["run"] = self._run(before or {}, begun=current is not None)
        if self._spout.origin is not None:
            made |= {"origin": self._spout.origin, "added": self._added(before, kept)}
        self._is_new = self._is_new and current is not None
        return made

    def _added(self, before: Any, names: Sequence[str | None]) -> list[str]:
        """Partitions of which everything is news."""
        if not before or before.get("origin", "") != self._spout.origin:
            return []
        old = {*before["partitions"]}.difference(before.get("added", ()))
        return [name for name in names if name is not None and name not in old]

    def _run(self, before: Mapping[str, Any], *, begun: bool) -> str:
        """Which run a batch is of. A task that is started again stays in that of the batch before;
        but not where that has been read to its end: then the topology was run once more."""
        run, declared = before.get("run", ""), self._spout.declared
        if not self._is_of_ours(run):
            return f"{declared}.1"
        again = self._is_new and not begun and self.is_last(before)
        return f"{declared}.{int(run.partition('.')[2]) + 1}" if again else str(run)

    def _is_of_ours(self, run: str) -> bool:
        return run.startswith(f"{self._spout.declared}.")

    def is_last(self, metadata: Any) -> bool:
        names = [name for name in metadata["partitions"] if name is not None]
        tell(self._spout, metadata)
        run = self._spout.run
        if not self._ends or not names or (self._spout.declared and not self._is_of_ours(run)):
            return False
        return all(self._at_end(name, run, metadata["txid"]) for name in names)

    def _at_end(self, name: str, run: str, txid: int) -> bool:
        if (run, name) not in self._ended:
            found = Shelf(self._tree, self._emitters, name).before(txid + 1)
            if at_end(self._spout, name, found):
                self._ended.add((run, name))
        return (run, name) in self._ended

    def close(self) -> None:
        self._spout.close()
