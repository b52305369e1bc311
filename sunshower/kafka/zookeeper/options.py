"""Options of KafkaSpout for ZooKeeper and SQLite: values that the task opens.

    KafkaOptions(
        directory=ZooKeeperBrokers("zk:2181"),
        sharing=ByZooKeeperGroup("zk:2181", "words"),
        store=StormOffsets("zk:2181", root="/kafka", id="words"),
    )

Each works without the others. Nothing connects before the task opens.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from random import Random, SystemRandom
from typing import Any

from sunshower.arguments import COUNT
from sunshower.errors import ConfigError, KafkaError
from sunshower.kafka.options import ReaderContext
from sunshower.kafka.partitions.ports import Directory, Offsets, Partition, PartitionSharing
from sunshower.kafka.partitions.store_errors import using
from sunshower.kafka.zookeeper.directory import ZooKeeperDirectory
from sunshower.kafka.zookeeper.group import GroupTimeouts, Rule, ZooKeeperGroup
from sunshower.kafka.zookeeper.stored_offsets import (
    OffsetLayout,
    PlainLayout,
    StoredOffsets,
    StormLayout,
)
from sunshower.kafka.zookeeper.thread_assignment import by_range_of_threads
from sunshower.state.sqlite import SqliteFile
from sunshower.state.sqlite_tree import SqliteTree
from sunshower.state.zookeeper_client import ZooKeeperAccess
from sunshower.state.zookeeper_tree import ZooKeeperTree


@dataclass(frozen=True)
class _InZooKeeper(ZooKeeperAccess):
    @property
    def _where(self) -> object:
        return self.hosts, self.digest

    def _tree(self) -> ZooKeeperTree:
        with using(f"the ZooKeeper at {self.hosts}"):
            return ZooKeeperTree.of(self)

    def _offsets(self, reader: ReaderContext, layout: OffsetLayout) -> StoredOffsets:
        return StoredOffsets(self._tree(), layout, _owns(reader), _member(reader, self._where))


@dataclass(frozen=True)
class ZooKeeperBrokers(_InZooKeeper):
    """A `directory` from brokers that register in ZooKeeper.

    `root` is Kafka's node, as in the brokers' `zookeeper.connect`. For brokers with several
    listeners, `listener` selects the address.
    """

    root: str = ""
    listener: str = "PLAINTEXT"

    def __call__(self, _: Mapping[str, Any]) -> Directory:
        return ZooKeeperDirectory(self._tree(), root=self.root, listener=self.listener)


@dataclass(frozen=True)
class ByZooKeeperGroup(_InZooKeeper):
    """A `sharing`: each task is a member of the group, with `streams` threads for each topic, or
    of each topic its own number: {"orders": 2, "returns": 1}.

    `rule` must be the same for all members: `by_range_of_threads` or `round_robin_of_threads`.
    After a crash other members get a process's partitions when its session has expired, after
    `session_timeout_s`. Raises ConfigError for `partitions`, or a pattern with a comma.
    """

    group: str
    rule: Rule = by_range_of_threads
    streams: int | Mapping[str, int] = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        by_topic = self.streams if isinstance(self.streams, Mapping) else {"": self.streams}
        for topic, count in by_topic.items():
            COUNT.check(f"ByZooKeeperGroup: streams{f'[{topic!r}]' if topic else ''}", count)

    def __call__(self, reader: ReaderContext) -> PartitionSharing:
        topics: Collection[str] | re.Pattern[str] = reader.subscription.topics
        reader.subscription.check_whole_topics()
        pattern = reader.subscription.pattern
        if pattern is not None:
            if "," in pattern:
                raise ConfigError(
                    f"the pattern {pattern!r} has a comma, which the members of a ZooKeeper group "
                    "read as 'or', as Kafka's do: write 'a|b' for one of two, and for a repetition "
                    "such as 't{1,3}' all that it stands for, 't(t(t)?)?'"
                )
            topics = re.compile(pattern)
        return ZooKeeperGroup(
            self._tree(),
            self.group,
            topics,
            reader.directory,
            reader.context.clock,
            Random(SystemRandom().getrandbits(64)),
            streams=self.streams,
            rule=self.rule,
            timeouts=GroupTimeouts(suspended_max_s=self.session_timeout_s / 3),
            where=self._where,
        )


@dataclass(frozen=True)
class StormOffsets(_InZooKeeper):
    """A `store` of offsets in Storm's format at Storm's path.

    `root` and `id` are SpoutConfig's zkRoot and id; `wildcard` is kafka.topic.wildcard.match, which
    adds the topic to the path.
    """

    root: str
    id: str
    wildcard: bool = False

    def __call__(self, reader: ReaderContext) -> Offsets:
        layout = StormLayout(
            root=self.root,
            id=self.id,
            topology=reader.deployment,
            name=reader.context.topology,
            wildcard=self.wildcard,
            leader=lambda partition: _leader(reader.directory, partition),
        )
        return self._offsets(reader, layout)


@dataclass(frozen=True)
class PlainOffsets(_InZooKeeper):
    """A `store` of offsets as text at /consumers/`group`/offsets, as Kafka's ZooKeeper consumer
    has it, without metadata."""

    group: str

    def __call__(self, reader: ReaderContext) -> Offsets:
        return self._offsets(reader, PlainLayout(self.group))


@dataclass(frozen=True)
class SqliteOffsets(SqliteFile):
    """A `store` of offsets in a SQLite file in Storm's format, for the processes of one machine:
    opening it on another one than where it was declared raises ConfigError."""

    instead = "leave `store` out, so that Kafka stores the offsets, or give StormOffsets"
    id: str

    def __call__(self, reader: ReaderContext) -> Offsets:
        layout: OffsetLayout = StormLayout(
            "/offsets", self.id, reader.deployment, reader.context.topology, wildcard=True
        )
        with using(str(self.file)):
            return StoredOffsets(SqliteTree(self.path), layout, _owns(reader))


def _leader(directory: Directory, partition: Partition) -> str | None:
    """The leader of a partition, if it is known: a commit does not depend on it."""
    try:
        return directory.leaders(partition.topic).get(partition)
    except KafkaError:
        return None


def _owns(reader: ReaderContext) -> Callable[[Partition], bool]:
    """Only a ZooKeeper group knows the owner of a partition; otherwise the reader owns it."""
    sharing = reader.sharing
    return sharing.owns if isinstance(sharing, ZooKeeperGroup) else lambda _: True


def _member(reader: ReaderContext, where: object) -> Callable[[], str | None]:
    """The member's node if the group is in the same ZooKeeper; other groups have none there."""
    sharing = reader.sharing
    if isinstance(sharing, ZooKeeperGroup) and sharing.where == where:
        return sharing.member
    return lambda: None
