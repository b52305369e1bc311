"""Counts the parts of a batch in a task, to know when all have arrived.

Each sending task sends the number of its parts, once per attempt. The process phase needs the early
senders, the commit phase the late ones as well (see phases.py). A sender of both sends a number in
each: first that of the early parts, then that of all. Storm:
org.apache.storm.trident.topology.TridentBoltExecutor.TrackedBatch, which adds up all tasks. Here
each sender is counted separately, so that a surplus part cannot hide a missing one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sunshower.errors import BatchError


class PartCounter:
    """The counts of one attempt in one task. `senders`: task → whether it is late; `mixed`: late
    senders that also send early parts."""

    __slots__ = ("_announced", "_early", "_received", "_senders", "missing_early", "missing_late")

    def __init__(self, senders: Mapping[int, bool], mixed: Iterable[int] = ()) -> None:
        self._senders = senders
        self._received: dict[int, int] = {}
        self._announced: dict[int, int] = {}
        self._early: dict[int, int | None] = dict.fromkeys(mixed)  # incomplete ones; None: no Count
        self.missing_late = sum(senders.values())  # late senders with missing parts
        self.missing_early = len(senders) - self.missing_late + len(self._early)

    def part(self, sender: int) -> None:
        """Count a part. Raises BatchError if it is one too many."""
        got = self._received[sender] = self._received.get(sender, 0) + 1
        announced = self._announced.get(sender)
        if announced is not None:
            self._compare(sender, got, announced)
        elif self._early.get(sender) is not None:
            self._compare_early(sender, got)

    def count(self, sender: int, parts: int, *, late: bool = False) -> None:
        """Set the number of parts of a sender. Raises BatchError if it was set before, or if more
        have arrived."""
        if self._senders[sender] and not late:
            self._count_early(sender, parts)
            return
        if sender in self._announced:
            raise BatchError(f"task {sender} has counted its parts of one attempt twice")
        self._announced[sender] = parts
        self._compare(sender, self._received.get(sender, 0), parts)

    def _count_early(self, sender: int, parts: int) -> None:
        if sender not in self._early or self._early[sender] is not None:
            raise BatchError(f"task {sender} has counted its early parts of one attempt twice")
        self._early[sender] = parts
        self._compare_early(sender, self._received.get(sender, 0))

    def _compare_early(self, sender: int, got: int) -> None:
        """Late parts come after all early ones have arrived, so none is counted here."""
        if got == self._early[sender]:
            del self._early[sender]
            self.missing_early -= 1

    def _compare(self, sender: int, got: int, announced: int) -> None:
        if got > announced:
            raise BatchError(
                f"task {sender} has sent {announced} parts of one attempt, and {got} have come"
            )
        if got == announced:
            if self._senders[sender]:
                self.missing_late -= 1
            else:
                self.missing_early -= 1
