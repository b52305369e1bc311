"""A ZooKeeper group in memory: its members are stepped by hand, and faults can hit any call."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from random import Random
from typing import Any

from sunshower.clock import Clock, ManualClock
from sunshower.errors import StoreUnreachable
from sunshower.kafka.consuming.subscription import TopicSubscription
from sunshower.kafka.options import ReaderContext
from sunshower.kafka.partitions.ports import Partition
from sunshower.kafka.zookeeper.group import Rule, ZooKeeperGroup, by_range_of_threads
from sunshower.state.tree import MemoryForest, MemoryTree, SessionState
from sunshower.topologies.components import Context

CALLS = {"get", "children", "create", "set", "delete", "withdraw", "watch"}


class Crash(BaseException):
    """The process of a member dies."""


def raises(error: BaseException) -> Callable[..., None]:
    def fail(*_: object) -> None:
        raise error

    return fail


class Topics:
    """A directory: the number of partitions of each topic."""

    def __init__(self, **counts: int) -> None:
        self.counts = counts
        self.ids: dict[str, str] = {}  # topic → its id; without one: of brokers that give none

    def topic_ids(self, topics: Collection[str]) -> dict[str, str]:
        return {topic: self.ids.get(topic, "") for topic in topics if topic in self.counts}

    def topics(self) -> frozenset[str]:
        return frozenset(self.counts)

    def partitions(self, topic: str) -> tuple[Partition, ...]:
        return tuple(Partition(topic, number) for number in range(self.counts[topic]))

    def leaders(self, topic: str) -> dict[Partition, str | None]:
        return dict.fromkeys(self.partitions(topic))

    def close(self) -> None: ...


def reader_context(
    read: TopicSubscription,
    topics: Any = None,
    clock: Clock | None = None,
    *,
    index: int = 0,
    tasks: int = 1,
    consumer: Any = None,
    refresh_s: float = 10.0,
) -> ReaderContext:
    """What task `index` of `tasks` has when it creates its sharing."""
    context = Context("t", "in", index, index, tasks, clock=clock or ManualClock())
    return ReaderContext(context, read, topics, consumer, refresh_s, "d")


class FaultyConnection:
    """A member's connection to its tree. `before` and `after` are called around each call."""

    def __init__(self, forest: MemoryForest) -> None:
        self.tree = MemoryTree(forest)
        self.before: Callable[[], None] = lambda: None
        self.after: Callable[[], None] = lambda: None
        self.calls = 0
        self.is_unavailable = False
        self._listeners: list[Callable[[SessionState], None]] = []

    def listen(self, listener: Callable[[SessionState], None]) -> None:
        self._listeners.append(listener)
        self.tree.listen(listener)

    def notify(self, session: SessionState) -> None:
        for listener in self._listeners:
            listener(session)

    def __getattr__(self, name: str) -> Any:
        call = getattr(self.tree, name)
        if name not in CALLS:
            return call

        def disturbed(*arguments: object, **named: object) -> object:
            self.calls += 1
            self.before()
            if self.is_unavailable:
                raise StoreUnreachable("unavailable")
            answer = call(*arguments, **named)
            self.after()
            return answer

        return disturbed


