"""The position of a spout task in its source: which records were drawn, which are committed.

    0 ──── settled ────▶ committed ──── drawn, some of it settled ────▶ drawn ──── not yet drawn ──▶

A new life reads the source from the start, skips the committed records and emits the rest: records
settled above the lowest open one are emitted twice, and none is lost.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np

SKIP_RECORDS = 1 << 16  # in one call: lines of a text file in 25 ms, about a slice


class Position:
    """The numbers of one spout task's records: 0, 1, 2 … in the order of its source."""

    def __init__(self) -> None:
        self.next = 0  # the number of the next record to draw
        self.behind = 0  # records below it that the source still repeats
        self._drawn = 0  # a former life had drawn all records below this number
        self._owed = 0  # and perhaps all below this one
        self.end = np.inf  # no record from here on may be drawn
        self._nothing_since_s: float | None = None

    def begin_at(self, committed: int, drawn: int, owed: int = 0) -> None:
        """Continue a former life; called before anything is drawn. That life drew the first `drawn`
        records for certain, and none from `owed` on."""
        self.next, self._drawn, self._owed = committed, drawn, max(drawn, owed)

    @property
    def owed(self) -> int:
        """All records below this number were drawn, or may have been."""
        return max(self.next, self._owed)

    def rewind(self) -> None:
        """The source is read again from its beginning."""
        self.behind = self.next

    def stop(self) -> None:
        """Draw nothing new, except records that a former life drew and did not settle."""
        self.end = self.owed

    def wait(self, now: float, patience_s: float) -> None:
        """The source has nothing now. During a drain, a record that was perhaps drawn, and does not
        come again within `patience_s`, counts as never drawn."""
        if self.end == np.inf or self.next < self._drawn:
            return
        if self._nothing_since_s is None:
            self._nothing_since_s = now
        elif now - self._nothing_since_s >= patience_s:
            self.end = self.next

    @property
    def at_end(self) -> bool:
        """Whether no further record may be drawn."""
        return self.next >= self.end

    def room(self, count: int) -> int:
        """How many of the next `count` records may be drawn."""
        return int(min(count, self.end - self.next))

    def advance(self, count: int) -> range:
        """Note that `count` more records are drawn. Returns their numbers."""
        first, self.next = self.next, self.next + count
        if count:
            self._nothing_since_s = None
        return range(first, self.next)


def skip(there_now: Iterator[Any], count: int) -> int:
    """Drop up to `count` records without a Python loop. Returns how many were dropped."""
    last = deque(enumerate(islice(there_now, count), 1), maxlen=1)
    return last[0][0] if last else 0
