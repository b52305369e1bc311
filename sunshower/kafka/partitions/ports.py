"""Partitions, committed offsets, and the ports for finding, sharing and committing them.

Directory   which partitions exist            from Kafka's metadata, or from ZooKeeper
Sharing     which of them this task reads     by task index, a broker group, or a ZooKeeper group
Offsets     the committed offset of each      in Kafka, in ZooKeeper in Storm's format, in SQLite
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from math import nan
from typing import Any, NamedTuple, Protocol, TypeVar

from sunshower.clock import Clock
from sunshower.errors import KafkaUnreachable, NotAuthorised, StoreError, StoreForbidden

INTERNAL_TOPICS = frozenset(
    {"__consumer_offsets", "__transaction_state", "__share_group_state", "__cluster_metadata"}
)  # Kafka's own: never matched by a pattern


SETTLES_S = 5.0  # after which all members of a group have begun to read what it has assigned


class Partition(NamedTuple):
    """A partition of a topic, ordered by topic, then by number."""

    topic: str
    number: int

    def __str__(self) -> str:
        return f"{self.topic}[{self.number}]"


class Committed(NamedTuple):
    """A committed offset: all below is settled, `offset` is the next one to read."""

    offset: int
    metadata: str = ""  # the writer: Storm's JSON with the topology's id, or nothing

    @property
    def fields(self) -> Mapping[str, Any]:
        """The metadata, if they are a JSON object, as Storm's and ours are: the writer's
        "topologyId", and the "topicId" of the topic that the offset belongs to."""
        try:
            fields = json.loads(self.metadata)
        except ValueError:
            return {}
        return fields if isinstance(fields, dict) else {}

    @property
    def topic_id(self) -> str:
        """The id of the topic; "" if it is not known."""
        id = self.fields.get("topicId")
        return id if isinstance(id, str) else ""


def may_be_same_topic(id: str, other_id: str) -> bool:
    """Whether two ids can be of the same topic; one that is not known is ""."""
    return "" in (id, other_id) or id == other_id


class RetainedOffsets(NamedTuple):
    """The offsets that a partition has: from `earliest` up to `latest`, the next to be written."""

    earliest: int
    latest: int


class Directory(Protocol):
    """Lists topics and partitions."""

    def topics(self) -> frozenset[str]:
        """All topics but Kafka's internal ones. Raises KafkaUnreachable."""

    def partitions(self, topic: str) -> tuple[Partition, ...]:
        """The partitions of a topic, in order, including those without a leader: if a broker's
        outage removed partitions, the others would be reassigned.

        Raises UnknownTopic, NotAuthorised, KafkaUnreachable.
        """

    def leaders(self, topic: str) -> dict[Partition, str | None]:
        """The broker that leads each partition, as host:port; None without a leader.

        Raises what `partitions` raises.
        """

    def topic_ids(self, topics: Collection[str]) -> dict[str, str]:
        """The id of each of these topics now, which no topic of the same name had before; "" if the
        brokers give none. Topics that do not exist are missing.

        Raises NotAuthorised, KafkaUnreachable. Called in a thread of its own, too.
        """

    def bootstrap(self) -> str:
        """The brokers' addresses, for settings without bootstrap.servers. Raises KafkaError."""

    def close(self) -> None:
        """Close connections."""


class RebalanceListener:
    """Learns which partitions a task gets and loses. Subclass it, and give an instance in
    `KafkaOptions(listener=…)`; each task has a copy.

    An exception stops the task, which is tried again, as for any error of a spout. The `owner` of
    a PartitionSharing, which reads the partitions, is one, too: it is called within `look`, for
    broker groups also while the consumer is polled or closed.
    Kafka: org.apache.kafka.clients.consumer.ConsumerRebalanceListener
    """

    def assigned(self, partitions: Collection[Partition]) -> None:
        """Called before the first record of these is read; again if that could not begin."""

    def revoked(self, partitions: Collection[Partition], *, lost: bool) -> None:
        """Called when these are read no more; all that is processed of them is committed, unless
        they are `lost`: then another task or process may read them already."""


class PartitionSharing(ABC):
    """Divides partitions among the tasks and processes that read them."""

    # Whether partitions assigned after the first `look` are newly created: then they are read from
    # their start. In a group another member may have read them without committing.
    later_is_new = False

    @property
    @abstractmethod
    def is_settled(self) -> bool:
        """Whether this task knows which partitions it has, and others have had the time to begin
        with theirs. So a task without partitions has none, for windows."""

    @abstractmethod
    def look(self, owner: RebalanceListener) -> None:
        """Apply due changes and report them to `owner`. Called often; never blocks for long.

        Raises KafkaError for permanent errors: an unknown topic, a credential.
        """

    @abstractmethod
    def refresh(self) -> None:
        """Let the next `look` find new partitions and topics: reading one has failed."""

    @abstractmethod
    def leave(self, owner: RebalanceListener) -> None:
        """Give up all partitions: revoke them from `owner`, then release them to others."""

    def owns(self, partition: Partition) -> bool:
        """Whether this task still owns a partition, as far as the members of the group can see."""
        return True

    def member(self, where: object) -> str | None:
        """The path of this member's node, if the group is in the ZooKeeper that is `where`."""
        return None


