"""How a KafkaSpout reads: everything that can be said of it, with Storm's name beside it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, NamedTuple

from sunshower.arguments import COUNT, FLAG, FUNCTION, SECONDS, Instance, Rule, check_all
from sunshower.errors import ConfigError
from sunshower.kafka.broker_group import BrokerGroup
from sunshower.kafka.by_index import ByIndex
from sunshower.kafka.consumer import Consumer
from sunshower.kafka.metadata import KafkaDirectory
from sunshower.kafka.offsets import KafkaOffsets
from sunshower.kafka.partitions import Directory, Offsets, Sharing
from sunshower.kafka.starting import First, Since, Where
from sunshower.kafka.subscription import Subscription
from sunshower.topologies.components import Context

_DIRECTORY_S = 5.0  # to wait for an answer about topics


class Guarantee(Enum):
    """What a crash may do. Storm: KafkaSpoutConfig.ProcessingGuarantee."""

    AT_LEAST_ONCE = "at least once"  # committed when it is processed: it may come twice
    AT_MOST_ONCE = "at most once"  # committed before it is emitted: it may be lost
    NONE = "none"  # committed now and then, processed or not: either


class Post(NamedTuple):
    """Where one task stands: what its sharing and its offsets are made from."""

    context: Context
    subscription: Subscription
    directory: Directory
    consumer: Consumer
    refresh_s: float
    deployment: str  # the id of this topology, as it stands in what is committed
    sharing: Sharing | None = None  # for the offsets: it is made first


def by_metadata(settings: Mapping[str, Any]) -> Directory:
    """Kafka itself tells which partitions there are."""
    return KafkaDirectory(settings, answer_within_s=_DIRECTORY_S)


def by_index(post: Post) -> Sharing:
    """Each task takes its share by its index."""
    place = (post.context.clock, post.context.index, post.context.parallelism)
    return ByIndex(post.subscription, post.directory, *place, refresh_s=post.refresh_s)


def by_broker_group(post: Post) -> Sharing:
    """The brokers' group of that group.id; the setting partition.assignment.strategy says how."""
    if post.subscription.partitions:
        raise ConfigError(
            "a group shares whole topics: give topics=[…] or pattern='…' with it, or read "
            "partitions=[…] by index"
        )
    return BrokerGroup(
        post.subscription,
        post.consumer,
        post.directory,
        post.context.clock,
        refresh_s=post.refresh_s,
    )


def in_kafka(post: Post) -> Offsets:
    """The offsets of that group.id, in Kafka."""
    return KafkaOffsets(post.consumer)


FIRST = Instance((First, Since), "one of First, such as First.EARLIEST, or Since(timestamp_ms)")
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
    "directory": FUNCTION,
    "sharing": FUNCTION,
    "offsets": FUNCTION,
}


@dataclass(frozen=True, kw_only=True)
class KafkaOptions:
    """Raises ConfigError for a value of another type, or out of range."""

    guarantee: Guarantee = Guarantee.AT_LEAST_ONCE  # processingGuarantee
    first: Where = First.UNCOMMITTED_EARLIEST  # firstPollOffsetStrategy
    behind_max: int | None = None  # maxOffsetBehind: what is further behind is skipped, and told
    commit_s: float = 1.0  # offsetCommitPeriodMs (30 s there)
    uncommitted_max: int = 10_000_000  # maxUncommittedOffsets, of each partition
    refresh_s: float = 30.0  # partitionRefreshPeriodMs (2 s there): new partitions and topics
    # Keep no record until it is acked: what has failed is read again from Kafka, as Storm does. It
    # saves the memory; but what retention or compaction has removed by then is a dead letter
    # without its value, or passed over where there are none. Told and counted in either case.
    refetch: bool = False
    directory: Callable[[Mapping[str, Any]], Directory] = by_metadata  # is given the settings
    sharing: Callable[[Post], Sharing] = by_index
    offsets: Callable[[Post], Offsets] = in_kafka

    def __post_init__(self) -> None:
        check_all(self, _RULES, "KafkaOptions: ")
        if self.refetch and self.guarantee is not Guarantee.AT_LEAST_ONCE:
            raise ConfigError(
                f"refetch=True with Guarantee.{self.guarantee.name}: nothing is emitted again "
                "there that has failed; drop one of the two"
            )
