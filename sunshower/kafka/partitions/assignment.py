"""Partition assignment: Storm's rule for tasks, and those of both Kafka consumers for groups.

modulo                    task i of n takes each n-th partition    Storm's spouts
by_range                  runs of each topic, by member            the consumer of Kafka's brokers
by_range_of_threads       runs of each topic, by stream thread     the consumer of ZooKeeper
round_robin               dealt in order, by member                the consumer of Kafka's brokers
round_robin_of_threads    dealt in the order of hashes, by thread  the consumer of ZooKeeper

Each function ignores the order of its arguments, so that all members compute the same assignment.
Partitions of topics without a subscriber stay unassigned. Strings are in Java's order.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import cycle, pairwise
from typing import NamedTuple, TypeVar

from sunshower.errors import ConfigError, KafkaError
from sunshower.kafka.partitions.ports import Partition

_T = TypeVar("_T")

Assignment = dict[str, tuple[Partition, ...]]  # by member
Streams = Mapping[str, Mapping[str, int]]  # member → topic → how many of its threads read it


class Thread(NamedTuple):
    """One of the stream threads of a member of a ZooKeeper group."""

    member: str
    number: int  # from 0

    def __str__(self) -> str:
        return f"{self.member}-{self.number}"


ThreadAssignment = dict[Thread, tuple[Partition, ...]]


def modulo(partitions: Iterable[Partition], tasks: int, index: int) -> tuple[Partition, ...]:
    """The partitions of task `index` of `tasks`: each `tasks`-th in sorted order, from `index` on.

    Raises ConfigError for an index that is out of range. Tasks beyond the number of partitions
    get none; `idle` counts them.
    """
    if not 0 <= index < tasks:
        raise ConfigError(
            f"task {index} of {tasks} cannot take partitions: the index must be from 0 to "
            f"{tasks - 1}, the number of tasks less one"
        )
    return tuple(sorted(partitions)[index::tasks])


def idle(partitions: Collection[Partition], tasks: int) -> int:
    """The number of tasks to which `modulo` assigns nothing."""
    return max(0, tasks - len(partitions))


def by_range(
    partitions: Iterable[Partition], subscriptions: Mapping[str, Collection[str]]
) -> Assignment:
    """A run of each topic's partitions to each subscribed member (`subscriptions`: topics by
    member); the first members get one more, in every topic."""
    assigned: dict[str, list[Partition]] = {member: [] for member in _in_order(subscriptions)}
    for topic, those in _by_topic(partitions).items():
        members = [member for member in assigned if topic in subscriptions[member]]
        for member, run in zip(members, _runs(those, len(members)), strict=True):
            assigned[member] += run
    return {member: tuple(taken) for member, taken in assigned.items()}


def by_range_of_threads(partitions: Iterable[Partition], streams: Streams) -> ThreadAssignment:
    """`by_range` among stream threads: a member with two streams counts twice."""
    threads = threads_by_topic(streams)
    assigned: dict[Thread, list[Partition]] = {}
    for thread in _in_order({thread for some in threads.values() for thread in some}):
        assigned[thread] = []
    for topic, those in _by_topic(partitions).items():
        readers = threads.get(topic, [])
        for thread, run in zip(readers, _runs(those, len(readers)), strict=True):
            assigned[thread] += run
    return {thread: tuple(taken) for thread, taken in assigned.items()}


def round_robin(
    partitions: Iterable[Partition], subscriptions: Mapping[str, Collection[str]]
) -> Assignment:
    """All partitions in order, dealt to the members in turn (`subscriptions`: topics by member);
    members that do not subscribe to the topic are skipped."""
    assigned: dict[str, list[Partition]] = {member: [] for member in _in_order(subscriptions)}
    wanted = {topic for topics in subscriptions.values() for topic in topics}
    circle = cycle(assigned)
    for partition in sorted(partitions):
        if partition.topic in wanted:
            takes = next(one for one in circle if partition.topic in subscriptions[one])
            assigned[takes].append(partition)
    return {member: tuple(taken) for member, taken in assigned.items()}


def round_robin_of_threads(partitions: Iterable[Partition], streams: Streams) -> ThreadAssignment:
    """All partitions by the hash of their names, dealt to the threads in turn.

    Raises KafkaError unless all members subscribe to the same topics, each with the same number
    of streams for every topic.
    """
    threads = threads_by_topic(streams)
    if len({tuple(some) for some in threads.values()}) > 1:
        raise KafkaError(
            "partitions can be dealt round robin only if all members of the group subscribe to "
            "the same topics, and each with the same number of streams for every topic. The "
            "streams are now "
            + "; ".join(
                f"{topic}: {', '.join(map(str, some))}" for topic, some in sorted(threads.items())
            )
            + ". Use the range assignment, or make the subscriptions equal."
        )
    readers = next(iter(threads.values()), [])
    assigned: dict[Thread, list[Partition]] = {thread: [] for thread in readers}
    dealt = sorted((one for one in partitions if one.topic in threads), key=_by_hash)
    for partition, thread in zip(dealt, cycle(readers), strict=False):
        assigned[thread].append(partition)
    return {thread: tuple(taken) for thread, taken in assigned.items()}


def threads_by_topic(streams: Streams) -> dict[str, list[Thread]]:
    """The threads that read each topic, in Java's order."""
    found: dict[str, list[Thread]] = {}
    for member, topics in streams.items():
        for topic, count in topics.items():
            found.setdefault(topic, []).extend(Thread(member, number) for number in range(count))
    return {topic: _in_order(some) for topic, some in found.items()}


def java_hash(text: str) -> int:
    """Java's `String.hashCode`: 32 bits with a sign, over UTF-16 units."""
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for high, low in zip(units[::2], units[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) & 0xFFFF_FFFF
    return value - (1 << 32) if value >> 31 else value


def _by_hash(partition: Partition) -> tuple[int, Partition]:
    topic, number = partition
    return java_hash(f"[{topic},{number}]"), partition


def _in_order(things: Iterable[_T]) -> list[_T]:
    """Sort by name as Java does, by UTF-16 units: `c-10` comes before `c-2`."""
    return sorted(things, key=lambda thing: str(thing).encode("utf-16-be", "surrogatepass"))


def _by_topic(partitions: Iterable[Partition]) -> dict[str, list[Partition]]:
    found: dict[str, list[Partition]] = {}
    for partition in sorted(partitions):
        found.setdefault(partition.topic, []).append(partition)
    return found


def _runs(those: Sequence[Partition], readers: int) -> list[Sequence[Partition]]:
    """Cut into `readers` consecutive runs; the first ones are longer by one."""
    if not readers:
        return []
    each, more = divmod(len(those), readers)
    starts = [each * i + min(i, more) for i in range(readers + 1)]
    return [those[start:end] for start, end in pairwise(starts)]
