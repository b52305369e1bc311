"""Commits offsets to a tree (ZooKeeper, SQLite, memory), in Storm's or in Kafka's old layout.

layout   path                                                value
Storm    <root>/<id>/[<topic>/]partition_<n>                 JSON: offset, topology's id and name, …
plain    /consumers/<group>/offsets/<topic>/<n>              the offset, as decimal text
         /consumers/<group>/offsets/<topic>/<n>/topic_id     the id of the topic, as text

Both readers ignore what Storm and Kafka do not write: "topicId" in the JSON, and the node below the
offset. That node is written after its offset: if a process dies in between, the offset counts as
one of the former topic, and the new topic is read from its start again.

Storm: org/apache/storm/kafka/PartitionManager.java (committedPath, commit)
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import ClassVar, Protocol

from sunshower.errors import BadOffset, NoNode, StaleGeneration
from sunshower.kafka.partitions.ports import Committed, Offsets, Partition
from sunshower.kafka.partitions.store_errors import using
from sunshower.state.tree import Tree


class OffsetLayout(Protocol):
    """The path and format of a stored offset. `keeps_writer` is that of the port `Offsets`."""

    @property
    def keeps_writer(self) -> bool: ...
    @property
    def has_topic_node(self) -> bool: ...  # the topic's id is a node of its own
    def path(self, partition: Partition) -> str: ...
    def value(self, partition: Partition, committed: Committed) -> bytes: ...
    def read(self, partition: Partition, value: bytes) -> Committed:
        """Raises BadOffset."""


@dataclass(frozen=True)
class PlainLayout:
    """The layout of Kafka's old ZooKeeper consumer. It has no metadata."""

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
    """The layout of Storm's spout, so that its deployments can be migrated.

    `root` and `id` are SpoutConfig's zkRoot and id; `wildcard` is kafka.topic.wildcard.match,
    which adds the topic to the path. `topology` is the id of this deployment, `name` its
    user-visible name. `leader` returns a partition's broker, which is recorded but never read.
    """

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
        value |= {name: one for name, one in of_topic.items() if one is not None}
        return json.dumps(value).encode()

    def read(self, partition: Partition, value: bytes) -> Committed:
        path = self.path(partition)
        try:
            found = json.loads(value)
        except ValueError:
            found = None
        match found:
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
        found: dict[Partition, Committed] = {}
        for partition in partitions:
            path = self._layout.path(partition)
            with using(path):
                node = self._tree.get(path)
                topic = self._tree.get(_topic(path)) if self._layout.has_topic_node else None
            if node:
                found[partition] = self._layout.read(partition, node.value)
            if node and topic:
                self._topics[partition] = id = topic.value.decode(errors="replace")
                found[partition] = found[partition]._replace(metadata=json.dumps({"topicId": id}))
        return found

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
                    if self._layout.has_topic_node:
                        self._write_topic(partition, committed.topic_id, member)
                except NoNode as error:
                    text = f"{partition} is not committed: {member} is gone"
                    raise StaleGeneration(text) from error

    def _write_topic(self, partition: Partition, id: str, member: str | None) -> None:
        """Store the id of the topic, if it is another one than before."""
        if id and self._topics.get(partition) != id:
            self._tree.put(_topic(self._layout.path(partition)), id.encode(), member)
            self._topics[partition] = id

    def close(self) -> None:
        self._tree.close()


def _topic(path: str) -> str:
    return f"{path}/topic_id"


def _bad(path: str, value: bytes, wanted: str) -> BadOffset:
    return BadOffset(
        f"{path} holds no offset: {wanted} is wanted, and there is {value[:80]!r}. Correct it, or "
        "remove the node to begin as if nothing had been committed."
    )
