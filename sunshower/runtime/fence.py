"""How far a spout task may draw: a number that outlives its process, and its machine, too.

Where a process dies, its black box may die with it, and the master has heard of what was drawn a
moment ago at best. While the source goes on that does no harm: the next life draws all of it anew.
But one that is born into a drain has to know where to end. So no record is drawn from the fence on
before the fence was moved; a new life that finds no black box owes all below it. That is a few
seconds' worth too much: a fence that is farther away than that follows a source that has become
slow, and _LEAST at any pace.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Protocol

from sunshower.clock import Clock
from sunshower.errors import Unavailable

_LEAST = 64
_MOST = 1 << 20
_OFTEN_S = 1.0  # moved twice within this, it is moved twice as far the next time
_SELDOM_S = 4.0


class Marks(Protocol):
    """Where fences are kept; RayMarks of actors/store.py is one that outlives machines.

    Raises Unavailable where it does not answer; a write may have happened all the same.
    """

    def read(self, task: int) -> int:
        """What was written last for a spout task; 0: nothing was."""

    def write(self, task: int, number: int) -> None:
        """Return when it is safe."""


class Fence:
    """One spout task's."""

    def __init__(self, task: int, marks: Marks, clock: Clock) -> None:
        self._task, self._marks, self._clock = task, marks, clock
        self.at = marks.read(task)  # no life has drawn a record from here on
        self._inherited = self.at  # a former life may have drawn all below
        self._step = _LEAST
        self._moved_s = -_SELDOM_S
        self._first = 0  # what was to be drawn next when it was moved

    def room(self, first: int, count: int) -> int:
        """How many of `count` records from `first` on may be drawn now; never 0 of some.

        Raises what the store raises where a fence cannot be moved on; then ask again later.
        """
        now = self._clock.now()
        if first + count > self.at and self.at - first < self._step // 2:
            step = self._stride(now - self._moved_s)
            self._move(first + step)
            self._step, self._moved_s, self._first = step, now, first
        elif now - self._moved_s > _SELDOM_S and self.at - first > 2 * _LEAST:
            self._draw_near(first, now)
        return min(count, self.at - first)

    def close(self, end: int) -> None:
        """Nothing from `end` on is ever drawn."""
        if end < self.at:
            self._move_back(end)

    def _draw_near(self, first: int, now: float) -> None:
        """The source has become slow: the fence follows it."""
        pace = max(0, first - self._first) / (now - self._moved_s)
        self._moved_s, self._first = now, first
        self._step = int(min(max(_LEAST, _SELDOM_S * pace), self._step))
        if (to := max(first + self._step, self._inherited)) < self.at:
            self._move_back(to)

    def _stride(self, since_s: float) -> int:
        """How far to move it, so long after the last time."""
        if since_s < _OFTEN_S:
            return min(2 * self._step, _MOST)
        return max(self._step // 2, _LEAST) if since_s > _SELDOM_S else self._step

    def _move_back(self, to: int) -> None:
        """A store that is away keeps the former fence: the next life owes more than it need."""
        with suppress(Unavailable):
            self._move(to)

    def _move(self, to: int) -> None:
        self.at = min(self.at, to)  # until it is known which of the two the store has
        self._marks.write(self._task, to)
        self.at = to
