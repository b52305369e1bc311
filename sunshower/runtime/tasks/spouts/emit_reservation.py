"""A durable upper bound on the records that a spout task may have drawn.

A machine that dies takes the flight recorder with it, and the master knows only slightly older
numbers. Outside a drain that is harmless: the next life draws the records again. But a task that
restarts during a drain must know where to stop. So a task draws no record beyond the reservation
before it has moved the reservation; a new life without a crash report re-emits all records below
it. That is a few seconds' worth of records too many: if the source slows down, the reservation
moves back to that distance, and at least _LEAST records.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Protocol

from sunshower.clock import Clock
from sunshower.errors import Unavailable

_LEAST = 64
_MOST = 1 << 20
_OFTEN_S = 1.0  # if it moves twice within this time, the next step is twice as far
_SELDOM_S = 4.0


class ReservationStore(Protocol):
    """Stores reservations; RayReservationStore of actors/store.py survives the loss of a machine.

    Raises Unavailable if it does not answer; a write may have happened nevertheless.
    """

    def read(self, task: int) -> int:
        """The number last written for a spout task; 0 if none was."""

    def write(self, task: int, number: int) -> None:
        """Return once the number is durable."""


class EmitReservation:
    """The reservation of one spout task."""

    def __init__(self, task: int, marks: ReservationStore, clock: Clock) -> None:
        self._task, self._marks, self._clock = task, marks, clock
        self.at = marks.read(task)  # no life has drawn a record from here on
        self._inherited = self.at  # a former life may have drawn all below
        self._step = _LEAST
        self._moved_s = -_SELDOM_S
        self._first = 0  # the next record to draw when it was moved

    def room(self, first: int, count: int) -> int:
        """How many of `count` records from `first` on may be drawn now; at least 1 if `count` is.

        Raises the store's error if the reservation cannot be moved; the caller retries later.
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
        """Note that no record from `end` on will ever be drawn."""
        if end < self.at:
            self._move_back(end)

    def _draw_near(self, first: int, now: float) -> None:
        """Move the reservation closer to `first`, because the source has become slow."""
        pace = max(0, first - self._first) / (now - self._moved_s)
        self._moved_s, self._first = now, first
        self._step = int(min(max(_LEAST, _SELDOM_S * pace), self._step))
        if (to := max(first + self._step, self._inherited)) < self.at:
            self._move_back(to)

    def _stride(self, since_s: float) -> int:
        """How far to move it, `since_s` after the last move."""
        if since_s < _OFTEN_S:
            return min(2 * self._step, _MOST)
        return max(self._step // 2, _LEAST) if since_s > _SELDOM_S else self._step

    def _move_back(self, to: int) -> None:
        """Move it back, if the store answers; else the next life re-emits more than necessary."""
        with suppress(Unavailable):
            self._move(to)

    def _move(self, to: int) -> None:
        self.at = min(self.at, to)  # until it is certain which of the two is stored
        self._marks.write(self._task, to)
        self.at = to
