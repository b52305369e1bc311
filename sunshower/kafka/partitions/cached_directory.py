"""Caches a directory's answers, and keeps the last ones while the directory is unreachable."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable
from typing import Any, TypeVar

from sunshower.clock import Clock
from sunshower.errors import KafkaUnreachable
from sunshower.kafka.partitions.ports import Directory, Partition

STORM_EVERY_S = 60.0  # ZkHosts.refreshFreqSecs; the newer spout's partitionRefreshPeriodMs is 2 s

_T = TypeVar("_T")


class RefreshedDirectory:
    """Implements the port `Directory` with answers that are at most `every_s` old.

    Older answers are used only while the directory is unreachable, so that its outage reassigns
    no partitions. A failed request takes seconds, so for `every_s` after one, all questions with a
    cached answer are answered from the cache.
    """

    def __init__(self, directory: Directory, clock: Clock, *, every_s: float = STORM_EVERY_S):
        self._directory = directory
        self._clock = clock
        self._every_s = every_s
        self._answers: dict[Hashable, Any] = {}
        self._asked_s: dict[Hashable, float] = {}
        self._away_until_s = 0.0

    def refresh(self) -> None:
        """Invalidate all answers, after an error in reading a partition."""
        self._asked_s.clear()

    def topics(self) -> frozenset[str]:
        return self._recent("topics", self._directory.topics)

    def partitions(self, topic: str) -> tuple[Partition, ...]:
        return self._recent(("partitions", topic), lambda: self._directory.partitions(topic))

    def leaders(self, topic: str) -> dict[Partition, str | None]:
        return self._recent(("leaders", topic), lambda: self._directory.leaders(topic))

    def topic_ids(self, topics: Collection[str]) -> dict[str, str]:
        """The present ids, never cached ones. A directory of the user may have no such method."""
        ask = getattr(self._directory, "topic_ids", None)
        return dict.fromkeys(topics, "") if ask is None else ask(topics)

    def bootstrap(self) -> str:
        return self._recent("bootstrap", self._directory.bootstrap)

    def close(self) -> None:
        self._directory.close()

    def _recent(self, question: Hashable, ask: Callable[[], _T]) -> _T:
        now_s = self._clock.now()
        asked_s = self._asked_s.get(question)  # read once: the commit thread uses this, too
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
