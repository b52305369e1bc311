"""The partitions of a batch and the task of each, as the coordinator assigns them per txid.

    {"txid": 7, "partitions": ["a", null, "c"], "gone": []}    "c" is of task 2 modulo the tasks
    … "run": "5f….1"    of a bounded spout: its declaration, and the number of the run
    … "origin": "t-1", "added": ["c"]    partitions added since the first batch of that origin

A partition keeps its index while it exists. When another one vanishes, its index stays empty until
a new partition takes it. A partition that vanished between two attempts of a batch is `gone`: the
batch has none of its rows now, and its task stores that over what an earlier attempt stored. Storm:
PartitionedTridentSpoutExecutor.Coordinator, .getPartitionsForTask (a list without gaps)
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from copy import deepcopy
from typing import Any

from sunshower.errors import TopologyError
from sunshower.state.tree import Tree, parent
from sunshower.topologies.components import Context
from sunshower.trident.coordination.transactional_log import mismatch
from sunshower.trident.spouts.partition_log import NOTHING, PartitionLog
from sunshower.trident.spouts.partitioned import Partitioned
from sunshower.trident.spouts.port import Coordinator, SpoutKind


def places(before: Sequence[str | None], there: Collection[str]) -> list[str | None]:
    """The partition list of a batch, derived from that of the batch before."""
    kept = [name if name in there else None for name in before]
    new = sorted({*there}.difference(before))
    for at, name in enumerate(kept):
        if name is None and new:
            kept[at] = new.pop(0)
    return [*kept, *new]


def _is_one(metadata: Any) -> bool:
    return isinstance(metadata, dict) and isinstance(metadata.get("partitions"), list)


def own(metadata: Any, context: Context) -> list[str]:
    """The partitions of a task. Each batch starts with another one, so that none is starved."""
    mine = metadata["partitions"][context.index :: context.parallelism]
    names = [name for name in mine if name is not None]
    first = metadata["txid"] % max(len(names), 1)
    return names[first:] + names[:first]


def at_end(spout: Partitioned, name: str, metadata: Any) -> bool:
    """Whether a partition will have no more rows after a batch with this metadata."""
    known = metadata is not NOTHING and metadata is not None
    return known and spout.is_end(name, metadata)


def begin_batch(spout: Partitioned, metadata: Any) -> None:
    """Call the spout's `begin_batch` for the batch with these metadata."""
    spout.begin_batch(metadata.get("run", ""), metadata.get("added", ()))


class PartitionsCoordinator(Coordinator):
    """Assigns partitions to batches (port `Coordinator`). Of a transactional spout every
    attempt has the partitions of the first."""

    def __init__(self, spout: Partitioned, tree: Tree, path: str, context: Context) -> None:
        self._spout = deepcopy(spout)
        self._spout.open(context)
        self._tree, self._emitters, self._metas = tree, f"{parent(path)}/user", f"{path}/meta"
        self._ended: set[tuple[str, str]] = set()  # runs and partitions
        self._is_new = True  # no batch has begun in this life
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
            if self._spout.origin and before and before.get("origin", "") != self._spout.origin:
                self._begin_anew(txid, kept)
        self._is_new = self._is_new and current is not None
        return made

    def _begin_anew(self, txid: int, names: Sequence[str | None]) -> None:
        """Tell the spout what the store has of its partitions."""
        logs = {one: PartitionLog(self._tree, self._emitters, one) for one in names if one}
        known = {name: log.before(txid) for name, log in logs.items()}
        self._spout.begins_anew(
            {name: one for name, one in known.items() if one is not NOTHING and one is not None}
        )

    def _added(self, before: Any, names: Sequence[str | None]) -> list[str]:
        """Partitions that were added after the origin: all their records count."""
        if not before or before.get("origin", "") != self._spout.origin:
            return []
        old = {*before["partitions"]}.difference(before.get("added", ()))
        return [name for name in names if name is not None and name not in old]

    def _run(self, before: Mapping[str, Any], *, begun: bool) -> str:
        """The run of a batch. A restarted task continues the run of the batch before, unless that
        run has been read to its end: then the topology was started once more."""
        run, declared = before.get("run", ""), self._spout.declared
        if not self._is_of_ours(run):
            return f"{declared}.1"
        again = self._is_new and not begun and self.is_last(before)
        return f"{declared}.{int(run.partition('.')[2]) + 1}" if again else str(run)

    def _is_of_ours(self, run: str) -> bool:
        return run.startswith(f"{self._spout.declared}.")

    def is_last(self, metadata: Any) -> bool:
        return self.has_ended(metadata, metadata["txid"] + 1)

    def has_ended(self, metadata: Any, current: int) -> bool:
        names = [name for name in metadata["partitions"] if name is not None]
        begin_batch(self._spout, metadata)
        run = metadata.get("run", "")
        if not self._ends or not names or (self._spout.declared and not self._is_of_ours(run)):
            return False
        return all(self._at_end(name, run, current) for name in names)

    def _at_end(self, name: str, run: str, current: int) -> bool:
        if (run, name) not in self._ended:
            found = PartitionLog(self._tree, self._emitters, name).before(current)
            if at_end(self._spout, name, found):
                self._ended.add((run, name))
        return (run, name) in self._ended

    def close(self) -> None:
        self._spout.close()
