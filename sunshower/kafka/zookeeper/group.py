"""Shares partitions in a consumer group in ZooKeeper, the protocol of Kafka's old consumer.

/consumers/<group>/ids/<member>              ephemeral: a member and its subscription
/consumers/<group>/owners/<topic>/<p>        ephemeral: the thread that reads the partition, as text

    OUT ──joins──▶ LOOKING ──view──▶ RELEASING ──▶ CLAIMING ──all claimed──▶ STEADY
                      ▲                                │ another member owns it │
                      └──── members or partitions changed, or a claim waits ────┘
    session lost, or suspended for too long: this member owns nothing any more ──▶ OUT

Each member decides by itself, from the members and partitions it sees, by a deterministic rule. It
reads a partition only while its own owner node exists, so a partition has one reader, whatever the
members see. A claim is withdrawn in one step with a check of its own member node: a session that
ends meanwhile removes no claim of another member.
"""

from __future__ import annotations

import json
import logging
import operator
import re
import socket
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import cycle, groupby
from random import Random
from typing import Any, NamedTuple

from sunshower.arguments import COUNT
from sunshower.clock import Clock
from sunshower.errors import (
    ConfigError,
    KafkaError,
    KafkaUnreachable,
    NodeExists,
    NotAuthorised,
    StoreForbidden,
    StoreUnreachable,
)
from sunshower.kafka.partitions.ports import (
    SETTLES_S,
    Directory,
    Partition,
    PartitionSharing,
    RebalanceListener,
)
from sunshower.state.tree import SessionState, Tree

_log = logging.getLogger(__name__)


# ---- thread assignment ---------------------------------------------------------------------------
# How a ZooKeeper group assigns partitions to the stream threads of its members.
#
# Each function ignores the order of its arguments, so that all members compute the same
# assignment. Partitions of topics without a subscriber stay unassigned. Strings are in Java's
# order.

Streams = Mapping[str, Mapping[str, int]]  # member → topic → how many of its threads read it


class StreamThread(NamedTuple):
    """One of the stream threads of a member."""

    member: str
    number: int  # from 0

    def __str__(self) -> str:
        return f"{self.member}-{self.number}"


ThreadAssignment = Mapping[StreamThread, Collection[Partition]]


def by_range_of_threads(partitions: Iterable[Partition], streams: Streams) -> ThreadAssignment:
    """A run of each topic's partitions to each thread that reads it; the first threads get one
    more, in every topic."""
    readers = threads_by_topic(streams)
    assigned: dict[StreamThread, list[Partition]] = {
        thread: []
        for thread in _in_order({thread for threads in readers.values() for thread in threads})
    }
    for topic, group in groupby(sorted(partitions), key=lambda partition: partition.topic):
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
    if len({tuple(readers) for readers in threads.values()}) > 1:
        raise KafkaError(
            "partitions can be dealt round robin only if all members of the group subscribe to "
            "the same topics, and each with the same number of streams for every topic. The "
            "streams are now "
            + "; ".join(
                f"{topic}: {', '.join(map(str, readers))}"
                for topic, readers in sorted(threads.items())
            )
            + ". Use the range assignment, or make the subscriptions equal."
        )
    readers = next(iter(threads.values()), [])
    assigned: dict[StreamThread, list[Partition]] = {thread: [] for thread in readers}
    dealt = sorted(
        (partition for partition in partitions if partition.topic in threads), key=_by_hash
    )
    for partition, thread in zip(dealt, cycle(readers), strict=False):
        assigned[thread].append(partition)
    return {thread: tuple(taken) for thread, taken in assigned.items()}


def threads_by_topic(streams: Streams) -> dict[str, list[StreamThread]]:
    """The threads that read each topic, in Java's order."""
    threads: dict[str, list[StreamThread]] = {}
    for member, topics in streams.items():
        for topic, count in topics.items():
            threads.setdefault(topic, []).extend(
                StreamThread(member, number) for number in range(count)
            )
    return {topic: _in_order(members) for topic, members in threads.items()}


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
    return sorted(threads, key=lambda thread: str(thread).encode("utf-16-be", "surrogatepass"))


# Called with the partitions, the streams and, if members have `data`, the data of each member.
Rule = Callable[..., ThreadAssignment]


