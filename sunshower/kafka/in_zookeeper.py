"""What a KafkaSpout is told when ZooKeeper has a part in it: options that open it in the task.

    KafkaOptions(
        directory=ZooKeeperBrokers("zk:2181"),
        sharing=ByZooKeeperGroup("zk:2181", "words"),
        offsets=StormOffsets("zk:2181", root="/kafka", id="words"),
    )

Each may be used without the others. They are values: nothing is asked before the task opens.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random, SystemRandom
from typing import Any

from sunshower.errors import ConfigError, KafkaError
from sunshower.kafka.assignment import by_range_of_threads
from sunshower.kafka.options import Post
from sunshower.kafka.over_store import using
from sunshower.kafka.partitions import Directory, Offsets, Partition, Sharing
from sunshower.kafka.stored_offsets import Layout, PlainLayout, StoredOffsets, StormLayout
from sunshower.kafka.zookeeper_directory import ZooKeeperDirectory
from sunshower.kafka.zookeeper_group import Patience, Rule, ZooKeeperGroup
from sunshower.stores.sqlite_tree import SqliteTree
from sunshower.stores.zookeeper import ZooKeeperTree
from sunshower.stores.zookeeper_client import Tls


@dataclass(frozen=True)
class _InZooKeeper:
    """`hosts` is a connect string; a path at its end is the root of all paths. What else it takes
    to be let in is as for ZooKeeperTree."""

    hosts: str
    session_timeout_s: float = field(default=10.0, kw_only=True)
    digest: tuple[str, str] | None = field(default=None, kw_only=True)
    tls: Tls | None = field(default=None, kw_only=True)

    @property
    def _where(self) -> object:
        return self.hosts, self.digest

    def _tree(self) -> ZooKeeperTree:
        with using(f"the ZooKeeper at {self.hosts}"):
            return ZooKeeperTree(
                self.hosts,
                session_timeout_s=self.session_timeout_s,
                digest=self.digest,
                tls=self.tls,
            )


@dataclass(frozen=True)
class ZooKeeperBrokers(_InZooKeeper):
    """A `directory`: brokers that publish themselves there. See ZooKeeperDirectory."""

    root: str = ""
    listener: str = "PLAINTEXT"

    def __call__(self, _: Mapping[str, Any]) -> Directory:
        return ZooKeeperDirectory(self._tree(), root=self.root, listener=self.listener)


@dataclass(frozen=True)
class ByZooKeeperGroup(_InZooKeeper):
    """A `sharing`: each task is a member of the group, with `streams` threads.

    `rule` must be the same for all: `by_range_of_threads` or `round_robin_of_threads`. A process
    that dies keeps its partitions from others until its session is over, `session_timeout_s`.
    A spout that reads `partitions`, or a pattern with a comma, gets a ConfigError.
    """

    group: str
    rule: Rule = by_range_of_threads
    streams: int = 1

    def __call__(self, post: Post) -> Sharing:
        topics: Collection[str] | re.Pattern[str] = post.subscription.topics
        if post.subscription.partitions:
            raise ConfigError(
                "a group shares whole topics: give topics=[…] or pattern='…' with it, or read "
                "partitions=[…] by index"
            )
        pattern = post.subscription.pattern
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
            post.directory,
            post.context.clock,
            Random(SystemRandom().getrandbits(64)),
            streams=self.streams,
            rule=self.rule,
            patience=Patience(suspended_max_s=self.session_timeout_s / 3),
            where=self._where,
        )


@dataclass(frozen=True)
class StormOffsets(_InZooKeeper):
    """An `offsets`: Storm's JSON at Storm's path. See StormLayout."""

    root: str
    id: str
    wildcard: bool = False

    def __call__(self, post: Post) -> Offsets:
        layout = StormLayout(
            self.root,
            self.id,
            post.deployment,
            post.context.topology,
            self.wildcard,
            lambda partition: _leader(post.directory, partition),
        )
        return StoredOffsets(self._tree(), layout, _owns(post), _member(post, self._where))


@dataclass(frozen=True)
class PlainOffsets(_InZooKeeper):
    """An `offsets`: text, as Kafka's consumer of ZooKeeper had them. See PlainLayout."""

    group: str

    def __call__(self, post: Post) -> Offsets:
        layout = PlainLayout(self.group)
        return StoredOffsets(self._tree(), layout, _owns(post), _member(post, self._where))


@dataclass(frozen=True)
class SqliteOffsets:
    """An `offsets` in a file, for the processes of one machine: as Storm's JSON."""

    file: Path | str
    id: str

    def __call__(self, post: Post) -> Offsets:
        layout: Layout = StormLayout(
            "/offsets", self.id, post.deployment, post.context.topology, wildcard=True
        )
        with using(str(self.file)):
            return StoredOffsets(SqliteTree(self.file), layout, _owns(post))


def _leader(directory: Directory, partition: Partition) -> str | None:
    """Only for the record: a commit does not fail for it."""
    try:
        return directory.leaders(partition.topic).get(partition)
    except KafkaError:
        return None


def _owns(post: Post) -> Callable[[Partition], bool]:
    """Only a ZooKeeper group can tell whose a partition is; elsewhere whoever reads it, has it."""
    sharing = post.sharing
    return sharing.owns if isinstance(sharing, ZooKeeperGroup) else lambda _: True


def _member(post: Post, where: object) -> Callable[[], str | None]:
    """Only of a group in the same ZooKeeper: others have no node there."""
    sharing = post.sharing
    if isinstance(sharing, ZooKeeperGroup) and sharing.where == where:
        return sharing.member
    return lambda: None
