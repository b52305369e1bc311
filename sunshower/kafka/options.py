"""The options of a KafkaSpout, with Storm's names in comments."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, NamedTuple

from sunshower.arguments import COUNT, FLAG, FUNCTION, SECONDS, Instance, Rule, check_all
from sunshower.errors import ConfigError
from sunshower.kafka.consuming.consumer import Consumer
from sunshower.kafka.consuming.start_position import StartPosition, StartTime, Where
from sunshower.kafka.consuming.subscription import TopicSubscription
from sunshower.kafka.partitions.broker_group import BrokerGroup, ByIndex
from sunshower.kafka.partitions.broker_metadata import KafkaDirectory
from sunshower.kafka.partitions.broker_offsets import KafkaOffsets
from sunshower.kafka.partitions.ports import (
    Committed,
    Directory,
    Offsets,
    Partition,
    PartitionSharing,
    RebalanceListener,
)
from sunshower.topologies.components import Context

_DIRECTORY_S = 5.0  # the time limit of metadata requests


class Guarantee(Enum):
    """The processing guarantee. Storm: KafkaSpoutConfig.ProcessingGuarantee."""

    AT_LEAST_ONCE = "at least once"  #: committed after processing: replays are possible
    AT_MOST_ONCE = "at most once"  #: committed before emitting: loss is possible
    NONE = "none"  #: committed periodically, processed or not: both are possible


class ReaderContext(NamedTuple):
    """What a task has when it creates its sharing and its offsets."""

    context: Context
    subscription: TopicSubscription
    directory: Directory
    consumer: Consumer
    refresh_s: float
    deployment: str  # the id of this topology in committed metadata
    sharing: PartitionSharing | None = None  # for the offsets: it is created first


def by_metadata(settings: Mapping[str, Any]) -> Directory:
    """Reads topics and partitions from Kafka's metadata."""
    return KafkaDirectory(settings, answer_within_s=_DIRECTORY_S)


def by_index(reader: ReaderContext) -> PartitionSharing:
    """Assigns partitions to tasks by their index."""
    place = (reader.context.clock, reader.context.index, reader.context.parallelism)
    return ByIndex(reader.subscription, reader.directory, *place, refresh_s=reader.refresh_s)


def by_broker_group(reader: ReaderContext) -> PartitionSharing:
    """Joins the brokers' group of that group.id; see partition.assignment.strategy."""
    reader.subscription.check_whole_topics()
    return BrokerGroup(
        reader.subscription,
        reader.consumer,
        reader.directory,
        reader.context.clock,
        refresh_s=reader.refresh_s,
    )


def in_kafka(reader: ReaderContext) -> Offsets:
    """Stores the offsets of that group.id in Kafka."""
    return KafkaOffsets(reader.consumer)


class _Nowhere(Offsets):
    """Stores no offsets."""

    def read(self, partitions: Collection[Partition]) -> dict[Partition, Committed]:
        return {}

    def write(self, offsets: Mapping[Partition, Committed]) -> None:
        """Nothing is stored."""


def nowhere(_: ReaderContext) -> Offsets:
    """Stores no offsets: each task begins at the start position."""
    return _Nowhere()


FIRST = Instance(
    (StartPosition, StartTime),
    "one of StartPosition, such as StartPosition.EARLIEST, or StartTime(timestamp_ms)",
)
_RULES: dict[str, Rule] = {
    "guarantee": Instance(
        (Guarantee,), "Guarantee.AT_LEAST_ONCE, Guarantee.AT_MOST_ONCE or Guarantee.NONE"
    ),
    "first": FIRST,
    "behind_max": replace(COUNT, least=0).or_else("none", None),
    "commit_s": SECONDS,
    "uncommitted_max": COUNT,
    "refresh_s": SECONDS,
    "refetch": FLAG,
    "listener": Instance((RebalanceListener,), "an instance of a RebalanceListener"),
    "directory": FUNCTION,
    "sharing": FUNCTION,
    "store": FUNCTION,
}


@dataclass(frozen=True, kw_only=True)
class KafkaOptions:
    """How a KafkaSpout reads, commits, and shares partitions.

    Raises ConfigError for a value of a wrong type or out of range.
    """

    #: Storm: processingGuarantee
    guarantee: Guarantee = Guarantee.AT_LEAST_ONCE
    #: Where to begin. Storm: firstPollOffsetStrategy
    first: Where = StartPosition.UNCOMMITTED_EARLIEST
    #: Offsets that are farther behind the end are skipped and reported. Storm: maxOffsetBehind
    behind_max: int | None = None
    #: Time between two commits. Storm: offsetCommitPeriodMs, 30 s
    commit_s: float = 1.0
    #: Offsets of a partition that are read and not committed. Storm: maxUncommittedOffsets
    uncommitted_max: int = 10_000_000
    #: Time between two lookups of partitions and topics. Storm: partitionRefreshPeriodMs, 2 s
    refresh_s: float = 30.0
    #: Whether failed records are read from Kafka again, as in Storm, instead of being kept in
    #: memory until their ack. A record that retention or compaction has deleted meanwhile becomes a
    #: dead letter without its value, or is skipped if there are no dead letters. Both are logged
    #: and counted.
    refetch: bool = False
    #: Called with the partitions that a task gets and loses.
    listener: RebalanceListener = RebalanceListener()  # noqa: RUF009 (it has no state)
    #: Finds topics and partitions; called with the settings.
    directory: Callable[[Mapping[str, Any]], Directory] = by_metadata
    #: Assigns partitions to tasks.
    sharing: Callable[[ReaderContext], PartitionSharing] = by_index
    #: Where committed offsets are.
    store: Callable[[ReaderContext], Offsets] = in_kafka

    def __post_init__(self) -> None:
        check_all(self, _RULES, "KafkaOptions: ")
        if self.refetch and self.guarantee is not Guarantee.AT_LEAST_ONCE:
            raise ConfigError(
                f"refetch=True with Guarantee.{self.guarantee.name}: that guarantee replays no "
                "failed record; drop one of the two"
            )
