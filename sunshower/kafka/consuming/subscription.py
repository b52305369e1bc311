"""What a spout reads: topics by name, topics by pattern, or explicit partitions."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from sunshower.arguments import COUNT_FROM_0, NAME, NONE, AnyOf, Each, Rule, check_all
from sunshower.clock import Clock
from sunshower.errors import ConfigError, UnknownTopic
from sunshower.kafka.partitions.ports import Directory, Partition

_LOG = logging.getLogger("sunshower.kafka")
_PATTERN = AnyOf((replace(NAME, instead="a regular expression, as text"), NONE))


class _PartitionRule(Rule):
    def allows(self, value: Any) -> bool:
        if not isinstance(value, Partition):
            return False
        return NAME.allows(value.topic) and COUNT_FROM_0.allows(value.number)


_PARTITIONS = Each(_PartitionRule(), 'a list such as [Partition("orders", 0)]')
_RULES = {"pattern": _PATTERN, "partitions": _PARTITIONS}


@dataclass(frozen=True)
class TopicSubscription:
    """Exactly one of the three; raises ConfigError otherwise, or for an invalid pattern.

    `pattern` must match a whole name; Kafka's internal topics never match.
    """

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    partitions: tuple[Partition, ...] = ()

    def __post_init__(self) -> None:
        check_all(self, _RULES)
        choices = {
            name: value
            for name in ("topics", "pattern", "partitions")
            if (value := getattr(self, name)) not in ((), None)
        }
        if len(choices) != 1:
            several = " and ".join(choices) or "nothing"
            raise ConfigError(
                f"a subscription to {several}: give exactly one of topics=[…], pattern='…' and "
                "partitions=[Partition('topic', 0), …]"
            )
        if self.pattern is not None:
            try:
                re.compile(self.pattern)
            except re.error as error:
                raise ConfigError(
                    f"the pattern {self.pattern!r} does not compile: {error}; it is a regular "
                    "expression that must fit a topic's whole name"
                ) from error

    @property
    def name(self) -> str:
        if self.pattern is not None:
            return f"topics that fit {self.pattern!r}"
        return ", ".join(map(str, self.topics or self.partitions))

    def check_whole_topics(self) -> None:
        """Raise ConfigError for explicit partitions: a group shares whole topics."""
        if self.partitions:
            raise ConfigError(
                "a group shares whole topics: give topics=[…] or pattern='…' with it, or read "
                "partitions=[…] by index"
            )

    def covers(self, former: TopicSubscription) -> bool:
        """Whether it certainly reads all that `former` reads."""
        if former.pattern is not None:
            return self.pattern == former.pattern
        if former.partitions and self.partitions:
            return {*former.partitions} <= {*self.partitions}
        topics = former.topics or {partition.topic for partition in former.partitions}
        fits = re.compile(self.pattern).fullmatch if self.pattern else self.topics.__contains__
        return all(fits(topic) for topic in topics)

    def found(self, directory: Directory) -> tuple[Partition, ...]:
        """All partitions that exist now, in order.

        Raises UnknownTopic for a missing topic or partition, and what `directory` raises.
        A pattern without a match is no error.
        """
        if self.partitions:
            return self._explicit(directory)
        names = self.names(directory)
        return tuple(sorted(p for topic in names for p in directory.partitions(topic)))

    def names(self, directory: Directory) -> Collection[str]:
        """The distinct topics; a pattern is looked up. Raises KafkaUnreachable."""
        if self.pattern is None:
            return set(self.topics)
        fits = re.compile(self.pattern).fullmatch
        return {topic for topic in directory.topics() if fits(topic)}

    def _explicit(self, directory: Directory) -> tuple[Partition, ...]:
        existing = {
            p for topic in {p.topic for p in self.partitions} for p in directory.partitions(topic)
        }
        missing = sorted({*self.partitions} - existing)
        if missing:
            raise UnknownTopic(
                f"there is no partition {', '.join(map(str, missing))}; topic "
                f"{missing[0].topic!r} has {sum(p.topic == missing[0].topic for p in existing)}"
            )
        return tuple(sorted({*self.partitions}))


# ---- topic watch ---------------------------------------------------------------------------------
# Asks in the background for the ids of topics, so that a topic that was created again is noticed.
#
# A client goes on reading at its offset in a topic that was deleted and created again under the
# same name, without an error or an event, if the new topic has that offset. Only its id differs.

EVERY_S = 1.0
Ask = Callable[[Collection[str]], Mapping[str, str]]
BY_OFFSETS = "if it ends before the next offset"
BY_EPOCHS = f"by its leader epochs, and {BY_OFFSETS}"


class TopicWatch:
    """One request at a time. `request` is `Directory.topic_ids`, called in a thread, too.

    `noticed`: how a topic that was created again is noticed where the brokers give no ids.
    """

    def __init__(self, request: Ask, clock: Clock, noticed: str = BY_EPOCHS) -> None:
        self._request = request
        self._clock = clock
        self._noticed = noticed
        self._thread = ThreadPoolExecutor(1, "topic-ids")
        self._answer: Future[Mapping[str, str]] | None = None
        self._due_s = 0.0
        self._has_warned = False  # that the brokers give no ids

    @property
    def is_due(self) -> bool:
        """Whether no request is under way, and the last one is some time ago."""
        return self._answer is None and self._clock.now() >= self._due_s

    @property
    def is_idle(self) -> bool:
        return self._answer is None

    def put_off(self, for_s: float = EVERY_S) -> None:
        """Let no request be due before that."""
        self._due_s = self._clock.now() + for_s

    def ask(self, topics: Collection[str]) -> Mapping[str, str]:
        """The present ids of these topics. Raises what the request raises."""
        return self._checked(self._request(topics))

    def begin(self, topics: Collection[str]) -> None:
        """Start a request; none may be under way."""
        self.put_off()
        self._answer = self._thread.submit(self._request, topics)

    def answer(self) -> Mapping[str, str] | None:
        """The answer to the request, once; None as long as there is none. Raises what the request
        has raised."""
        if self._answer is None or not self._answer.done():
            return None
        answer, self._answer = self._answer, None
        return self._checked(answer.result())

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _checked(self, ids: Mapping[str, str]) -> Mapping[str, str]:
        without = next((topic for topic, id in ids.items() if not id), None)
        if without is not None and not self._has_warned:
            self._has_warned = True
            _LOG.warning(
                "the brokers give no ids of topics (Kafka does from 2.8 on): a topic that is "
                "deleted and created again, such as %r, is noticed only %s",
                *(without, self._noticed),
            )
        return ids