class Offsets(ABC):
    """Stores the committed offsets of a group."""

    # Whether metadata are stored. If not, stored offsets count as written by the reader.
    keeps_writer: bool = True
    # Whether it stores results by message: then a message must be one record.
    by_message: bool = False

    @abstractmethod
    def read(self, partitions: Collection[Partition]) -> dict[Partition, Committed]:
        """The stored offsets; partitions without one are missing. Raises BadOffset."""

    @abstractmethod
    def write(self, offsets: Mapping[Partition, Committed]) -> None:
        """Store all of these; they are stored when this returns.

        Raises StaleGeneration, and stores nothing, if partitions were reassigned meanwhile.
        """

    def write_soon(self, offsets: Mapping[Partition, Committed]) -> Future[None] | None:
        """Start a write without waiting for it; None if this store has only `write`."""
        return None

    def close(self) -> None:  # noqa: B027
        """Close connections."""


# ---- store errors --------------------------------------------------------------------------------


@contextmanager
def using(what: str) -> Iterator[None]:
    """`what` names the node or data in the error message."""
    try:
        yield
    except StoreForbidden as error:
        raise NotAuthorised(f"{what} is not for this client: {error}") from error
    except StoreError as error:
        raise KafkaUnreachable(f"{what} cannot be used: {error}") from error


# ---- cached directory ----------------------------------------------------------------------------

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
        answer: _T = self._answers[question]
        return answer

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


# ---- lag -----------------------------------------------------------------------------------------
# Lag and progress per partition, and the metrics derived from them.
#
# Offsets are those of the next message, as in Kafka: a partition that is settled to its end has
# `contiguous == end`. Offsets without a message (compacted records, transaction markers) count as
# messages, as in Kafka's own tools.


@dataclass(frozen=True)
class Lag:
    """The progress of a group in a partition, as the brokers report it."""

    partition: Partition
    committed: int | None  # None: the group has no committed offset here
    begin: int  # the earliest retained offset
    end: int  # of the log (the high watermark)
    # Below it no transaction is open: a reader of committed transactions (the default) stops here.
    last_stable: int | None = None
    metadata: str = ""  # committed with the offset

    @property
    def lag(self) -> int:
        """Messages left to read, from the committed offset or else from `begin`."""
        at = self.begin if self.committed is None else max(self.committed, self.begin)
        return max(self.end - at, 0)

    @property
    def removed(self) -> int:
        """Messages that the brokers deleted before the group committed them."""
        return 0 if self.committed is None else max(self.begin - self.committed, 0)


@dataclass(frozen=True)
class PartitionStatus:
    """The progress of a partition, as the task that reads it sees it."""

    committed: int | None = None
    contiguous: int = 0  # all below are settled: the next offset to commit
    emitted: int = 0  # all below were emitted at least once
    end: int | None = None  # None: not known yet
    holes: int = 0  # open offsets from `contiguous` on that lie below a settled one
    waiting: int = 0  # failed, waiting to be emitted again
    paused: bool = False

    @property
    def lag(self) -> int:
        """Messages known to exist that are not settled yet."""
        return max((self.emitted if self.end is None else self.end) - self.contiguous, 0)


def figures(
    standings: Mapping[Partition, PartitionStatus], *, is_known: bool = True
) -> dict[str, float]:
    """A spout's metrics: sums, and each figure of each partition under `topic[0]/…`. The sum of the
    lags is NaN unless `is_known`: where the partitions end has been told."""
    all_of = standings.values()
    sums: dict[str, float] = {
        "lag": sum(status.lag for status in all_of) if is_known else nan,
        "holes": sum(status.holes for status in all_of),
        "waiting": sum(status.waiting for status in all_of),
        "paused": sum(status.paused for status in all_of),
    }
    return sums | {
        f"{partition}/{name}": float(value)
        for partition, status in sorted(standings.items())
        for name, value in (*vars(status).items(), ("lag", status.lag))
        if value is not None
    }


def total(lags: Iterable[Lag]) -> int:
    """The lag over all partitions."""
    return sum(lag.lag for lag in lags)
