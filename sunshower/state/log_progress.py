"""Tracks emitted and acked offsets of one partition of a log, and so the one that may be committed.

    ─── settled ───▶ contiguous ─── open, and acked out of order ───▶ emitted ─── not yet read ───▶

Offsets have gaps, from compaction and transaction markers. Offsets between two consecutively
emitted ones hold no message and count as settled.
Storm: org.apache.storm.kafka.spout.internal.OffsetManager, which scans all acked offsets for each
commit; here the cost per offset does not depend on how many are open.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

I64: TypeAlias = NDArray[np.int64]

_FIRST = 1024  # initial capacity
_STEP = 256  # length of the first block that is searched for an open offset


class Progress:
    """One partition from `start` on; takes 9 bytes per emitted, unsettled offset."""

    def __init__(self, start: int) -> None:
        self.emitted = start  # all below were emitted or hold no message
        self._offsets: I64 = np.empty(_FIRST, np.int64)  # emitted, ascending: [_head, _tail)
        self._acked = np.zeros(_FIRST, np.bool_)
        self._head = self._tail = 0

    @property
    def contiguous(self) -> int:
        """The offset that may be committed: all below it are settled."""
        return int(self._offsets[self._head]) if self._head < self._tail else self.emitted

    @property
    def unsettled(self) -> int:
        """The number of emitted offsets from `contiguous` on, acked ones included."""
        return self._tail - self._head

    @property
    def open(self) -> int:
        """The number of offsets that are emitted and not acked."""
        acked = self._acked[self._head : self._tail]
        return len(acked) - int(np.count_nonzero(acked))

    @property
    def holes(self) -> int:
        """The number of open offsets below the highest acked one."""
        acked = np.flatnonzero(self._acked[self._head : self._tail])
        return int(acked[-1]) + 1 - len(acked) if len(acked) else 0

    def emit(self, offsets: I64) -> None:
        """Record these offsets as emitted: ascending, none below `emitted`."""
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
        """Undo `emit` for all offsets from `offset` on."""
        live = self._offsets[self._head : self._tail]
        self._tail = self._head + int(np.searchsorted(live, offset))
        self.emitted = min(self.emitted, offset)

    def reached(self, offset: int) -> None:
        """No message below `offset` is left to emit: it is the partition's end, or past a gap."""
        self.emitted = max(self.emitted, offset)

    def ack(self, offsets: I64) -> None:
        """Settle these offsets; ignore those that are not open."""
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
        """Move `_head` past acked offsets, in growing blocks; each block is scanned once."""
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
        """Move unsettled offsets to the front, and double the arrays if they would be half full."""
        live = slice(self._head, self._tail)
        count_left = self._tail - self._head
        size = len(self._offsets)
        while 2 * (count_left + count) > size:
            size *= 2
        offsets, acked = np.empty(size, np.int64), np.zeros(size, np.bool_)
        offsets[:count_left], acked[:count_left] = self._offsets[live], self._acked[live]
        self._offsets, self._acked = offsets, acked
        self._head, self._tail = 0, count_left
