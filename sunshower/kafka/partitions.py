"""The words of this room: a partition, a committed offset; and its ports, with what they promise.

Directory   which partitions there are        from Kafka's metadata, or from ZooKeeper
Sharing     which of them are this task's     by task index, a broker group, or a ZooKeeper group
Offsets     where to go on in each            in Kafka, in ZooKeeper as Storm wrote it, in SQLite
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from concurrent.futures import Future
from typing import NamedTuple, Protocol

INTERNAL_TOPICS = frozenset(
    {"__consumer_offsets", "__transaction_state", "__share_group_state", "__cluster_metadata"}
)  # Kafka's own: never matched by a pattern


class Partition(NamedTuple):
    """One partition of a topic. Their order is by topic, then by number."""

    topic: str
    number: int

    def __str__(self) -> str:
        return f"{self.topic}[{self.number}]"


class Committed(NamedTuple):
    """How far a partition is settled: all below `offset`, which is the next one to read."""

    offset: int
    metadata: str = ""  # who wrote it: Storm's JSON with the topology's id, or nothing


class Directory(Protocol):
    """Who tells which partitions there are."""

    def topics(self) -> frozenset[str]:
        """All topics but Kafka's internal ones. Raises KafkaUnreachable."""

    def partitions(self, topic: str) -> tuple[Partition, ...]:
        """Those of one topic, in order, also while some have no leader: none is left out because
        its broker is away, or all others would change hands.

        Raises UnknownTopic, NotAuthorised, KafkaUnreachable.
        """

    def leaders(self, topic: str) -> dict[Partition, str | None]:
        """Where the broker answers that leads each of them: host:port; None while none does.

        Raises what `partitions` raises.
        """

    def close(self) -> None:
        """Let go of connections."""


class Owner(Protocol):
    """Whoever reads partitions: the spout. It is called by its Sharing: within `look`, and where
    the brokers keep the group also while the consumer is polled or closed.
    """

    def assigned(self, partitions: Collection[Partition]) -> None:
        """Read these from now on, too."""

    def revoked(self, partitions: Collection[Partition], *, lost: bool) -> None:
        """Read these no more, and forget what is open of them.

        What is settled is committed before this returns; unless they are `lost`, which means that
        somebody else may have them by now.
        """


class Sharing(Protocol):
    """Who shares the partitions among the tasks and processes that read them."""

    def look(self, owner: Owner) -> None:
        """Do what is due, and tell `owner` what changed. Called often; it does not block for long.

        Raises KafkaError for what does not go away by itself: an unknown topic, a credential.
        """

    @property
    def later_is_new(self) -> bool:
        """Whether what is assigned after the first `look` was not there before: then all of it is
        news. In a group it may have been somebody else's, who had committed nothing yet."""

    def leave(self, owner: Owner) -> None:
        """Give all back: `owner` is told, then the others may have them."""


class Offsets(Protocol):
    """Where a group's progress is kept."""

    @property
    def keeps_writer(self) -> bool:
        """Whether the metadata are kept. If not, what is kept counts as written by who reads it."""

    def read(self, partitions: Collection[Partition]) -> dict[Partition, Committed]:
        """What is kept, of those that have something. Raises BadOffset for what is no offset."""

    def write(self, offsets: Mapping[Partition, Committed]) -> None:
        """Keep all of these; it has happened when this returns.

        Raises StaleGeneration when the partitions have changed hands meanwhile: nothing is kept.
        """

    def write_soon(self, offsets: Mapping[Partition, Committed]) -> Future[None] | None:
        """Begin such a write without waiting for it; None: this store has only `write`."""

    def close(self) -> None:
        """Let go of connections."""
