"""Options of KafkaSpout for ZooKeeper and SQLite: values that the task opens.

    KafkaOptions(
        directory=ZooKeeperBrokers("zk:2181"),
        sharing=ByZooKeeperGroup("zk:2181", "words"),
        store=StormOffsets("zk:2181", root="/kafka", id="words"),
    )

Each works without the others. Nothing connects before the task opens.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from inspect import signature
from random import Random, SystemRandom
from types import NoneType
from typing import Any, ClassVar, TypeAlias

from sunshower.arguments import COUNT, FUNCTION, Instance
from sunshower.errors import (
    BadOffset,
    ConfigError,
    KafkaError,
    KafkaUnreachable,
    NoNode,
    StaleGeneration,
    UnknownTopic,
)
from sunshower.kafka.options import ReaderContext
from sunshower.kafka.partitions.ports import (
    INTERNAL_TOPICS,
    Committed,
    Directory,
    Offsets,
    Partition,
    PartitionSharing,
    using,
)
from sunshower.kafka.zookeeper.group import Rule, ZooKeeperGroup, by_range_of_threads
from sunshower.state.sqlite import SqliteFile
from sunshower.state.sqlite_tree import SqliteTree
from sunshower.state.tree import Tree
from sunshower.state.zookeeper_client import ZooKeeperAccess
from sunshower.state.zookeeper_tree import ZooKeeperTree
from sunshower.topologies.components import Context
from sunshower.topologies.signatures import name_of

# ---- stored offsets ------------------------------------------------------------------------------
# Commits offsets to a tree (ZooKeeper, SQLite, memory), in Storm's or in Kafka's old layout.
#
# layout  path                                              value
# Storm   <root>/<id>/[<topic>/]partition_<n>               JSON: offset, topology's id and name
# plain   /consumers/<group>/offsets/<topic>/<n>            the offset, as decimal text
#         /consumers/<group>/offsets/<topic>/<n>/topic_id   the id of the topic, as text
#
# Both readers ignore what Storm and Kafka do not write: "topicId" in the JSON, and the node below
# the offset. That node is written after its offset: if a process dies in between, the offset
# counts as one of the former topic, and the new topic is read from its start again.
#
# Source: `committedPath` and `commit` of org/apache/storm/kafka/PartitionManager.java


@dataclass(frozen=True)
class PlainLayout:
    """The layout of Kafka's old ZooKeeper consumer. It has no metadata (`keeps_writer`, as of port
    `Offsets`), and the topic's id is a node of its own (`has_topic_node`)."""

    group: str
    keeps_writer: ClassVar[bool] = False
    has_topic_node: ClassVar[bool] = True

    def path(self, partition: Partition) -> str:
        return f"/consumers/{self.group}/offsets/{partition.topic}/{partition.number}"

    def value(self, partition: Partition, committed: Committed) -> bytes:
        return str(committed.offset).encode()

    def read(self, partition: Partition, value: bytes) -> Committed:
        if not value.isdigit():
            raise _bad(self.path(partition), value, "the offset as decimal text")
        return Committed(int(value))


