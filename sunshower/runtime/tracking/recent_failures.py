"""Recently failed tuples, kept for ten seconds for late crash reports.

A crash fails all trees that the process held, and its peers fail those in transit. The crash report
names the roots that were being executed, but arrives later, when these are no longer pending. With
root → message it can still charge an attempt to the tuple that caused the crash.
"""

from __future__ import annotations

from collections import deque

import numpy as np

from sunshower.runtime.tracking.ids import I64, U64

_KEPT_S = 10.0
_KEPT_MAX = 1 << 18  # roots: 4 MB


class RecentFailures:
    """Two arrays for each group of roots that failed together, no object for each root."""

    def __init__(self) -> None:
        self._groups: deque[tuple[float, U64, I64]] = deque()
        self._count = 0

    def note(self, roots: U64, numbers: I64, now: float) -> None:
        """Add `roots` that the runtime failed, not user code; `numbers` are their messages."""
        self._groups.append((now, roots, numbers))
        self._count += len(roots)
        while self._groups[0][0] < now - _KEPT_S or self._count > _KEPT_MAX:
            self._count -= len(self._groups.popleft()[1])
            if not self._groups:
                return

    def take(self, roots: U64) -> list[int]:
        """Return the messages of those of `roots` that are kept here, and remove them."""
        found: list[int] = []
        for place, (at_s, here, numbers) in enumerate(self._groups):
            hit = np.isin(here, roots)
            if hit.any():
                found += numbers[hit].tolist()
                self._groups[place] = (at_s, here[~hit], numbers[~hit])
                self._count -= int(hit.sum())
        return found
