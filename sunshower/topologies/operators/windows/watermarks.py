"""Watermarks: the event time up to which all records are processed, sent to windows downstream.

Each spout task sends a watermark to every task of a window, several times a second. It is a record
with a tree of its own, and windows that end by it belong to that tree. So the spout task learns
whether all of their rows were processed, and sends the watermark again if not. A record older than
`pending` cannot arrive any more: all such records are processed, which includes that they are in
their window. So watermarks need no order relative to records, however they travel.
"""

from __future__ import annotations

from math import inf
from typing import NamedTuple

from sunshower.topologies.operators.windows.event_times import Time, lowest, minus

WATERMARKS = "__watermarks"  # the stream that they are sent on


class Watermark(NamedTuple):
    """One watermark of one spout task. Times are event times, in the unit of their field."""

    task: int  # the spout task
    life: int  # its incarnation
    number: int  # 1, 2, 3 … in this life; one that failed is sent again with its number
    attempt: int  # 1, 2, 3 … of this number
    confirmed: int  # the tree of this one is complete, and of all before it; 0: none
    pending: Time  # the lowest event time of a record that is not processed; inf: there is none
    reached: Time  # the highest event time emitted, of the partition where it is lowest
    idle: bool  # no partition of this task has had records for a while
    ended: bool  # there will be no further record


class ReachedTime:
    """The event time that all sources of a window have reached."""

    def __init__(self, sources: int) -> None:
        self._sources = sources  # how many spout tasks are upstream
        self._last: dict[int, Watermark] = {}

    def hear(self, mark: Watermark) -> bool:
        """Note a watermark. Returns False if a later one of its task, or a later attempt, came
        before."""
        last = self._last.get(mark.task)
        if last is not None and last.life == mark.life and mark[2:4] < last[2:4]:
            return False
        self._last[mark.task] = mark
        return True

    @property
    def spouts(self) -> tuple[int, ...]:
        """The spout tasks that have sent watermarks."""
        return tuple(self._last)

    def time(self, late: Time) -> Time:
        """Windows that end up to this time are complete, if no record comes later than `late`
        after a record with a higher time; inf after the end of all sources."""
        if len(self._last) < self._sources:
            return -inf
        marks = self._last.values()
        if all(mark.ended for mark in marks):
            return inf
        running = [mark for mark in marks if not mark.ended]
        reached = lowest(one.reached for one in [m for m in running if not m.idle] or running)
        return lowest([minus(reached, late), *(mark.pending for mark in marks)])