@dataclass(frozen=True)
class StormLayout:
    """The layout of Storm's spout; see StormOffsets. `topology` is the id of this deployment,
    `name` its user-visible name. `leader` returns a partition's broker, which is recorded but never
    read."""

    root: str
    id: str
    topology: str
    name: str
    wildcard: bool = False
    leader: Callable[[Partition], str | None] = lambda _: None
    keeps_writer: ClassVar[bool] = True
    has_topic_node: ClassVar[bool] = False

    def path(self, partition: Partition) -> str:
        home = f"{self.root.rstrip('/')}/{self.id}".lstrip("/")
        topic = f"{partition.topic}/" if self.wildcard else ""
        return f"/{home}/{topic}partition_{partition.number}"

    def value(self, partition: Partition, committed: Committed) -> bytes:
        host, _, port = (self.leader(partition) or "").rpartition(":")
        value = {
            "topology": {"id": self.topology, "name": self.name},
            "offset": committed.offset,
            "partition": partition.number,
            "broker": {"host": host, "port": int(port or -1)},
            "topic": partition.topic,
        }
        of_topic = {name: committed.fields.get(name) for name in ("topicId", "leaderEpoch")}
        value |= {
            name: value_of_topic
            for name, value_of_topic in of_topic.items()
            if value_of_topic is not None
        }
        return json.dumps(value).encode()

    def read(self, partition: Partition, value: bytes) -> Committed:
        path = self.path(partition)
        try:
            content = json.loads(value)
        except ValueError:
            content = None
        match content:
            case {"offset": int(offset), **more} if offset >= 0 and offset is not True:
                pass
            case _:
                raise _bad(path, value, 'JSON as of Storm, with an "offset"')
        for what, ours in (("topic", partition.topic), ("partition", partition.number)):
            if more.get(what, ours) != ours:
                raise BadOffset(
                    f"{path} holds the offset of {what} {more[what]!r}, not of {ours!r}: another "
                    "deployment uses this path. Give each its own root or id, or set `wildcard`."
                )
        topology = more.get("topology")
        writer = topology.get("id") if isinstance(topology, dict) else None
        fields = {"topologyId": writer} if writer else {}
        fields |= {name: more[name] for name in ("topicId", "leaderEpoch") if name in more}
        return Committed(offset, json.dumps(fields) if fields else "")


OffsetLayout: TypeAlias = PlainLayout | StormLayout


class StoredOffsets(Offsets):
    """Offsets in a tree. It owns the tree: closing this closes that.

    `owns` returns whether this reader still owns a partition (`ZooKeeperGroup.owns`); offsets of
    others are not written. `member` returns the path of the reader's membership node if that is in
    this tree: without that node nothing is written, even if the session ends between check and
    write. Otherwise a partition may be lost in between: its new owner then reads again what was
    settled.
    """

    def __init__(
        self,
        tree: Tree,
        layout: OffsetLayout,
        owns: Callable[[Partition], bool] = lambda _: True,
        member: Callable[[], str | None] = lambda: None,
    ) -> None:
        self._tree = tree
        self._layout = layout
        self._owns = owns
        self._member = member
        self.keeps_writer = layout.keeps_writer
        self._topics: dict[Partition, str] = {}  # the stored ids of topics, in nodes of their own

    def read(self, partitions: Collection[Partition]) -> dict[Partition, Committed]:
        committed: dict[Partition, Committed] = {}
        for partition in partitions:
            path = self._layout.path(partition)
            with using(path):
                node = self._tree.get(path)
                topic = self._tree.get(_topic(path)) if self._layout.has_topic_node else None
            if node:
                committed[partition] = self._layout.read(partition, node.value)
            if node and topic:
                self._topics[partition] = id = topic.value.decode(errors="replace")
                committed[partition] = committed[partition]._replace(
                    metadata=json.dumps({"topicId": id})
                )
        return committed

    def write(self, offsets: Mapping[Partition, Committed]) -> None:
        member = self._member()  # before the writes: a new session would have another node
        with using("whose the partitions are"):
            lost = sorted(partition for partition in offsets if not self._owns(partition))
        if lost:
            raise StaleGeneration(
                f"{', '.join(map(str, lost))} were reassigned meanwhile: nothing is committed"
            )
        for partition, committed in offsets.items():
            path = self._layout.path(partition)
            with using(path):
                try:
                    self._tree.put(path, self._layout.value(partition, committed), member)
                    id = committed.topic_id
                    is_new = bool(id) and self._topics.get(partition) != id
                    if self._layout.has_topic_node and is_new:
                        self._tree.put(_topic(path), id.encode(), member)
                        self._topics[partition] = id
                except NoNode as error:
                    text = f"{partition} is not committed: {member} is gone"
                    raise StaleGeneration(text) from error

    def close(self) -> None:
        self._tree.close()


def _topic(path: str) -> str:
    return f"{path}/topic_id"


def _bad(path: str, value: bytes, wanted: str) -> BadOffset:
    return BadOffset(
        f"{path} holds no offset: {wanted} is wanted, and there is {value[:80]!r}. Correct it, or "
        "remove the node to begin as if nothing had been committed."
    )


