"""How far one partition is settled: from what is emitted and acked to what may be committed.

    ─── settled ───▶ contiguous ─── open, and acked out of order ───▶ emitted ─── not yet read ───▶

Offsets have gaps: a compacted topic has removed some, a transaction's markers take others. What
lies between two offsets that were emitted one after the other is not there, and counts as settled.
Storm: org.apache.storm.kafka.spout.internal.OffsetManager, which walks all acked offsets again for
each commit; here an offset costs the same however many are open.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

I64: TypeAlias = NDArray[np.int64]

_FIRST = 1024  # places at the beginning
_STEP = 256  # how far to look at first for what is open


class Progress:
    """One partition from `start` on. What is emitted and not settled takes 9 bytes each."""

    def __init__(self, start: int) -> None:
        self.emitted = start  # all below were emitted, or are not there
        self._offsets: I64 = np.empty(_FIRST, np.int64)  # emitted, ascending: [_head, _tail)
        self._acked = np.zeros(_FIRST, np.bool_)
        self._head = self._tail = 0

    @property
    def contiguous(self) -> int:
        """All below are settled: what may be committed."""
        return int(self._offsets[self._head]) if self._head < self._tail else self.emitted

    @property
    def unsettled(self) -> int:
        """Offsets from `contiguous` on that were emitted, also those that are acked by now."""
        return self._tail - self._head

    @property
    def open(self) -> int:
        """How many are emitted and not acked."""
        acked = self._acked[self._head : self._tail]
        return len(acked) - int(np.count_nonzero(acked))

    @property
    def holes(self) -> int:
        """How many of these lie below one that is acked."""
        acked = np.flatnonzero(self._acked[self._head : self._tail])
        return int(acked[-1]) + 1 - len(acked) if len(acked) else 0

    def emit(self, offsets: I64) -> None:
        """These are on their way: ascending, from `emitted` on."""
        count = len(offsets)
        if not count:
            return
        assert offsets[0] >= self.emitted, f"{offsets[0]} was emitted before {self.emitted}"
        if self._tail + count > len(self._offsets):
            self._make_room(count)
        self._offsets[self._tail : self._tail + count] = offsets
        self._acked[self._tail : self._tail + count] = False
        self._tail += count
        self.emitted = int(offsets[-1]) + 1

    def back(self, offset: int) -> None:
        """From `offset` on nothing was emitted after all."""
        live = self._offsets[self._head : self._tail]
        self._tail = self._head + int(np.searchsorted(live, offset))
        self.emitted = min(self.emitted, offset)

    def reached(self, offset: int) -> None:
        """Below `offset` is nothing that was not emitted: the end of the partition, or a gap."""
        self.emitted = max(self.emitted, offset)

    def ack(self, offsets: I64) -> None:
        """These are settled; what is not open is ignored."""
        live = self._offsets[self._head : self._tail]
        if not len(live) or not len(offsets):
            return
        if live[-1] - live[0] == len(live) - 1:  # without gaps
            places = offsets - live[0]
            places = places[(places >= 0) & (places < len(live))]
        else:
            places = np.minimum(np.searchsorted(live, offsets), len(live) - 1)
            places = places[live[places] == offsets]
        self._acked[places + self._head] = True
        self._advance()

    def _advance(self) -> None:
        """Pass over what is acked. Nothing is looked at twice but the end of a step."""
        step = _STEP
        while self._head < self._tail:
            block = self._acked[self._head : min(self._head + step, self._tail)]
            first_open = int(block.argmin())
            if not block[first_open]:
                self._head += first_open
                return
            self._head += len(block)
            step *= 4

    def _make_room(self, count: int) -> None:
        """Move what is unsettled to the front, of a larger table if it would be half full."""
        live = slice(self._head, self._tail)
        kept = self._tail - self._head
        size = len(self._offsets)
        while 2 * (kept + count) > size:
            size *= 2
        offsets, acked = np.empty(size, np.int64), np.zeros(size, np.bool_)
        offsets[:kept], acked[:kept] = self._offsets[live], self._acked[live]
        self._offsets, self._acked = offsets, acked
        self._head, self._tail = 0, kept
