"""The options of a KafkaSpout, with Storm's names in comments."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from math import inf
from types import NoneType
from typing import Any, NamedTuple

from sunshower.arguments import COUNT, FLAG, FUNCTION, SECONDS, Instance, Rule, check_all
from sunshower.errors import ConfigError, KafkaError, KafkaUnreachable, user_errors
from sunshower.kafka.consuming.consumer import Consumer, ours
from sunshower.kafka.consuming.decoding import Received
from sunshower.kafka.consuming.start_position import StartPosition, StartTime, Where
from sunshower.kafka.consuming.subscription import TopicSubscription
from sunshower.kafka.partitions.broker_metadata import KafkaDirectory
from sunshower.kafka.partitions.broker_offsets import KafkaOffsets
from sunshower.kafka.partitions.ports import (
    SETTLES_S,
    Committed,
    Directory,
    Offsets,
    Partition,
    PartitionSharing,
    RebalanceListener,
)
from sunshower.topologies.components import Context

_DIRECTORY_S = 5.0  # the time limit of metadata requests
_HEARTBEATS_S = 10.0  # two of the brokers' usual heartbeats in the new protocol
_WARN_S = 30.0  # without a partition in the new protocol
_JOIN_EVERY_S = 3.0  # while the group has another member of the same name


# ---- broker group --------------------------------------------------------------------------------
# librdkafka finds the coordinator, joins, sends heartbeats, and calls back on changes while it is
# polled. In the classic protocol the member that leads the group assigns (range, round robin, or
# cooperative sticky); in the new one, of KIP-848, the coordinator (uniform, range).


class BrokerGroup(PartitionSharing):
    """A member of a group of the brokers; it calls `owner` also while the consumer is polled.

    An exception within the client's poll would lose the polled messages. So an error of `owner`
    is kept, and the next `look` raises it and joins the group again.
    For a pattern, this looks up the matching topics every `refresh_s` and subscribes to their
    names: the client's own patterns have another syntax, and match Kafka's internal topics.
    """

    def __init__(self, reader: ReaderContext) -> None:
        reader.subscription.check_whole_topics()
        self._reader, self._clock = reader, reader.context.clock
        self._look_s = 0.0  # the time of the next lookup of the pattern
        self._topics: list[str] = []  # the client's subscription
        self._consumer = consumer = reader.consumer
        consumer.grouped = True
        consumer.eager = consumer.rebalances_eagerly
        self._owner: RebalanceListener | None = None
        self._error: BaseException | None = None
        self._looked_s = self._clock.now()  # the time of the last look
        self._was_silent = False  # so long that the client has left the group
        self._warn_s = inf  # when to warn that there is no partition yet
        self._join_s = 0.0  # before it no other client is tried, after a fatal error
        self._assigned_s = inf  # when the group assigned partitions last; inf: it divides them now

    @property
    def is_settled(self) -> bool:
        return self._clock.now() - self._assigned_s >= SETTLES_S

    def look(self, owner: RebalanceListener) -> None:
        now = self._clock.now()
        self._was_silent = now - self._looked_s >= self._consumer.max_poll_s
        self._looked_s = now
        if self._error is not None:
            error, self._error = self._error, None
            self._topics, self._look_s = [], 0.0
            self._consumer.client.unsubscribe()
            raise error
        if self._consumer.fatal is not None:
            self._begin_anew()
        if now >= self._warn_s:  # brokers without the protocol give no error
            self._warn_s = inf
            _LOG.warning(
                "group %r has given this member no partition for %g s: it has more members than "
                "partitions, or the brokers are older than Kafka 4.0, without group.protocol="
                "consumer",
                *(self._consumer.group, _WARN_S),
            )
        subscription = self._reader.subscription
        is_named = subscription.pattern is None
        if (self._topics and is_named) or now < self._look_s:
            return
        topics = sorted(subscription.names(self._reader.directory))
        self._look_s = self._clock.now() + self._reader.refresh_s
        if topics != self._topics:
            self._owner, self._topics = owner, topics
            self._subscribe(topics)

    def _begin_anew(self) -> None:
        """The client has ended. With the instance id of a member that has died, a new one joins
        when the group has removed that member: raise KafkaUnreachable until then."""
        from confluent_kafka import KafkaError as ClientError

        consumer, now = self._consumer, self._clock.now()
        why = consumer.fatal.str()  # the broker's code is in the text only
        held = f"group {consumer.group!r} has a member with the group.instance.id"
        if ClientError(ClientError.FENCED_INSTANCE_ID).str() in why:
            raise KafkaError(
                f"{held} {consumer.instance!r}, and this one has ended: give each spout, also of "
                f"another program, an id of its own ({why})"
            )
        if ClientError(ClientError.UNRELEASED_INSTANCE_ID).str() not in why:
            hint = ". group.protocol=consumer needs brokers of Kafka 4.0 or newer"
            if ClientError(ClientError.UNSUPPORTED_ASSIGNOR).str() in why:
                hint = '. group.remote.assignor is "uniform" or "range", unless brokers add others'
            raise KafkaError(
                f"group {consumer.group!r} does not take this member: {why}"
                f"{hint * consumer.in_new_protocol}"
            )
        if now >= self._join_s:
            self._join_s = now + _JOIN_EVERY_S
            consumer.renew()
            self._topics, self._look_s = [], 0.0
        raise KafkaUnreachable(
            f"{held} {consumer.instance!r}. If it has died, the group removes it at the end of its "
            "session (45 s, unless group.consumer.session.timeout.ms of the brokers differs), and "
            "this one joins; if it runs, give this spout another id"
        )

    def refresh(self) -> None:
        self._look_s = 0.0

    def _subscribe(self, topics: list[str]) -> None:
        if not topics:
            self._consumer.client.unsubscribe()
            self._assigned_s = self._clock.now()
        else:
            self._consumer.client.subscribe(
                topics,
                on_assign=self._assigned,
                on_revoke=self._revoked,
                on_lost=self._lost,
            )
            self._note_division()
            if self._consumer.in_new_protocol:
                self._warn_s = self._clock.now() + _WARN_S

    def _note_division(self) -> None:
        """Wait for an assignment. The new protocol calls nothing for a member without partitions:
        it counts as one if some heartbeats have brought none."""
        is_new = self._consumer.in_new_protocol
        self._assigned_s = self._clock.now() + _HEARTBEATS_S if is_new else inf

    def leave(self, owner: RebalanceListener) -> None:
        """Do nothing: closing the consumer leaves the group, which revokes the partitions."""

    def _assigned(self, client: Any, partitions: list[Any]) -> None:
        self._assigned_s, self._warn_s = self._clock.now(), inf
        if self._owner is None:
            return
        try:
            self._owner.assigned(ours(partitions))
        except user_errors() as error:
            self._error = error

    def _revoked(self, client: Any, partitions: list[Any]) -> None:
        # A rebalance that began before the group expelled this member is served after it, and
        # others may read its partitions already. In the classic protocol such a member has no id.
        self._give_back(partitions, lost=self._was_silent or not client.memberid())

    def _lost(self, client: Any, partitions: list[Any]) -> None:
        self._give_back(partitions, lost=True)

    def _give_back(self, partitions: list[Any], *, lost: bool) -> None:
        self._note_division()
        if self._owner is None:
            return
        try:
            self._owner.revoked(ours(partitions), lost=lost)
        except user_errors() as error:
            self._error = error


# ---- task index assignment -----------------------------------------------------------------------

_LOG = logging.getLogger("sunshower.kafka")


class ByIndex(PartitionSharing):
    """Shares by Storm's rule: task i of n takes each n-th partition, from i on.

    Tasks find new topics and partitions every `refresh_s`. They refresh at different times, so two
    tasks may read a partition for up to that time.
    Raises ConfigError for an index that is out of range.
    """

    later_is_new = True
    is_settled = True  # each task finds its partitions by itself

    def __init__(self, reader: ReaderContext) -> None:
        self._reader, self._context = reader, reader.context
        modulo((), self._context.parallelism, self._context.index)
        self._look_s = 0.0
        self._held: frozenset[Partition] = frozenset()
        self._has_warned = False

    def look(self, owner: RebalanceListener) -> None:
        clock, tasks = self._context.clock, self._context.parallelism
        if clock.now() < self._look_s:
            return
        subscription = self._reader.subscription
        partitions = subscription.found(self._reader.directory)
        mine = frozenset(modulo(partitions, tasks, self._context.index))
        if len(partitions) < tasks and not self._has_warned:
            self._has_warned = True
            _LOG.warning(
                "%d tasks share the %d partitions of %s: some have nothing to do",
                *(tasks, len(partitions), subscription.name),
            )
        if gone := self._held - mine:
            self._held -= gone
            owner.revoked(gone, lost=False)
        if new := mine - self._held:
            owner.assigned(new)
        self._held = mine
        self._look_s = clock.now() + self._reader.refresh_s  # after an error: retried at once

    def refresh(self) -> None:
        self._look_s = 0.0

    def leave(self, owner: RebalanceListener) -> None:
        gone, self._held = self._held, frozenset()
        if gone:
            owner.revoked(gone, lost=False)


def modulo(partitions: Iterable[Partition], tasks: int, index: int) -> tuple[Partition, ...]:
    """The partitions of task `index` of `tasks`: each `tasks`-th in sorted order, from `index` on.

    Raises ConfigError for an index that is out of range.
    """
    if not 0 <= index < tasks:
        raise ConfigError(
            f"task {index} of {tasks} cannot take partitions: the index must be from 0 to "
            f"{tasks - 1}, the number of tasks less one"
        )
    return tuple(sorted(partitions)[index::tasks])


# ---- options -------------------------------------------------------------------------------------


class Guarantee(Enum):
    """The processing guarantee. Storm: KafkaSpoutConfig.ProcessingGuarantee."""

    AT_LEAST_ONCE = "at least once"  #: committed after processing: replays are possible
    AT_MOST_ONCE = "at most once"  #: committed before emitting: loss is possible
    NONE = "none"  #: committed periodically, processed or not: both are possible


class ReaderContext(NamedTuple):
    """What a task has when it creates its sharing and its offsets."""

    context: Context
    subscription: TopicSubscription
    directory: Directory
    consumer: Consumer
    refresh_s: float
    deployment: str  # the id of this topology in committed metadata
    sharing: PartitionSharing | None = None  # for the offsets: it is created first


def by_metadata(settings: Mapping[str, Any]) -> Directory:
    """Reads topics and partitions from Kafka's metadata."""
    return KafkaDirectory(settings, answer_within_s=_DIRECTORY_S)