# ---- directory -----------------------------------------------------------------------------------
# Lists topics, partitions and leaders from ZooKeeper, where brokers up to Kafka 3 publish them.
#
# /brokers/ids/<id>                               a broker's address; ephemeral
# /brokers/topics/<topic>                         its partitions, each with the ids of its replicas
# /brokers/topics/<topic>/partitions/<p>/state    the id of the leading broker; −1: none
#
# Storm's reader omits partitions whose broker is down, which reassigns all later ones
# (org/apache/storm/kafka/DynamicBrokersReader.java). Here the topic's node alone determines the
# partitions; their leaders are a separate question.


class ZooKeeperDirectory:
    """Implements the port `Directory`. It owns the tree: closing this closes that. See
    ZooKeeperBrokers."""

    def __init__(self, tree: Tree, *, root: str = "", listener: str = "PLAINTEXT") -> None:
        self._tree = tree
        self._brokers = f"{root.rstrip('/')}/brokers"
        self._listener = listener

    def topics(self) -> frozenset[str]:
        path = f"{self._brokers}/topics"
        with using(path):
            if self._tree.get(path) is None:
                raise KafkaUnreachable(
                    f"no Kafka is registered in this ZooKeeper: there is no {path}. Is it "
                    "below another node (`root`), or a Kafka without ZooKeeper?"
                )
            return frozenset(self._tree.children(path)) - INTERNAL_TOPICS

    def partitions(self, topic: str) -> tuple[Partition, ...]:
        path = f"{self._brokers}/topics/{topic}"
        topic_node = self._read(path)
        if topic_node is None:
            self.topics()  # raises if there is no Kafka at all
            raise UnknownTopic(
                f"there is no topic {topic!r}: ZooKeeper has no {path}. Create it, or correct its "
                "name"
            )
        match topic_node:
            case {"partitions": dict(replicas)} if all(number.isdecimal() for number in replicas):
                return tuple(Partition(topic, number) for number in sorted(map(int, replicas)))
        raise KafkaError(
            f"{path} in ZooKeeper does not contain the partitions of a topic: {topic_node}"
        )

    def topic_ids(self, topics: Collection[str]) -> dict[str, str]:
        nodes = {topic: self._read(f"{self._brokers}/topics/{topic}") for topic in topics}
        return {
            topic: str(node.get("topic_id", ""))
            for topic, node in nodes.items()
            if node is not None
        }

    def leaders(self, topic: str) -> dict[Partition, str | None]:
        brokers = self.brokers()
        return {
            partition: brokers.get(leader)
            if (leader := self._leader(partition)) is not None
            else None
            for partition in self.partitions(topic)
        }

    def brokers(self) -> dict[int, str]:
        """The addresses of the running brokers, by id: host:port."""
        path = f"{self._brokers}/ids"
        with using(path):
            ids = self._tree.children(path)
        brokers = {id: self._read(f"{path}/{id}") for id in ids}
        return {
            int(id): address
            for id, broker in brokers.items()
            if broker is not None and (address := _address(broker, self._listener))
        }

    def bootstrap(self) -> str:
        """Raises KafkaUnreachable if no broker is registered, KafkaError if none has the
        listener."""
        if addresses := self.brokers():
            return ",".join(address for _, address in sorted(addresses.items()))
        self.topics()  # raises if there is no Kafka at all
        path = f"{self._brokers}/ids"
        with using(path):
            ids = self._tree.children(path)
        if not ids:
            raise KafkaUnreachable(f"no broker is registered at {path}: none is running")
        offered = {id: (self._read(f"{path}/{id}") or {}).get("endpoints") for id in ids}
        raise KafkaError(
            f"no broker at {path} has the listener {self._listener!r}. Give `listener` one of "
            f"theirs: {offered}"
        )

    def close(self) -> None:
        self._tree.close()

    def _leader(self, partition: Partition) -> int | None:
        topic, number = partition
        state = self._read(f"{self._brokers}/topics/{topic}/partitions/{number}/state")
        leader = (state or {}).get("leader")
        return leader if isinstance(leader, int) and leader >= 0 else None

    def _read(self, path: str) -> dict[str, object] | None:
        """The JSON object of a node; None if there is no such node."""
        with using(path):
            node = self._tree.get(path)
        if node is None:
            return None
        try:
            content = json.loads(node.value)
        except ValueError:
            content = None
        if not isinstance(content, dict):
            raise KafkaError(f"{path} in ZooKeeper is not a JSON object: {node.value[:80]!r}")
        return content


