"""How a ZooKeeper group assigns partitions to the stream threads of its members.

by_range_of_threads       runs of each topic, by thread; a member with two streams counts twice
round_robin_of_threads    dealt in the order of the hashes of their names

Each function ignores the order of its arguments, so that all members compute the same assignment.
Partitions of topics without a subscriber stay unassigned. Strings are in Java's order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import cycle, groupby
from typing import NamedTuple

from sunshower.errors import KafkaError
from sunshower.kafka.partitions.ports import Partition

Streams = Mapping[str, Mapping[str, int]]  # member → topic → how many of its threads read it


class StreamThread(NamedTuple):
    """One of the stream threads of a member."""

    member: str
    number: int  # from 0

    def __str__(self) -> str:
        return f"{self.member}-{self.number}"


ThreadAssignment = dict[StreamThread, tuple[Partition, ...]]


def by_range_of_threads(partitions: Iterable[Partition], streams: Streams) -> ThreadAssignment:
    """A run of each topic's partitions to each thread that reads it; the first threads get one
    more, in every topic."""
    readers = threads_by_topic(streams)
    assigned: dict[StreamThread, list[Partition]] = {
        thread: [] for thread in _in_order({one for some in readers.values() for one in some})
    }
    for topic, group in groupby(sorted(partitions), key=lambda one: one.topic):
        if threads := readers.get(topic):
            run = [*group]
            each, more = divmod(len(run), len(threads))
            for place, thread in enumerate(threads):
                start = each * place + min(place, more)
                assigned[thread] += run[start : start + each + (place < more)]
    return {thread: tuple(taken) for thread, taken in assigned.items()}


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
    assigned: dict[StreamThread, list[Partition]] = {thread: [] for thread in readers}
    dealt = sorted((one for one in partitions if one.topic in threads), key=_by_hash)
    for partition, thread in zip(dealt, cycle(readers), strict=False):
        assigned[thread].append(partition)
    return {thread: tuple(taken) for thread, taken in assigned.items()}


def threads_by_topic(streams: Streams) -> dict[str, list[StreamThread]]:
    """The threads that read each topic, in Java's order."""
    found: dict[str, list[StreamThread]] = {}
    for member, topics in streams.items():
        for topic, count in topics.items():
            found.setdefault(topic, []).extend(
                StreamThread(member, number) for number in range(count)
            )
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


def _in_order(threads: Iterable[StreamThread]) -> list[StreamThread]:
    """Sort by name as Java does, by UTF-16 units: `c-10` comes before `c-2`."""
    return sorted(threads, key=lambda one: str(one).encode("utf-16-be", "surrogatepass"))
