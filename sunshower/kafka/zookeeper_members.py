"""What a member of a ZooKeeper group reads, and how its node says so."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property

from sunshower.errors import ConfigError, KafkaError

# What Kafka's consumer writes as `pattern`: topics by name, all that match, all others.
STATIC, WHITE_LIST, BLACK_LIST = "static", "white_list", "black_list"


@dataclass(frozen=True)
class Member:
    """What one of them subscribes to, each topic with so many of its stream threads."""

    subscription: Mapping[str, int]  # by topic; with a pattern: its text, and nothing else
    pattern: str = STATIC

    @staticmethod
    def reading(topics: Collection[str] | re.Pattern[str], streams: int) -> Member:
        """One that reads topics by name, or all whose whole name fits a pattern."""
        if isinstance(topics, re.Pattern):
            return Member({topics.pattern: streams}, WHITE_LIST)
        return Member(dict.fromkeys(sorted(topics), streams))

    def streams(self, topics: Collection[str]) -> dict[str, int]:
        """How many threads read each topic, of those that there are."""
        if self.pattern == STATIC:
            return {topic: n for topic, n in self.subscription.items() if topic in topics}
        wanted = self.pattern == WHITE_LIST
        return {
            topic: count
            for expression, count in self._expressions.items()
            for topic in topics
            if bool(expression.fullmatch(topic)) == wanted
        }

    def written(self, millis: int) -> bytes:
        """As its node holds it."""
        return json.dumps(
            {
                "version": 1,
                "subscription": dict(self.subscription),
                "pattern": self.pattern,
                "timestamp": str(millis),
            }
        ).encode()

    @staticmethod
    def read(value: bytes, path: str) -> Member:
        """From its node. Raises KafkaError."""
        try:
            found = json.loads(value)
        except ValueError:
            found = None
        match found:
            case {"subscription": dict(streams), **more} if all(
                isinstance(count, int) and count > 0 for count in streams.values()
            ):
                pattern = more.get("pattern", STATIC)
                if pattern in {STATIC, WHITE_LIST, BLACK_LIST}:
                    return Member(streams, pattern)
        raise KafkaError(
            f"{path} in ZooKeeper is no member of a consumer group, which tells its subscription: "
            f"{value[:80]!r}"
        )

    @cached_property
    def _expressions(self) -> dict[re.Pattern[str], int]:
        """Kafka reads a comma as "or"."""
        return {
            compiled(text.replace(",", "|")): count for text, count in self.subscription.items()
        }


def compiled(text: str) -> re.Pattern[str]:
    """A pattern of topics. Raises ConfigError for what is none."""
    try:
        return re.compile(text)
    except re.error as error:
        raise ConfigError(f"{text!r} is no pattern of topics: {error}") from error
