"""A directory that is asked now and then, and whose last answer holds while it is away."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, TypeVar

from sunshower.clock import Clock
from sunshower.errors import KafkaUnreachable
from sunshower.kafka.partitions import Directory, Partition

STORM_EVERY_S = 60.0  # ZkHosts.refreshFreqSecs; the newer spout's partitionRefreshPeriodMs is 2 s

_T = TypeVar("_T")


class RefreshedDirectory:
    """See the port `Directory`: the same answers, at most `every_s` old, or older than `refresh`.

    An answer is kept for longer only while there is no other: nobody's partitions change hands
    because those who know them are away. To find that out takes seconds: then nothing is asked for
    `every_s` to which there is an answer, whatever the question.
    """

    def __init__(self, directory: Directory, clock: Clock, *, every_s: float = STORM_EVERY_S):
        self._directory = directory
        self._clock = clock
        self._every_s = every_s
        self._answers: dict[Hashable, Any] = {}
        self._asked_s: dict[Hashable, float] = {}
        self._away_until_s = 0.0

    def refresh(self) -> None:
        """Ask anew at the next question: after an error in reading a partition, as Storm does."""
        self._asked_s.clear()

    def topics(self) -> frozenset[str]:
        return self._recent("topics", self._directory.topics)

    def partitions(self, topic: str) -> tuple[Partition, ...]:
        return self._recent(("partitions", topic), lambda: self._directory.partitions(topic))

    def leaders(self, topic: str) -> dict[Partition, str | None]:
        return self._recent(("leaders", topic), lambda: self._directory.leaders(topic))

    def close(self) -> None:
        self._directory.close()

    def _recent(self, question: Hashable, ask: Callable[[], _T]) -> _T:
        now_s = self._clock.now()
        asked_s = self._asked_s.get(question)  # commits, beside the work, ask and refresh, too
        recent = asked_s is not None and now_s - asked_s < self._every_s
        if question not in self._answers or not (recent or now_s < self._away_until_s):
            self._ask(question, ask, now_s)
        found: _T = self._answers[question]
        return found

    def _ask(self, question: Hashable, ask: Callable[[], object], now_s: float) -> None:
        try:
            self._answers[question] = ask()
        except KafkaUnreachable:
            self._away_until_s = self._clock.now() + self._every_s
            if question not in self._answers:
                raise
        else:
            self._asked_s[question] = now_s
            self._away_until_s = 0.0