def _is_assignment(value: Any, partitions: Collection[Partition]) -> bool:
    return isinstance(value, Mapping) and all(
        isinstance(thread, StreamThread) and isinstance(parts, Collection) and {*parts} <= known
        for known in [{*partitions}]
        for thread, parts in value.items()
    )


# ---- members -------------------------------------------------------------------------------------

# The values of `pattern` in Kafka's format: topics by name, all that match, all that do not.
STATIC, WHITE_LIST, BLACK_LIST = "static", "white_list", "black_list"


@dataclass(frozen=True)
class Member:
    """The subscription of a member: topics, and the number of its stream threads for each. `data`
    are for the rule. Kafka's old consumer ignores them."""

    subscription: Mapping[str, int]  # by topic; with a pattern, its text is the only key
    pattern: str = STATIC
    data: Any = None  # of JSON

    @staticmethod
    def reading(
        topics: Collection[str] | re.Pattern[str],
        streams: int | Mapping[str, int],
        data: Any = None,
    ) -> Member:
        """A member that reads topics by name, or all whose whole name matches a pattern; with
        `streams` threads for each, or of each topic its own number.

        Raises ConfigError unless `streams` has exactly the topics, each with a positive number,
        and for data that JSON does not have.
        """
        try:
            data = json.loads(json.dumps(data, allow_nan=False))  # Java reads no NaN
        except (TypeError, ValueError) as error:
            raise ConfigError(
                f"data of this member are {data!r}, no value of JSON: {error}"
            ) from None
        if isinstance(streams, Mapping):
            if isinstance(topics, re.Pattern) or {*topics} != {*streams}:
                raise ConfigError(
                    f"streams by topic are given for {', '.join(sorted(streams)) or 'no topic'}; "
                    "give a number for each of topics=[…], or one number for all"
                )
            for topic, count in streams.items():
                COUNT.check(f"streams of {topic}", count)
            return Member({topic: streams[topic] for topic in sorted(topics)}, data=data)
        COUNT.check("streams", streams)
        if isinstance(topics, re.Pattern):
            return Member({topics.pattern: streams}, WHITE_LIST, data)
        return Member(dict.fromkeys(sorted(topics), streams), data=data)

    def streams(self, topics: Collection[str]) -> dict[str, int]:
        """The number of threads for each subscribed topic among `topics`."""
        if self.pattern == STATIC:
            return {topic: n for topic, n in self.subscription.items() if topic in topics}
        wanted = self.pattern == WHITE_LIST
        return {
            topic: count
            for expression, count in self._expressions.items()
            for topic in topics
            if bool(expression.fullmatch(topic)) == wanted
        }

    def written(self, millis: int) -> bytes:
        return json.dumps(
            {
                "version": 1,
                "subscription": dict(self.subscription),
                "pattern": self.pattern,
                "timestamp": str(millis),
            }
            | ({} if self.data is None else {"userData": self.data})
        ).encode()

    @staticmethod
    def read(value: bytes, path: str) -> Member:
        """Parse a member's node. Raises KafkaError."""
        try:
            content = json.loads(value)
        except ValueError:
            content = None
        match content:
            case {"subscription": dict(streams), **more} if all(
                isinstance(count, int) and count > 0 for count in streams.values()
            ):
                pattern = more.get("pattern", STATIC)
                if pattern in {STATIC, WHITE_LIST, BLACK_LIST}:
                    return Member(streams, pattern, more.get("userData"))
        raise KafkaError(
            f"{path} in ZooKeeper does not describe a member of a consumer group: {value[:80]!r}"
        )

    @cached_property
    def _expressions(self) -> dict[re.Pattern[str], int]:
        """The compiled patterns; Kafka reads a comma as "or"."""
        return {
            compiled(text.replace(",", "|")): count for text, count in self.subscription.items()
        }


def compiled(text: str) -> re.Pattern[str]:
    """Compile a pattern of topics. Raises ConfigError."""
    try:
        return re.compile(text)
    except re.error as error:
        raise ConfigError(f"{text!r} is not a valid pattern of topics: {error}") from error


# ---- group ---------------------------------------------------------------------------------------


_SPREAD_S = 0.1  # the maximal random delay before members are read …
_SPREAD_EACH_S = 0.001  # … plus this for each member
_LOOK_EVERY_S = 30.0  # also without a notification
_CLAIM_AGAIN_S = 0.1  # before a blocked claim is retried; doubled each time …
_CLAIM_AGAIN_MAX_S = 2.0  # … up to this
# A session without contact to the store may expire without a notification. kazoo notices silence
# after two thirds of the session timeout: this is the last third of the default, 10 s.
SUSPENDED_MAX_S = 3.0


