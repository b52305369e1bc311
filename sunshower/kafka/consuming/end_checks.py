"""Checks which partitions a task has read to their end, for windows: see watermarks.py.

The client reports the end of a partition once, when it reaches it, and nothing while a broker is
away. So the leaders are asked for the ends of those partitions that have no records, once a second.
A partition is at its end if its leader has answered in time that no offset follows the task's.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import CancelledError, Future, wait
from typing import Any, NamedTuple

from sunshower.clock import Clock
from sunshower.kafka.consuming.consumer import Consumer
from sunshower.kafka.partitions.ports import Partition

_EVERY_S = 1.0


class _Question(NamedTuple):
    answer: Future[Any]
    asked_s: float


class EndChecks:
    """Asks for the ends of partitions without records, and keeps the answers."""

    def __init__(self, consumer: Consumer, clock: Clock) -> None:
        self._consumer, self._clock = consumer, clock
        self._at_end: dict[Partition, float] = {}
        self._open: dict[Partition, _Question] = {}
        self._positions: Mapping[Partition, int] = {}  # when the ends were last asked for
        self._ask_s = 0.0

    def at_end(
        self, positions: Mapping[Partition, int], wait_s: float = 0.0
    ) -> Mapping[Partition, float]:
        """The partitions that are read to their end, and when the last request that found this was
        sent. `positions`: the next offset to read of each partition. `wait_s`: how long to wait for
        the answers to a new request, about partitions that were at their end before."""
        self._note_answers(positions)
        now = self._clock.now()
        if now >= self._ask_s:
            self._ask(positions, now)
            was_at_end = [one.answer for part, one in self._open.items() if part in self._at_end]
            if wait_s and was_at_end:
                wait(was_at_end, wait_s)
                self._note_answers(positions)
        return self._at_end

    def _note_answers(self, positions: Mapping[Partition, int]) -> None:
        for partition, question in [*self._open.items()]:
            if question.answer.done():
                del self._open[partition]
                self._note(partition, positions.get(partition, -1), question)

    def _ask(self, positions: Mapping[Partition, int], now: float) -> None:
        self._ask_s = now + _EVERY_S
        quiet = [one for one, at in positions.items() if self._positions.get(one) == at]
        quiet = [one for one in quiet if one not in self._open]
        self._positions = positions
        self._at_end = {one: at for one, at in self._at_end.items() if one in positions}
        answers = self._consumer.ask_ends(quiet) if quiet else {}
        self._open |= {one: _Question(answer, now) for one, answer in answers.items()}

    def _note(self, partition: Partition, position: int, question: _Question) -> None:
        try:
            end = question.answer.result().offset
        except (Exception, CancelledError):  # the leader is away, or there is none
            self._at_end.pop(partition, None)
            return
        if 0 <= end <= position:
            self._at_end[partition] = question.asked_s
        else:
            self._at_end.pop(partition, None)