def by_index(reader: ReaderContext) -> PartitionSharing:
    """Assigns partitions to tasks by their index."""
    return ByIndex(reader)


def by_broker_group(reader: ReaderContext) -> PartitionSharing:
    """Joins the brokers' group of that group.id; see partition.assignment.strategy."""
    return BrokerGroup(reader)


def in_kafka(reader: ReaderContext) -> Offsets:
    """Stores the offsets of that group.id in Kafka."""
    return KafkaOffsets(reader.consumer)


class _Nowhere(Offsets):
    """Stores no offsets."""

    def read(self, partitions: Collection[Partition]) -> dict[Partition, Committed]:
        return {}

    def write(self, offsets: Mapping[Partition, Committed]) -> None:
        """Nothing is stored."""


def nowhere(_: ReaderContext) -> Offsets:
    """Stores no offsets: each task begins at the start position."""
    return _Nowhere()


class Interceptor:
    """Sees what a task reads and commits, to trace or count it. Subclass it, and give an instance
    in `KafkaOptions(interceptor=…)`; each task has a copy, and calls it in its own thread.

    It cannot change messages, which is what `translate` is for. An exception is logged, and does
    not stop the task.
    Kafka: org.apache.kafka.clients.consumer.ConsumerInterceptor
    """

    def on_consume(self, messages: Sequence[Received]) -> None:
        """Called with messages that were read, before their records are emitted. Their keys and
        values are bytes, also where these cannot be decoded. A message that fails is replayed
        without another call; one that is read again after a restart has another."""

    def on_commit(self, offsets: Mapping[Partition, Committed]) -> None:
        """Called after these offsets are stored, whatever the `store`: each is the next one to
        read. Also for the last commit of partitions that are given back, and of a task that is
        closed; not if there was no answer by then."""


