"""The subscription of a member of a ZooKeeper group, and its format in the member's node."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property

from sunshower.arguments import COUNT
from sunshower.errors import ConfigError, KafkaError

# The values of `pattern` in Kafka's format: topics by name, all that match, all that do not.
STATIC, WHITE_LIST, BLACK_LIST = "static", "white_list", "black_list"


@dataclass(frozen=True)
class Member:
    """The subscription of a member: topics, and the number of its stream threads for each."""

    subscription: Mapping[str, int]  # by topic; with a pattern, its text is the only key
    pattern: str = STATIC

    @staticmethod
    def reading(
        topics: Collection[str] | re.Pattern[str], streams: int | Mapping[str, int]
    ) -> Member:
        """A member that reads topics by name, or all whose whole name matches a pattern; with
        `streams` threads for each, or of each topic its own number.

        Raises ConfigError unless `streams` has exactly the topics, each with a positive number.
        """
        if isinstance(streams, Mapping):
            if isinstance(topics, re.Pattern) or {*topics} != {*streams}:
                raise ConfigError(
                    f"streams by topic are given for {', '.join(sorted(streams)) or 'no topic'}; "
                    "give a number for each of topics=[…], or one number for all"
                )
            for topic, count in streams.items():
                COUNT.check(f"streams of {topic}", count)
            return Member({topic: streams[topic] for topic in sorted(topics)})
        COUNT.check("streams", streams)
        if isinstance(topics, re.Pattern):
            return Member({topics.pattern: streams}, WHITE_LIST)
        return Member(dict.fromkeys(sorted(topics), streams))

    def streams(self, topics: Collection[str]) -> dict[str, int]:
        """The number of threads for each subscribed topic among `topics`."""
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
        """The content of the member's node."""
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
        """Parse a member's node. Raises KafkaError."""
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
            f"{path} in ZooKeeper does not describe a member of a consumer group: {value[:80]!r}"
        )

    @cached_property
    def _expressions(self) -> dict[re.Pattern[str], int]:
        """The compiled patterns; Kafka reads a comma as "or"."""
        return {
            compiled(text.replace(",", "|")): count for text, count in self.subscription.items()
        }


def compiled(text: str) -> re.Pattern[str]:
    """Compile a pattern of topics. Raises ConfigError."""
    try:
        return re.compile(text)
    except re.error as error:
        raise ConfigError(f"{text!r} is no pattern of topics: {error}") from error
