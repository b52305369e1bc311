"""Drops queued tuples whose trees have failed already.

A spout that will replay a message announces to all workers that its tree failed. An input is
dropped only if all of its trees have failed: never because of its age, and never if untracked. An
announcement may be lost, and is forgotten after one or two minutes, long before a slot's
generations wrap around; the input is then processed, and its reports are ignored as late.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sunshower.runtime.tracking.ids import (
    U64,
    generations_of,
    incarnations_of,
    is_newer,
    slots_of,
)
from sunshower.runtime.transport.batch import Batch

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
        incarnations = incarnations_of(roots)
        for incarnation in np.unique(incarnations).tolist():
            mine = roots[incarnations == incarnation]
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
        if batch.shared:
            failed = np.full(len(batch), failed.all())
        elif batch.offsets is not None:  # each record has several trees, or none
            counts = np.diff(batch.offsets)
            ends = np.concatenate(([0], np.cumsum(failed)))[batch.offsets]
            failed = (counts > 0) & (np.diff(ends) == counts)
        return batch.select(np.flatnonzero(~failed))
