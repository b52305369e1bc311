"""Chooses which trees of a spout task are traced: an even sample of all, and every replay.

The chosen trees get a root that says so (see ids.py), so no other task has to decide. Each stretch
of 1/share trees has one chosen tree, not at the same place of each: a source may repeat itself, and
then equal places would always have the same kind of record.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import Any

import numpy as np

# A storm of failures must not slow the topology down, and the recorders keep few trees anyway.
TREES_AT_ONCE = 1000
TREES_PER_S = 100.0
_GOLDEN = 0.618_033_988_749_895  # its multiples, modulo 1, are spread evenly


class TraceChoice:
    """Of one spout task; `share`: of its trees, above 0."""

    def __init__(self, share: float) -> None:
        self._share = share
        self._chosen = 0  # stretches that had their tree
        self._seen = 0  # trees emitted
        self._next = 0  # the number of the next tree to choose
        self._budget, self._budget_s = float(TREES_AT_ONCE), 0.0

    def positions(self, count: int, attempts: Any, now: float) -> Sequence[int]:
        """Which of `count` new trees are traced; `attempts`: of all of them, or of each."""
        chosen: Sequence[int] = ()
        if not isinstance(attempts, int) or attempts > 1:
            again = np.asarray(attempts) > 1
            chosen = range(count) if again.ndim == 0 else np.flatnonzero(again).tolist()
        if self._next < self._seen + count:
            chosen = sorted({*chosen, *self._sampled(count)})
        self._seen += count
        return self._within_budget(chosen, now) if chosen else chosen

    def _sampled(self, count: int) -> list[int]:
        found = []
        while self._next < self._seen + count:
            found.append(self._next - self._seen)
            self._chosen += 1
            first, end = (ceil(one / self._share) for one in (self._chosen, self._chosen + 1))
            self._next = first + int(self._chosen * _GOLDEN % 1 * (end - first))
        return found

    def _within_budget(self, chosen: Sequence[int], now: float) -> Sequence[int]:
        gained = (now - self._budget_s) * TREES_PER_S
        self._budget, self._budget_s = min(self._budget + gained, float(TREES_AT_ONCE)), now
        chosen = chosen[: int(self._budget)]
        self._budget -= len(chosen)
        return chosen