class Member:
    """A member of the group, which also reads. It asserts that no two read one partition."""

    def __init__(
        self, rig: GroupRig, number: int, group: ZooKeeperGroup, connection: FaultyConnection
    ) -> None:
        self.rig = rig
        self.number = number
        self.group = group
        self.connection = connection
        self.group_name = ""  # the name of its group
        self.reads: set[Partition] = set()
        self.history: list[str] = []
        self.unaware = False  # its session has ended, and it has not been informed yet
        self.suspended_s: float | None = None

    def assigned(self, partitions: Collection[Partition]) -> None:
        assert partitions
        assert not self.unaware
        for other in self.rig.members:
            if not other.unaware and other.group_name == self.group_name:
                assert not other.reads & {*partitions}, f"{self.number} and {other.number}"
        self.reads |= {*partitions}
        self.history.append("+" + " ".join(map(str, sorted(partitions))))

    def revoked(self, partitions: Collection[Partition], *, lost: bool) -> None:
        assert self.reads >= {*partitions}
        if not lost and not self.unaware and not self.connection.is_unavailable:
            for partition in partitions:
                node = self.rig.in_zookeeper()[partition]
                assert f"host{self.number:04}-" in node, "another member could own it by now"
        self.reads -= {*partitions}
        self.history.append(("!" if lost else "-") + " ".join(map(str, sorted(partitions))))

    def look(self) -> None:
        self.unaware = False
        self.group.look(self)

    def expire(self) -> None:
        """The session ends and a new one begins, before the member is informed."""
        if self.suspended_s is None:
            self.unaware = True
        self.connection.tree.expire()

    def suspend(self) -> None:
        self.connection.is_unavailable = True
        self.suspended_s = self.rig.clock.now()
        self.connection.notify(SessionState.SUSPENDED)

    def resume(self, *, expired: bool) -> None:
        if expired:
            self.expire()
        self.connection.is_unavailable = False
        self.suspended_s = None
        self.connection.notify(SessionState.CONNECTED)


class GroupRig:
    """The members of groups, their topics, a manual clock, and one seed for all random choices."""

    def __init__(self, topics: Topics, seed: int = 0, rule: Rule = by_range_of_threads) -> None:
        self.forest = MemoryForest()
        self.clock = ManualClock()
        self.topics = topics
        self.random = Random(seed)
        self.rule = rule
        self.members: list[Member] = []
        self.tree = MemoryTree(self.forest)
        self._joined = 0

    def join(
        self,
        topics: Collection[str] | re.Pattern[str] | None = None,
        streams: int | Mapping[str, int] = 1,
        group: str = "g",
        data: Any = None,
    ) -> Member:
        connection = FaultyConnection(self.forest)
        self._joined += 1
        member = ZooKeeperGroup(
            connection,
            group,
            topics or self.topics.topics(),
            self.topics,
            self.clock,
            Random(self.random.getrandbits(64)),
            streams=streams,
            rule=self.rule,
            data=data,
            host=f"host{self._joined:04}",
            wall=self.clock.now,
        )
        new_member = Member(self, self._joined, member, connection)
        new_member.group_name = group
        self.members.append(new_member)
        return new_member

    def crash(self, member: Member) -> None:
        """Remove a member and end its session, without `leave`."""
        self.members.remove(member)
        member.connection.tree.close()

    def leave(self, member: Member) -> None:
        member.group.leave(member)
        assert not member.reads
        self.members.remove(member)

    def settle(self, rounds: int = 40) -> None:
        """Let all members look, in random order, until nothing changes any more."""
        for _ in range(rounds):
            self.clock.advance(0.5)
            for member in self.random.sample(self.members, len(self.members)):
                member.look()

    def all(self) -> set[Partition]:
        return {
            partition
            for topic in self.topics.topics()
            for partition in self.topics.partitions(topic)
        }

    def owners(self) -> dict[Partition, int]:
        """The reader of each partition; fails if there are two.

        A member that has not been informed yet that its session has ended is ignored.
        """
        numbers: dict[Partition, int] = {}
        for member in self.members:
            for partition in member.reads if not member.unaware else ():
                assert partition not in numbers
                numbers[partition] = member.number
        return numbers

    def in_zookeeper(self) -> dict[Partition, str]:
        """The contents of the owner nodes."""
        home = "/consumers/g/owners"
        owner_names = {}
        for topic in self.tree.children(home):
            for number in self.tree.children(f"{home}/{topic}"):
                node = self.tree.get(f"{home}/{topic}/{number}")
                assert node
                owner_names[Partition(topic, int(number))] = node.value.decode()
        return owner_names
