"""Whether a task has all of a batch: the parts it was sent, against those it has got.

Each task that feeds it says how many parts it has sent, once for an attempt. In the process phase
those count that are early, in the commit phase the late ones as well (see phases.py). Who sends in
both says it in each: first how many parts were early, then how many there are.
Storm: org.apache.storm.trident.topology.TridentBoltExecutor.TrackedBatch, which adds up all tasks;
here each is counted by itself, so one part too many hides none that is missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sunshower.errors import BatchError


class Counting:
    """The books of one attempt in one task. `senders`: task → whether it is late; `mixed`: those of
    the late ones that send some parts early."""

    __slots__ = ("_announced", "_early", "_received", "_senders", "missing_early", "missing_late")

    def __init__(self, senders: Mapping[int, bool], mixed: Iterable[int] = ()) -> None:
        self._senders = senders
        self._received: dict[int, int] = {}
        self._announced: dict[int, int] = {}
        self._early: dict[int, int | None] = dict.fromkeys(mixed)  # what is not here yet; None: ?
        self.missing_late = sum(senders.values())  # senders of which not all is here
        self.missing_early = len(senders) - self.missing_late + len(self._early)

    def part(self, sender: int) -> None:
        """A part has come. Raises BatchError if it is one too many."""
        got = self._received[sender] = self._received.get(sender, 0) + 1
        announced = self._announced.get(sender)
        if announced is not None:
            self._compare(sender, got, announced)
        elif self._early.get(sender) is not None:
            self._compare_early(sender, got)

    def count(self, sender: int, parts: int, *, late: bool = False) -> None:
        """A sender says how many parts there are. Raises BatchError for a second word, and if
        there have been more."""
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
        """Late parts come when all that is early is here, so until then none of them counts."""
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