FIRST = Instance(
    (StartPosition, StartTime),
    "one of StartPosition, such as StartPosition.EARLIEST, or StartTime(timestamp_ms)",
)
_RULES: dict[str, Rule] = {
    "guarantee": Instance(
        (Guarantee,), "Guarantee.AT_LEAST_ONCE, Guarantee.AT_MOST_ONCE or Guarantee.NONE"
    ),
    "first": FIRST,
    "behind_max": replace(COUNT, least=0).or_else("none", None),
    "commit_s": SECONDS,
    "uncommitted_max": COUNT,
    "refresh_s": SECONDS,
    "refetch": FLAG,
    "interceptor": Instance((Interceptor, NoneType), "an instance of an Interceptor"),
    "listener": Instance((RebalanceListener,), "an instance of a RebalanceListener"),
    "directory": FUNCTION,
    "sharing": FUNCTION,
    "store": FUNCTION,
}


@dataclass(frozen=True, kw_only=True)
class KafkaOptions:
    """How a KafkaSpout reads, commits, and shares partitions.

    Raises ConfigError for a value of a wrong type or out of range.
    """

    #: Storm: processingGuarantee
    guarantee: Guarantee = Guarantee.AT_LEAST_ONCE
    #: Where to begin. Storm: firstPollOffsetStrategy
    first: Where = StartPosition.UNCOMMITTED_EARLIEST
    #: Offsets that are farther behind the end are skipped and reported. Storm: maxOffsetBehind
    behind_max: int | None = None
    #: Time between two commits. Storm: stateUpdateIntervalMs, 2 s, later offsetCommitPeriodMs, 30 s
    commit_s: float = 1.0
    #: Offsets of a partition that are read and not committed. Storm: maxUncommittedOffsets
    uncommitted_max: int = 10_000_000
    #: Time between two lookups of partitions and topics. Storm: refreshFreqSecs, 60 s, later
    #: partitionRefreshPeriodMs, 2 s
    refresh_s: float = 30.0
    #: Whether failed records are read from Kafka again, as in Storm, instead of being kept in
    #: memory until their ack. A record that retention or compaction has deleted meanwhile becomes a
    #: dead letter without its value, or is skipped if there are no dead letters. Both are logged
    #: and counted.
    refetch: bool = False
    #: Called with the partitions that a task gets and loses.
    listener: RebalanceListener = RebalanceListener()  # noqa: RUF009 (it has no state)
    #: Called with the messages that a task reads, and with the offsets that it commits.
    interceptor: Interceptor | None = None
    #: Finds topics and partitions; called with the settings.
    directory: Callable[[Mapping[str, Any]], Directory] = by_metadata
    #: Assigns partitions to tasks.
    sharing: Callable[[ReaderContext], PartitionSharing] = by_index
    #: Where committed offsets are.
    store: Callable[[ReaderContext], Offsets] = in_kafka

    def __post_init__(self) -> None:
        check_all(self, _RULES, "KafkaOptions: ")
        if self.refetch and self.guarantee is not Guarantee.AT_LEAST_ONCE:
            raise ConfigError(
                f"refetch=True with Guarantee.{self.guarantee.name}: that guarantee replays no "
                "failed record; drop one of the two"
            )
