"""Offsets in a tree (ZooKeeper, SQLite, memory), as Storm's spout wrote them, or Kafka's consumer.

layout   path                                       value
Storm    <root>/<id>/[<topic>/]partition_<n>        JSON: offset, topology's id and name, …
plain    /consumers/<group>/offsets/<topic>/<n>     the offset, as decimal text

Storm: org/apache/storm/kafka/PartitionManager.java (committedPath, commit)
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import ClassVar, Protocol

from sunshower.errors import BadOffset, NoNode, StaleGeneration
from sunshower.kafka.over_store import using
from sunshower.kafka.partitions import Committed, Partition
from sunshower.stores.tree import Tree


class Layout(Protocol):
    """Where an offset stands, and how. See the port `Offsets` for `keeps_writer`."""

    @property
    def keeps_writer(self) -> bool: ...
    def path(self, partition: Partition) -> str: ...
    def value(self, partition: Partition, committed: Committed) -> bytes: ...
    def read(self, partition: Partition, value: bytes) -> Committed:
        """Raises BadOffset."""


@dataclass(frozen=True)
class PlainLayout:
    """As Kafka's consumer of ZooKeeper kept them. There is no place for the metadata."""

    group: str
    keeps_writer: ClassVar[bool] = False

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
    """As Storm's spout kept them, so that an existing deployment is taken over.

    `root` and `id` are its SpoutConfig's zkRoot and id; `wildcard` is its
    kafka.topic.wildcard.match, with which the topic stands in the path. `topology` is the id of
    this deployment, `name` what its user calls it. `leader` tells where a partition's broker
    answers, for the record: nobody needs it.
    """

    root: str
    id: str
    topology: str
    name: str
    wildcard: bool = False
    leader: Callable[[Partition], str | None] = lambda _: None
    keeps_writer: ClassVar[bool] = True

    def path(self, partition: Partition) -> str:
        home = f"{self.root.rstrip('/')}/{self.id}".lstrip("/")
        topic = f"{partition.topic}/" if self.wildcard else ""
        return f"/{home}/{topic}partition_{partition.number}"

    def value(self, partition: Partition, committed: Committed) -> bytes:
        host, _, port = (self.leader(partition) or "").rpartition(":")
        return json.dumps(
            {
                "topology": {"id": self.topology, "name": self.name},
                "offset": committed.offset,
                "partition": partition.number,
                "broker": {"host": host, "port": int(port or -1)},
                "topic": partition.topic,
            }
        ).encode()

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
        return Committed(offset, json.dumps({"topologyId": writer}) if writer else "")


class StoredOffsets:
    """See the port `Offsets`. It owns the tree: closing this closes that.

    `owns` tells whether a partition is still this reader's (`ZooKeeperGroup.owns`); what is not
    is not written. `member` tells the node of its membership, where that is in this tree: while it
    is gone nothing is written, also if the session ends between the question and the write.
    Elsewhere a partition may be lost in between: then its new owner reads again what was settled.
    """

    def __init__(
        self,
        tree: Tree,
        layout: Layout,
        owns: Callable[[Partition], bool] = lambda _: True,
        member: Callable[[], str | None] = lambda: None,
    ) -> None:
        self._tree = tree
        self._layout = layout
        self._owns = owns
        self._member = member
        self.keeps_writer = layout.keeps_writer

    def read(self, partitions: Collection[Partition]) -> dict[Partition, Committed]:
        found: dict[Partition, Committed] = {}
        for partition in partitions:
            path = self._layout.path(partition)
            with using(path):
                node = self._tree.get(path)
            if node:
                found[partition] = self._layout.read(partition, node.value)
        return found

    def write(self, offsets: Mapping[Partition, Committed]) -> None:
        member = self._member()  # first: by the time of the writes it may be another one
        with using("whose the partitions are"):
            lost = sorted(partition for partition in offsets if not self._owns(partition))
        if lost:
            raise StaleGeneration(
                f"{', '.join(map(str, lost))} belong to somebody else by now: nothing is committed"
            )
        for partition, committed in offsets.items():
            path = self._layout.path(partition)
            with using(path):
                try:
                    self._tree.put(path, self._layout.value(partition, committed), member)
                except NoNode as error:
                    told = f"{partition} is not committed: {member} is gone"
                    raise StaleGeneration(told) from error

    def write_soon(self, offsets: Mapping[Partition, Committed]) -> None:
        return None

    def close(self) -> None:
        self._tree.close()


def _bad(path: str, value: bytes, wanted: str) -> BadOffset:
    return BadOffset(
        f"{path} holds no offset: {wanted} is wanted, and there is {value[:80]!r}. Correct it, or "
        "remove the node to begin as if nothing had been committed."
    )
