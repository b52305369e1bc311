"""Which messages the machinery has failed a moment ago: some of them may be to blame after all.

A process that dies takes down all that it holds, and its neighbours fail what was on its way. What
it was doing at that moment is known a little later, by root. By then the roots are no longer
pending, so root → message is kept for a while.
"""

from __future__ import annotations

from collections import deque

import numpy as np

from sunshower.runtime.ids import I64, U64

_KEPT_S = 10.0
_KEPT_MAX = 1 << 18  # roots: 4 MB


class Lately:
    """Two arrays for each lot of roots that failed together, no object for each root."""

    def __init__(self) -> None:
        self._lots: deque[tuple[float, U64, I64]] = deque()
        self._count = 0

    def note(self, roots: U64, numbers: I64, now: float) -> None:
        """The machinery failed `roots`; `numbers` are their messages."""
        self._lots.append((now, roots, numbers))
        self._count += len(roots)
        while self._lots[0][0] < now - _KEPT_S or self._count > _KEPT_MAX:
            self._count -= len(self._lots.popleft()[1])
            if not self._lots:
                return

    def take(self, roots: U64) -> list[int]:
        """The messages of those of `roots` that are known here; each root answers once."""
        found: list[int] = []
        for place, (at_s, here, numbers) in enumerate(self._lots):
            hit = np.isin(here, roots)
            if hit.any():
                found += numbers[hit].tolist()
                self._lots[place] = (at_s, here[~hit], numbers[~hit])
                self._count -= int(hit.sum())
        return found