class _View(NamedTuple):
    """The input of the assignment rule."""

    members: dict[str, Member]
    partitions: tuple[Partition, ...]  # of the subscribed topics


class ZooKeeperGroup(PartitionSharing):
    """A member of a group in ZooKeeper, with a number of stream threads; `topics` are names or a
    pattern.

    `tree` and `chance` must belong to this member alone: the tree's session is the membership, and
    `chance` makes its name unique. `leave` closes the tree, for good. Every look asks `directory`:
    use one with a cache (`RefreshedDirectory`). `wall` returns seconds since 1970; `where`
    identifies the ZooKeeper and its user, for stores that check the member node when they write.
    """

    def __init__(
        self,
        tree: Tree,
        group: str,
        topics: Collection[str] | re.Pattern[str],
        directory: Directory,
        clock: Clock,
        chance: Random,
        *,
        streams: int | Mapping[str, int] = 1,
        rule: Rule = by_range_of_threads,
        data: Any = None,
        suspended_max_s: float = SUSPENDED_MAX_S,
        host: str | None = None,
        wall: Callable[[], float] = time.time,
        where: object = None,
    ) -> None:
        self._where = where
        self._tree = tree
        self._home = f"/consumers/{group}"
        self._directory = directory
        self._clock = clock
        self._chance = chance
        self._membership = Member.reading(topics, streams, data)
        self._rule = rule
        self._suspended_max_s = suspended_max_s
        self._group = group
        self._host = host or socket.gethostname()
        self._wall = wall
        self._events: deque[tuple[SessionState, float]] = deque()  # with the time of the event
        tree.listen(lambda session: self._events.append((session, clock.now())))
        self._name = ""  # in this session; "" outside the group
        self._is_watching = False  # the tree calls `_on_change`
        self._changed = False  # set by the watch's thread
        self._look_s = 0.0  # the time of the next read of the members
        self._suspended_s: float | None = None
        self._members: dict[str, Member] = {}
        self._topics: frozenset[str] | None = None  # at the last look; of these …
        self._wanted: tuple[str, ...] = ()  # … we read these
        self._seen: list[Any] = []  # the input of the last decision: compared by identity
        self._decided: tuple[_View, dict[Partition, StreamThread]] | None = None
        self._decided_s = 0.0  # when this changed last
        self._mine: dict[Partition, StreamThread] = {}  # assigned to this member
        self._held: set[Partition] = set()  # what `owner` reads
        self._nodes: dict[Partition, StreamThread] = {}  # owner nodes that this member may have
        self._leftovers: set[str] = set()  # nodes that may be left of former names
        self._claim_s = 0.0
        self._claim_again_s = _CLAIM_AGAIN_S

    @property
    def is_settled(self) -> bool:
        is_member = self._suspended_s is None and self._name in self._members
        if not is_member or self._decided is None or self.waiting:
            return False
        return self._clock.now() - self._decided_s >= SETTLES_S

    @property
    def waiting(self) -> frozenset[Partition]:
        """Partitions assigned to this member that another member still owns."""
        return frozenset(self._mine.keys() - self._held)

    def member(self, where: object) -> str | None:
        """As of PartitionSharing; outside the group, a path that never exists."""
        return self._member if where == self._where else None

    @property
    def _member(self) -> str:
        return f"{self._home}/ids/{self._name or '-'}"

    def owns(self, partition: Partition) -> bool:
        """Whether the owner node is this member's, read now. Raises StoreUnreachable."""
        node = self._tree.get(self._owner(partition))
        thread = self._nodes.get(partition)
        return thread is not None and node is not None and node.value == str(thread).encode()

    def look(self, owner: RebalanceListener) -> None:
        now_s = self._clock.now()
        was_reading = bool(self._held)
        self._apply_session_events(owner, now_s)
        if self._suspended_s is not None:
            self._check_suspension(now_s, was_reading)
            return
        try:
            self._step(owner, now_s)
        except StoreForbidden as error:
            raise NotAuthorised(f"the group at {self._home} cannot be joined: {error}") from error
        except StoreUnreachable as error:
            if not was_reading:
                raise KafkaUnreachable(f"{self._home} cannot be joined: {error}") from error
            self._claim_s = self._look_s = now_s + _CLAIM_AGAIN_MAX_S

    def refresh(self) -> None:
        self._changed = True  # partitions are looked up in each look

    def leave(self, owner: RebalanceListener) -> None:
        try:
            self._apply_session_events(owner, self._clock.now())
            self._revoke(owner, self._held, lost=False)
            self._mine = {}
            if self._name:
                with suppress(StoreUnreachable):  # then the nodes end with the session
                    self._withdraw_leftovers()
                    self._release()
                    self._tree.withdraw(self._member)
        finally:
            self._tree.close()

    def _step(self, owner: RebalanceListener, now_s: float) -> None:
        if not self._is_watching:
            self._tree.watch(f"{self._home}/ids", self._on_change)
            self._is_watching = True
        if not self._name:
            self._join(now_s)
        self._withdraw_leftovers()
        if self._changed:
            self._changed = False
            self._look_s = min(self._look_s, now_s + self._delay_s())
        if now_s >= self._look_s:
            self._read_members(now_s)
            if self._name not in self._members:  # another client has removed the node
                self._end_session(owner)
        if self._name in self._members:  # else the members were not read since joining
            self._decide()
            gone = {
                partition
                for partition in self._held
                if self._mine.get(partition) != self._nodes[partition]
            }
            self._revoke(owner, gone, lost=False)
            self._release()
            if now_s >= self._claim_s:
                self._claim(owner, now_s)

    # ---- the session ----------------------------------------------------------------------------

    def _apply_session_events(self, owner: RebalanceListener, now_s: float) -> None:
        while self._events:
            session, since_s = self._events.popleft()
            if session is SessionState.CONNECTED:
                self._suspended_s = None
                self._changed = True
            else:
                self._suspended_s = since_s
            if session is SessionState.LOST:
                self._end_session(owner)
        if self._is_cut(now_s):
            self._revoke(owner, self._held, lost=True)  # our nodes may still exist

    def _is_cut(self, now_s: float) -> bool:
        """Whether the store has been silent for too long to rely on our nodes."""
        since_s = self._suspended_s
        return since_s is not None and now_s - since_s >= self._suspended_max_s

    def _check_suspension(self, now_s: float, was_reading: bool) -> None:
        """Raise KafkaUnreachable while nothing may be read; but not in the call that revokes the
        partitions, so that the owner can report that first."""
        if self._is_cut(now_s) and not was_reading:
            raise KafkaUnreachable(
                f"the store of the group at {self._home} has not answered for "
                f"{now_s - (self._suspended_s or 0.0):.0f} s: nothing is read until it answers"
            )

    def _end_session(self, owner: RebalanceListener) -> None:
        """The session has ended. Later operations under the old name ran in a new session."""
        self._revoke(owner, self._held, lost=True)
        if self._name:
            self._leftovers.add(self._member)
        self._leftovers |= {self._owner(partition) for partition in self._nodes}
        self._nodes = {}
        self._name = ""
        self._mine = {}

    # ---- the members ----------------------------------------------------------------------------

    def _join(self, now_s: float) -> None:
        """Create a member node with a name that no other session has used."""
        millis = int(self._wall() * 1000)
        name = f"{self._group}_{self._host}-{millis}-{self._chance.getrandbits(32):08x}"
        path = f"{self._home}/ids/{name}"
        self._leftovers.add(path)  # until the creation is confirmed
        self._tree.create(path, self._membership.written(millis), ephemeral=True)
        self._leftovers.remove(path)
        self._name = name
        self._decided = None
        self._changed = False
        self._look_s = now_s + self._delay_s()

    def _on_change(self) -> None:
        self._changed = True

    def _delay_s(self) -> float:
        return self._chance.uniform(0, _SPREAD_S + _SPREAD_EACH_S * len(self._members))

    def _read_members(self, now_s: float) -> None:
        path = f"{self._home}/ids"
        members: dict[str, Member] = {}
        for name in self._tree.children(path):
            if name in self._members:
                members[name] = self._members[name]  # a member's node never changes
            elif node := self._tree.get(f"{path}/{name}"):
                members[name] = Member.read(node.value, f"{path}/{name}")
        self._members = members
        self._look_s = now_s + _LOOK_EVERY_S + self._delay_s()

    # ---- assignment -----------------------------------------------------------------------------

    def _decide(self) -> None:
        """Compute the assignment; nothing to do if all inputs are the same objects as before."""
        topics = self._directory.topics()
        if topics is not self._topics:
            self._topics, member = topics, self._membership
            is_named = member.pattern == STATIC  # then also topics that do not exist are wanted
            self._wanted = (*(member.subscription if is_named else member.streams(topics)),)
        by_topic = [self._directory.partitions(topic) for topic in self._wanted]
        seen = [self._members, topics, *by_topic]
        known = len(seen) == len(self._seen) and all(map(operator.is_, seen, self._seen))
        if self._decided is None or not known:
            partitions = sorted(partition for group in by_topic for partition in group)
            view = _View(self._members, tuple(partitions))
            if self._decided is None or self._decided[0] != view:
                self._decided = view, self._assigned(view, topics | {*self._wanted})
                self._decided_s = self._clock.now()
                self._claim_s, self._claim_again_s = 0.0, _CLAIM_AGAIN_S
            self._seen = seen
        self._mine = self._decided[1]

    def _assigned(self, view: _View, topics: Collection[str]) -> dict[Partition, StreamThread]:
        streams = {name: member.streams(topics) for name, member in view.members.items()}
        data = {name: member.data for name, member in view.members.items()}
        of_members = (data,) if self._membership.data is not None else ()
        assigned = self._rule(view.partitions, streams, *of_members)
        if not _is_assignment(assigned, view.partitions):
            raise ConfigError(
                f"the rule of {self._home} returned {assigned!r:.200}; let it return a dict: for "
                "each StreamThread a list of partitions, of those that it was given"
            )
        mine = {thread: parts for thread, parts in assigned.items() if thread.member == self._name}
        for thread in (thread for thread, parts in mine.items() if not parts):
            _log.warning("%s gets none of the partitions of %s: it is idle", thread, self._home)
        return {partition: thread for thread, parts in mine.items() for partition in parts}

    def _release(self) -> None:
        """Withdraw owner nodes of partitions assigned to others, or to another thread of ours."""
        for partition, thread in [*self._nodes.items()]:
            if self._mine.get(partition) != thread:
                self._tree.withdraw(self._owner(partition), self._member)
                if self._tree.get(self._member) is None:  # then the node may still exist
                    self._leftovers.add(self._owner(partition))
                del self._nodes[partition]

    def _claim(self, owner: RebalanceListener, now_s: float) -> None:
        gained: set[Partition] = set()
        blocked = False
        for partition, thread in sorted(self._mine.items()):
            if partition not in self._held:
                taken = self._take(partition, thread)
                gained |= {partition} if taken else set()
                blocked |= not taken
        if any(session is SessionState.LOST for session, _ in [*self._events]):
            return  # the session may have ended in between: the next look handles new nodes
        if gained:
            owner.assigned(gained)  # if it raises, the next look tries again
            self._held |= gained
        if blocked:  # the owner may see another state: read the members again, too
            self._claim_s = now_s + self._claim_again_s * self._chance.uniform(0.5, 1)
            self._look_s = min(self._look_s, self._claim_s)
            self._claim_again_s = min(self._claim_again_s * 2, _CLAIM_AGAIN_MAX_S)

    def _take(self, partition: Partition, thread: StreamThread) -> bool:
        path, value = self._owner(partition), str(thread).encode()
        self._nodes[partition] = thread  # the node may exist even if no answer arrives
        try:
            self._tree.create(path, value, ephemeral=True)
        except NodeExists:
            node = self._tree.get(path)
            if node is None or node.value != value:
                del self._nodes[partition]
                return False  # a node of an earlier attempt would have our name
        return True

    def _revoke(
        self, owner: RebalanceListener, partitions: Collection[Partition], *, lost: bool
    ) -> None:
        if partitions:
            gone = frozenset(partitions)
            self._held -= gone
            owner.revoked(gone, lost=lost)

    # ---- nodes ----------------------------------------------------------------------------------

    def _owner(self, partition: Partition) -> str:
        return f"{self._home}/owners/{partition.topic}/{partition.number}"

    def _withdraw_leftovers(self) -> None:
        """Withdraw nodes of former names, created in this session before it was reported."""
        for path in sorted(self._leftovers):
            self._tree.withdraw(path, self._member)
            self._leftovers.remove(path)
