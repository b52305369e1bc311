"""Counts the parts of a batch in a task, to detect that all have arrived.

Each sending task sends the number of its parts, once per attempt, after them: a part that has not
come before its Count is lost. The process phase needs the early senders, the commit phase the late
ones as well (see phases.py). A sender of both sends a number in each: first that of the early
parts, then that of all. Storm: org.apache.storm.trident.topology.TridentBoltExecutor (checkFinish),
which compares the sums when all tasks have reported. Here each sender is counted separately, so
that a surplus part cannot hide a missing one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from sunshower.errors import BatchError


class PartCounter:
    """The counts of one attempt in one task. `senders`: task → whether it is late; `mixed`: late
    senders that also send early parts."""

    __slots__ = ("_counted", "_early", "_received", "_senders", "missing_early", "missing_late")

    def __init__(self, senders: Mapping[int, bool], mixed: Iterable[int] = ()) -> None:
        self._senders = senders
        self._received = Counter[int]()
        self._counted: set[int] = set()  # senders whose parts are all here
        self._early = set(mixed)  # mixed senders whose early parts are not counted yet
        self.missing_late = sum(senders.values())  # late senders that have not counted
        self.missing_early = len(senders) - self.missing_late + len(self._early)

    def part(self, sender: int) -> None:
        """Count a part. Raises BatchError if it is one too many."""
        self._received[sender] += 1
        if sender in self._counted:
            self._compare(sender, self._received[sender] - 1)

    def count(self, sender: int, parts: int, *, late: bool = False) -> None:
        """Compare the number of parts that a sender has sent with those that have come. Raises
        BatchError if it differs, or was compared before."""
        is_late = self._senders[sender]
        if is_late and not late:
            self._check_first(sender, is_first=sender in self._early)
            self._early.discard(sender)
        else:
            self._check_first(sender, is_first=sender not in self._counted)
            self._counted.add(sender)
        self._compare(sender, parts)
        if is_late and late:
            self.missing_late -= 1
        else:
            self.missing_early -= 1

    def _check_first(self, sender: int, *, is_first: bool) -> None:
        if not is_first:
            raise BatchError(f"task {sender} has counted its parts of one attempt twice")

    def _compare(self, sender: int, parts: int) -> None:
        if self._received[sender] != parts:
            raise BatchError(
                f"task {sender} has sent {parts} parts of one attempt, and "
                f"{self._received[sender]} have come"
            )
