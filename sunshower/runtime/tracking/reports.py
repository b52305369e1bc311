"""Collects the reports of tasks by acker shard, and maps roots to shards."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from sunshower.failures import Failure
from sunshower.runtime.tracking.ids import (
    I64,
    U64,
    by_incarnation,
    fold,
    generations_of,
    incarnations_of,
    is_newer,
    slots_of,
)

if TYPE_CHECKING:
    from sunshower.runtime.tracking.batch import Batch

_TEXTS_BYTES = 1 << 18  # of the failures for one shard, or one spout, in one packet


class FailedRoots(list[tuple[int, Failure]]):
    """Roots, and why their trees failed: beyond 256 KiB of texts, failures are kept short."""

    text_bytes = 0

    def add(self, fails: Iterable[tuple[int, Failure]]) -> None:
        """Add roots with their failures, which several of them may share."""
        former = stored = None
        for root, failure in fails:
            if stored is None or failure is not former:
                former = stored = failure
                if self.text_bytes + failure.size > _TEXTS_BYTES:
                    stored = failure.short
                self.text_bytes += stored.size
            self.append((root, stored))


@dataclass(slots=True)
class ShardReport:
    """The reports for one acker shard since the last `take`."""

    starts: list[tuple[U64, U64]] = field(default_factory=list)
    acks: list[tuple[U64, U64]] = field(default_factory=list)
    fails: FailedRoots = field(default_factory=FailedRoots)
    asks: list[U64] = field(default_factory=list)  # request the ages of these; see pending.py

    def roots(self) -> list[U64]:
        """Return the roots of all starts and acks."""
        return [roots for roots, _ in (*self.starts, *self.acks)]


class Shards:
    """Root → acker task: depends on incarnation and slot, never on the generation.

    `shards[k]` lists the acker tasks that share the slots of spout task k (see Plan.shards).
    """

    def __init__(self, shards: Sequence[Sequence[int]]) -> None:
        self._shards = shards
        self._only = shards[0][0] if {tuple(s) for s in shards} == {(shards[0][0],)} else None

    def split(self, roots: U64) -> list[tuple[int, slice | I64]]:
        """Return (acker task, indices into `roots`) for every acker that follows some of them."""
        if self._only is not None:
            return [(self._only, slice(None))]
        parts = list[tuple[int, slice | I64]]()
        for incarnation, same in by_incarnation(roots):
            tasks = self._shards[incarnation % len(self._shards)]
            if len(tasks) == 1:
                parts.append((tasks[0], same))
                continue
            residues = slots_of(roots[same]) % len(tasks)
            for residue, task in enumerate(tasks):
                which = np.flatnonzero(residues == residue)
                if len(which):
                    parts.append((task, which if isinstance(same, slice) else same[which]))
        return parts


class NextPacket(Protocol):
    """The content of the next packet to another worker."""

    reports: defaultdict[int, ShardReport]  # by acker task


class LinkToAcker(Protocol):
    """A link to another worker; see PeerLink."""

    @property
    def content(self) -> NextPacket: ...


class Reports:
    """Writes one worker's reports: those for the ackers of other workers into the next packet to
    these, the others where they wait for `take`. Without ackers, reports are dropped."""

    def __init__(self, shards: Shards | None, links: Mapping[int, LinkToAcker] = {}) -> None:
        """`links`: acker task of another worker → the link to that worker."""
        self._shards, self._links = shards, links
        self.tracked = shards is not None  # whether there are ackers
        self.waiting: defaultdict[int, ShardReport] = defaultdict(ShardReport)  # by acker task
        self.failed: list[U64] = []  # trees whose messages the spouts here will emit again

    def start(self, roots: U64, xors: U64) -> None:
        """A spout task emitted these roots, each with edges that XOR to `xors`."""
        if self._shards is not None and len(roots):
            for task, which in self._shards.split(roots):
                self._to(task).starts.append((roots[which], xors[which]))

    def ack(self, roots: U64, xors: U64) -> None:
        """A bolt acked inputs of these roots; see ids.py for `xors`."""
        if self._shards is not None and len(roots):
            roots, xors = fold(roots, xors)
            for task, which in self._shards.split(roots):
                self._to(task).acks.append((roots[which], xors[which]))

    def fail(self, roots: U64, failure: Failure) -> None:
        """A part of each of these trees cannot be processed."""
        if self._shards is not None and len(roots):
            for task, which in self._shards.split(roots):
                self._to(task).fails.add((root, failure) for root in roots[which].tolist())

    def ask(self, roots: U64) -> None:
        """A spout task requests the time since the last report on each of these trees."""
        if self._shards is not None and len(roots):
            for task, which in self._shards.split(roots):
                self._to(task).asks.append(roots[which])

    def take(self) -> dict[int, ShardReport]:
        """Remove and return the waiting reports: acker task of this worker → report."""
        waiting = self.waiting
        if waiting:
            self.waiting = defaultdict(ShardReport)
        return waiting

    def _to(self, task: int) -> ShardReport:
        link = self._links.get(task)
        return (self.waiting if link is None else link.content.reports)[task]


# ---- failed trees --------------------------------------------------------------------------------
# Drops queued tuples whose trees have failed already.
#
# A spout that will replay a message announces to all workers that its tree failed. An input is
# dropped only if all of its trees have failed: never because of its age, and never if untracked.
# An announcement may be lost, and is forgotten after one or two minutes, long before a slot's
# generations wrap around; the input is then processed, and its reports are ignored as late.

_KEPT_S = 60.0


class FailedTrees:
    """The last failed generation of each slot, per spout task: 4 bytes a slot.

    Generations up to that one have ended too, because a slot has one tree at a time.
    """

    def __init__(self, spouts: int) -> None:
        self._spouts = spouts  # incarnation i belongs to spout task i % spouts
        self._incarnation: dict[int, int] = {}  # spout task → the incarnation of its table
        self._failed: dict[int, NDArray[np.uint32]] = {}
        self._former: FailedTrees | None = None  # the entries of the previous period
        self._turned_s = 0.0

    def turn(self, now: float) -> None:
        """Forget entries that are more than one or two minutes old."""
        if now - self._turned_s >= _KEPT_S:
            if self._failed:
                self._former = FailedTrees(self._spouts)
                self._former._failed, self._failed = self._failed, {}
                self._former._incarnation, self._incarnation = self._incarnation, {}
            else:
                self._former = None
            self._turned_s = now

    def note(self, roots: U64) -> None:
        """Add trees that failed; their spouts will emit the messages again with other roots."""
        for incarnation, same in by_incarnation(roots):
            mine = roots[same]
            slots, spout = slots_of(mine), incarnation % self._spouts
            table = self._failed.get(spout)
            if table is None or self._incarnation[spout] != incarnation:
                table = np.zeros(1024, np.uint32)
            if (size := int(slots.max()) + 1) > len(table):
                table = np.concatenate((table, np.zeros(max(size, len(table)), np.uint32)))
            table[slots] = generations_of(mine)
            self._failed[spout], self._incarnation[spout] = table, incarnation

    def have_failed(self, roots: U64) -> NDArray[np.bool_]:
        """Which of `roots` are known to have failed; shape (n,)."""
        has_failed = np.zeros(len(roots), np.bool_)
        incarnations = incarnations_of(roots)
        for spout, table in self._failed.items():
            mine = np.flatnonzero(incarnations == self._incarnation[spout])
            slots = slots_of(roots[mine])
            known = slots < len(table)
            mine, failed = mine[known], table[slots[known]]
            has_failed[mine] = (failed != 0) & ~is_newer(generations_of(roots[mine]), failed)
        if self._former is not None:
            has_failed |= self._former.have_failed(roots)
        return has_failed

    def without_failed(self, batch: Batch) -> Batch:
        """Return a batch without the records whose trees have all failed."""
        if not (self._failed or self._former) or not batch.tracked:
            return batch
        failed = self.have_failed(batch.roots)
        if not failed.any():
            return batch
        return batch.select(np.flatnonzero(~batch.where_all(failed)))