def _address(broker: dict[str, object], listener: str) -> str | None:
    """The address of a listener, by its name or protocol; older brokers have `host`, `port`."""
    match broker.get("listener_security_protocol_map"):
        case dict(protocols):
            pass
        case _:
            protocols = {}
    endpoints = broker.get("endpoints")
    for wanted in (listener, *(name for name, of in protocols.items() if of == listener)):
        for endpoint in endpoints if isinstance(endpoints, list) else []:
            name, _, address = str(endpoint).partition("://")
            if name == wanted:
                return address
    host, port = broker.get("host"), broker.get("port")
    if not endpoints and isinstance(host, str) and isinstance(port, int) and port > 0:
        return f"{host}:{port}"
    return None


# ---- options -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _InZooKeeper(ZooKeeperAccess):
    @property
    def _where(self) -> object:
        return self.hosts, self.digest

    def _tree(self) -> ZooKeeperTree:
        with using(f"the ZooKeeper at {self.hosts}"):
            return ZooKeeperTree.of(self)

    def _offsets(self, reader: ReaderContext, layout: OffsetLayout) -> StoredOffsets:
        sharing = reader.sharing
        assert sharing is not None
        member = partial(sharing.member, self._where)
        return StoredOffsets(self._tree(), layout, sharing.owns, member)


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


_DATA = Instance((Callable, NoneType), "a function of the Context of a task")


@dataclass(frozen=True)
class ByZooKeeperGroup(_InZooKeeper):
    """A `sharing`: each task is a member of the group, with `streams` threads for each topic, or
    of each topic its own number: {"orders": 2, "returns": 1}.

    `rule` must be the same for all members: `by_range_of_threads`, `round_robin_of_threads`, or
    your own function of the partitions and of the streams (member → topic → number of threads),
    which returns the partitions of each `StreamThread`. With `data`, a function of the Context of a
    task that returns a value of JSON, it gets the data of each member as a third argument.
    After a crash other members get a process's partitions when its session has expired, after
    `session_timeout_s`. Raises ConfigError for `partitions`, or a pattern with a comma.
    """

    group: str
    rule: Rule = by_range_of_threads
    streams: int | Mapping[str, int] = 1
    data: Callable[[Context], Any] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        FUNCTION.check("ByZooKeeperGroup: rule", self.rule)
        _DATA.check("ByZooKeeperGroup: data", self.data)
        names = ("partitions", "streams", "data")[: 2 if self.data is None else 3]
        try:
            signature(self.rule).bind(*names)
        except TypeError:
            raise ConfigError(
                f"ByZooKeeperGroup: rule, {name_of(self.rule)}, must take ({', '.join(names)}): "
                "give a function of these. The data of the members come with data= only"
            ) from None
        by_topic = self.streams if isinstance(self.streams, Mapping) else {"": self.streams}
        for topic, count in by_topic.items():
            COUNT.check(f"ByZooKeeperGroup: streams{f'[{topic!r}]' if topic else ''}", count)

    def __call__(self, reader: ReaderContext) -> PartitionSharing:
        topics: Collection[str] | re.Pattern[str] = reader.subscription.topics
        reader.subscription.check_whole_topics()
        data = None if self.data is None else self.data(reader.context)
        if self.data is not None and data is None:
            raise ConfigError("ByZooKeeperGroup: data returned None; let it return a value")
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
            data=data,
            suspended_max_s=self.session_timeout_s / 3,
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
        layout = StormLayout(
            "/offsets", self.id, reader.deployment, reader.context.topology, wildcard=True
        )
        assert reader.sharing is not None
        with using(str(self.file)):
            return StoredOffsets(SqliteTree(self.path), layout, reader.sharing.owns)


def _leader(directory: Directory, partition: Partition) -> str | None:
    """The leader of a partition, if it is known: a commit does not depend on it."""
    try:
        return directory.leaders(partition.topic).get(partition)
    except KafkaError:
        return None
