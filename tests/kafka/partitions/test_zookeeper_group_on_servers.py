"""A consumer group in a real ZooKeeper: sessions that expire, and a server that is killed."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from functools import partial
from random import Random

import pytest

from sunshower.clock import SystemClock
from sunshower.dev.zookeeper import ZooKeeper
from sunshower.errors import KafkaUnreachable, StaleGeneration
from sunshower.kafka.partitions.ports import Committed, Partition
from sunshower.kafka.zookeeper.group import ZooKeeperGroup
from sunshower.kafka.zookeeper.options import PlainLayout, StoredOffsets
from sunshower.state.zookeeper_tree import ZooKeeperTree
from tests.kafka.groups import Topics
from tests.state.session_expiry import expire

WITHIN_S = 120.0
TOPICS = Topics(t=6)
ALL = {*TOPICS.partitions("t")}


class Reader:
    """A member of the group that commits offset 7 of each partition that it releases."""

    def __init__(
        self, zookeeper: ZooKeeper, group: str, session_s: float, suspended_max_s: float
    ) -> None:
        self.tree = ZooKeeperTree(
            zookeeper.connect,
            session_timeout_s=session_s,
            answer_within_s=120.0,  # connecting again may take 2/3 of a session
        )
        clock, chance = SystemClock(), Random()
        self.group = ZooKeeperGroup(
            self.tree, group, ["t"], TOPICS, clock, chance, suspended_max_s=suspended_max_s
        )
        self.offsets = StoredOffsets(
            self.tree, PlainLayout(group), self.group.owns, partial(self.group.member, None)
        )
        self.reads: set[Partition] = set()
        self.lost: list[Partition] = []

    def standing(self) -> dict[str, object]:
        """For the message of a failed test."""
        lists = {"reads": self.reads, "lost": self.lost, "waits for": self.group.waiting}
        partition_lists: dict[str, object] = {
            name: sorted(partitions) for name, partitions in lists.items()
        }
        return partition_lists | {
            "member": self.group.member(None),
            "connection": self.tree.client.state,
        }

    def assigned(self, partitions: Collection[Partition]) -> None:
        self.reads |= {*partitions}

    def revoked(self, partitions: Collection[Partition], *, lost: bool) -> None:
        if lost:
            self.lost += sorted(partitions)
        else:
            self.offsets.write(dict.fromkeys(partitions, Committed(7)))
        self.reads -= {*partitions}


class Group:
    """Readers of one group, which look in turn."""

    def __init__(self, zookeeper: ZooKeeper) -> None:
        self.name = f"g{uuid.uuid4().hex}"
        self.readers: list[Reader] = []
        self._zookeeper = zookeeper

    def join(self, count: int, session_s: float = 20.0, suspended_max_s: float = 3.0) -> None:
        for _ in range(count):
            reader = Reader(self._zookeeper, self.name, session_s, suspended_max_s)
            self.readers.append(reader)

    def until(self, condition: Callable[[], bool]) -> None:
        clock = SystemClock()
        end_s = clock.now() + WITHIN_S
        while not condition():
            assert clock.now() < end_s, [reader.standing() for reader in self.readers]
            for reader in self.readers:
                with suppress(KafkaUnreachable):  # raised while it may not read
                    reader.group.look(reader)
            clock.sleep(0.01)

    def is_shared(self) -> bool:
        """Whether each partition has one reader, and all readers about as many partitions."""
        read = [partition for reader in self.readers for partition in reader.reads]
        counts = [len(reader.reads) for reader in self.readers]
        return sorted(read) == sorted(ALL) and max(counts) - min(counts) <= 1


@pytest.fixture
def group(zookeeper: ZooKeeper) -> Iterator[Group]:
    new_group = Group(zookeeper)
    yield new_group
    for reader in new_group.readers:
        reader.tree.close()


def test_members_commit_the_partitions_that_they_release(group: Group) -> None:
    group.join(1)
    group.until(group.is_shared)
    group.join(2)
    group.until(group.is_shared)
    first = group.readers.pop(0)
    stored = {*first.offsets.read(ALL)}
    assert len(stored) == 4
    first.group.leave(first)
    group.until(group.is_shared)
    assert len(group.readers[0].offsets.read(ALL)) == 6


def test_an_expired_session_loses_its_partitions_and_cannot_commit_them(
    group: Group, zookeeper: ZooKeeper
) -> None:
    group.join(2)
    group.until(group.is_shared)
    expired, other = group.readers
    had = {*expired.reads}
    expire(zookeeper, expired.tree)
    group.readers = [other]
    group.until(group.is_shared)  # the other has all partitions before the first looks again
    with pytest.raises(StaleGeneration):
        expired.offsets.write(dict.fromkeys(had, Committed(99)))
    late = StoredOffsets(
        other.tree, PlainLayout(group.name), lambda _: True, partial(expired.group.member, None)
    )
    # The check of the owner has passed, but the member is gone at the write.
    with pytest.raises(StaleGeneration, match="is gone"):
        late.write(dict.fromkeys(had, Committed(99)))
    assert not other.offsets.read(had)
    group.readers = [expired, other]
    group.until(lambda: bool(expired.lost) and group.is_shared())
    assert {*expired.lost} == had


def test_no_member_loses_partitions_when_the_server_is_killed_and_restarted(
    group: Group, zookeeper: ZooKeeper
) -> None:
    group.join(2, session_s=60.0, suspended_max_s=600.0)  # whatever a start of the server takes
    group.until(group.is_shared)
    zookeeper.kill()
    zookeeper.restart()
    group.join(1)  # gets partitions only if the server and the other members work
    group.until(group.is_shared)
    assert [reader.lost for reader in group.readers] == [[], [], []]


def test_in_a_long_outage_no_member_reads_partitions_that_it_may_have_lost(
    group: Group, zookeeper: ZooKeeper
) -> None:
    group.join(2, suspended_max_s=0.2)
    group.until(group.is_shared)
    zookeeper.kill()
    group.until(lambda: not any(reader.reads for reader in group.readers))
    zookeeper.restart()
    group.until(group.is_shared)
    assert sorted(partition for reader in group.readers for partition in reader.lost) == sorted(ALL)
