"""The confluent_kafka consumer with fixed settings and our errors, and the loop that reads it."""

from __future__ import annotations

import ctypes
import os
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import CancelledError, Future, wait
from contextlib import closing
from typing import TYPE_CHECKING, Any
from weakref import WeakMethod, finalize

from sunshower.clock import Clock
from sunshower.errors import ConfigError, KafkaError, KafkaUnreachable, UnknownTopic
from sunshower.kafka.partitions.broker_metadata import (
    SETTINGS,
    UNKNOWN,
    KafkaDirectory,
    as_ours,
    client_errors,
    new_client,
)
from sunshower.kafka.partitions.ports import Directory, Partition, RetainedOffsets

if TYPE_CHECKING:
    from confluent_kafka import Consumer as Client
    from confluent_kafka import Message, TopicPartition
    from confluent_kafka.admin import AdminClient

ANSWER_S = 6.0
_CLOSE_S = 5.0
END_ANSWER_S = 2.0  # a leader that does not answer for so long is away
_OURS = {  # settings that the spout controls, and the option to use instead
    "enable.auto.commit": "say when with guarantee= and commit_s=",
    "enable.auto.offset.store": "say when with guarantee= and commit_s=",
    "auto.offset.reset": "say where to begin with first=",
    "enable.partition.eof": "the ends of partitions are seen in any case",
}
_OF_CLASSIC = {  # settings that the new group protocol forbids, and what replaces them
    "session.timeout.ms": "the brokers set it: group.consumer.session.timeout.ms, or "
    "consumer.session.timeout.ms of the group (kafka-configs.sh --entity-type groups)",
    "heartbeat.interval.ms": "the brokers set it: group.consumer.heartbeat.interval.ms, or "
    "consumer.heartbeat.interval.ms of the group (kafka-configs.sh --entity-type groups)",
    "partition.assignment.strategy": 'the brokers assign: choose their rule with "group.remote'
    '.assignor": "uniform" or "range"',
    "group.protocol.type": "leave it out",
}
_FIXED = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "auto.offset.reset": "error",  # the client must never skip offsets silently
    "enable.partition.eof": True,
}


# ---- connection ----------------------------------------------------------------------------------

_REASONS = {"_TRANSPORT", "_RESOLVE", "_TIMED_OUT"}


def weakly(method: Callable[..., None]) -> Callable[..., None]:
    """A callback that calls a method as long as its object lives.

    A client keeps its callbacks. An object that has a client, and is its callback, would stay, with
    the client's threads and sockets, until a garbage collection, which workers run seldom.
    """
    reference = WeakMethod(method)

    def call(*arguments: Any) -> None:
        if (alive := reference()) is not None:
            alive(*arguments)

    return call


class Connection:
    """The connections of one client. `on_error` is its `error_cb`, or called by it.

    A client without any connection raises nothing: a consumer returns no messages, a producer
    fills its queue. `check` raises instead, so that the task pauses and reports the outage.
    """

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._settings = settings
        self._address = str(settings.get("bootstrap.servers"))
        self.is_cut = False  # all brokers were down at the last report
        self._reason: Any = None  # the reported error of the last failed connection
        self._thread: threading.Thread | None = None  # sends requests until a broker answers
        self._is_closed = False

    def on_error(self, error: Any) -> None:
        """Record an error that the client reports about its connections."""
        if error.name() == "_ALL_BROKERS_DOWN":
            self.is_cut = True
            self._reason = self._reason or error
        elif error.name() in _REASONS:
            self._reason = error

    def check(self) -> None:
        """Raise KafkaUnreachable if all brokers are down. It does not block: the first call starts
        a thread that sends requests until there is an answer."""
        if not self.is_cut:
            return
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._ask, name="kafka-outage", daemon=True)
            self._thread.start()
        raise as_ours(self._reason, "anything", self._address)

    def close(self) -> None:
        """Let the thread end, if it runs."""
        self._is_closed = True

    def _ask(self) -> None:
        """Send requests with a separate client: the task may close its own meanwhile."""
        with closing(KafkaDirectory(self._settings)) as directory:
            while not self._is_closed:
                try:
                    directory.topics()
                except KafkaUnreachable:
                    continue  # the request took at least two seconds
                except KafkaError:
                    break  # a broker answered
                break
        self.is_cut, self._reason = False, None


# ---- arrivals ------------------------------------------------------------------------------------
# Notes when messages arrive at a client that had none, without polling it.
#
# librdkafka writes to a file descriptor then (rd_kafka_queue_io_event_enable), and confluent_kafka
# has no call for that. Its objects begin with the pointer to what librdkafka calls the client:
# `Handle` in confluent_kafka.h, in all releases that pyproject.toml allows. With another one, or a
# librdkafka without these functions, the client is polled.

_PAUSE_S = 0.002  # between two calls: a client that is read all the time needs none
_KNOWN = "2."  # the releases of confluent_kafka whose objects are known


def call_on_arrival(client: Client, wake: Callable[[], None]) -> Callable[[], None] | None:
    """Call `wake` on a thread whenever something arrives at a client that had nothing. Returns what
    ends that; call it before the client is closed. None: it is not possible."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    if not _note_at(client, writing):
        os.close(reading)
        os.close(writing)
        return None
    threading.Thread(
        target=_pass_on, args=(reading, wake), name="kafka-arrivals", daemon=True
    ).start()

    def end() -> None:
        _note_at(client, -1)
        os.close(writing)  # ends the thread

    return end


def _note_at(client: Client, file: int) -> bool:
    """Let librdkafka write to this file; -1: to none. Returns whether it does."""
    import confluent_kafka
    from confluent_kafka import cimpl

    version: Any = confluent_kafka.version()  # a text, or a tuple that begins with it
    release = version if isinstance(version, str) else version[0]
    # No object of another type has librdkafka's handle.
    if not (isinstance(client, cimpl.Consumer) and release.startswith(_KNOWN)):
        return False
    pointer = ctypes.c_void_p
    try:
        library = ctypes.CDLL(cimpl.__file__)
        queue_of, note = library.rd_kafka_queue_get_consumer, library.rd_kafka_queue_io_event_enable
        destroy = library.rd_kafka_queue_destroy
    except (AttributeError, OSError):
        return False
    queue_of.restype = pointer
    handle = pointer.from_address(id(client) + object.__basicsize__)
    queue = pointer(queue_of(handle) if handle.value else None)  # none: it is closed
    if queue.value:
        note(queue, file, b"\0", ctypes.c_size_t(1))
        destroy(queue)
    return bool(queue.value)


def _pass_on(reading: int, wake: Callable[[], None]) -> None:
    while os.read(reading, 4096):
        wake()
        time.sleep(_PAUSE_S)
    os.close(reading)


# ---- consumer ------------------------------------------------------------------------------------


class Consumer:
    """Raises ConfigError for invalid settings, and KafkaError if confluent_kafka is missing.

    `settings` are librdkafka's and must contain bootstrap.servers and group.id.
    """

    def __init__(self, settings: Mapping[str, Any]) -> None:
        check_settings(settings)
        self.address = str(settings["bootstrap.servers"])
        self.group = str(settings["group.id"])
        # The client has reported an error of a topic or partition; who reads this resets it. Of a
        # topic that was deleted it returns no event; it calls `error_cb`.
        self.has_partition_error = False
        self.last_errors: list[Any] = []  # the last five that the client reported
        self._settings = settings
        self._admin: AdminClient | None = None  # for `ask_ends`
        self.connection = Connection(settings)  # while it `is_cut`, ends of partitions are old
        self.fatal: Any = None  # the error with which the client has ended, see `renew`
        self.grouped = False  # a member of a group
        self.eager = False  # eager rebalancing: the group revokes everything before it assigns
        strategy = str(settings.get("partition.assignment.strategy") or "range,roundrobin")
        self.in_new_protocol = is_new_protocol(settings)
        self.rebalances_eagerly = not self.in_new_protocol and "cooperative" not in strategy
        self.instance = str(settings.get("group.instance.id") or "")
        # Called while the client is polled, with the outcome of an asynchronous commit.
        self.on_commit: Callable[[Any, list[Any]], None] | None = None
        self._wake: Callable[[], None] | None = None
        self._end_arrivals: finalize[[], Consumer] | None = None
        self._new_client()
        self.max_poll_s = float(settings.get("max.poll.interval.ms", 300_000)) / 1000

    def _new_client(self) -> None:
        usual: dict[str, Any] = {
            "log_level": 0,
            "error_cb": weakly(self._on_error),
            "on_commit": weakly(self._on_commit),
        }
        self.client: Client = new_client("Consumer", {**usual, **self._settings, **_FIXED})
        self.consume: Callable[[int, float], list[Message]] = self.client.consume

    def renew(self) -> None:
        """Take a new client instead of one that has ended with a fatal error: it reads nothing."""
        self._close_client()
        self.fatal = None
        self._new_client()
        if self._wake is not None:
            self.call_on_arrival(self._wake)

    def call_on_arrival(self, wake: Callable[[], None]) -> None:
        """Call this on a thread when something has arrived, until the consumer is closed; never
        with a client that does not say so."""
        self._wake = wake
        if (end := call_on_arrival(self.client, wake)) is not None:
            self._end_arrivals = finalize(self, end)  # also if it is dropped; it runs once
            self._end_arrivals.atexit = False

    def assign(self, offsets: Mapping[Partition, int]) -> None:
        """Add these partitions at these offsets to the assignment."""
        assign = self.client.assign if self.eager else self.client.incremental_assign
        self._call("assigning", assign, targets(offsets))

    def unassign(self, partitions: Collection[Partition]) -> None:
        """Remove these partitions; with eager rebalancing, the whole assignment."""
        if self.eager:
            self._call("giving back", self.client.unassign)
        else:
            self._call("giving back", self.client.incremental_unassign, _bare(partitions))

    def pause(self, partitions: Collection[Partition]) -> None:
        """Fetch nothing from these until `resume`."""
        self._call("pausing", self.client.pause, _bare(partitions))

    def resume(self, partitions: Collection[Partition]) -> None:
        """Fetch from these again."""
        self._call("resuming", self.client.resume, _bare(partitions))

    def retained(self, partition: Partition) -> RetainedOffsets:
        """The offsets that the partition has now. Raises KafkaError."""
        (target,) = _bare([partition])
        what = f"the offsets of {partition}"
        try:
            bounds = self._call(what, self.client.get_watermark_offsets, target, ANSWER_S)
        except UnknownTopic:  # the client's metadata do not contain a new partition yet
            self._call(what, self.client.list_topics, partition.topic, ANSWER_S)
            bounds = self._call(what, self.client.get_watermark_offsets, target, ANSWER_S)
        if bounds is None:
            from confluent_kafka import KafkaError as ClientError

            raise as_ours(self.reason(ClientError(ClientError._TIMED_OUT)), what, self.address)
        return RetainedOffsets(*bounds)

    def end(self, partition: Partition) -> int | None:
        """The end offset in the last fetch response, without a request; None if unknown."""
        from confluent_kafka import KafkaException

        (target,) = _bare([partition])
        try:
            _, high = self.client.get_watermark_offsets(target, cached=True)
        except (KafkaException, RuntimeError):  # not assigned, or the client is closed
            return None
        return high if high >= 0 else None

    def ask_ends(self, partitions: Collection[Partition]) -> dict[Partition, Future[Any]]:
        """Ask the leaders for the ends of these, without waiting: partition → a future with the
        `offset` of its end (the high watermark, also of open transactions), or an error."""
        from confluent_kafka import IsolationLevel, admin

        latest: Any = vars(admin)["OffsetSpec"].latest()  # the package's types lack it
        if self._admin is None:
            quiet = {"log_level": 0, "error_cb": lambda _: None}
            self._admin = new_client("AdminClient", {**self._settings, **quiet})
        wanted = dict.fromkeys(_bare(partitions), latest)
        answers = self._admin.list_offsets(
            wanted,
            isolation_level=IsolationLevel.READ_UNCOMMITTED,
            request_timeout=END_ANSWER_S,
        )
        return {ours([target])[0]: answer for target, answer in answers.items()}

    def since(self, partition: Partition, timestamp_ms: int) -> int | None:
        """The first offset with this timestamp or a later one, or None. Raises KafkaError."""
        wanted = targets({partition: timestamp_ms})
        what = f"times in {partition}"
        (target,) = self._call(what, self.client.offsets_for_times, wanted, ANSWER_S)
        if target.error is not None:
            raise as_ours(target.error, what, self.address)
        return target.offset if target.offset >= 0 else None

    def reason(self, error: Any) -> Any:
        """An authorisation error, if the client has reported one; else `error`.

        The client reports errors when polled. A poll may take messages, hence only if unassigned.
        """
        if not self.grouped and not self.client.assignment():
            while (message := self.client.poll(0)) is not None:
                if (error_event := message.error()) is not None:
                    self._on_error(error_event)
        rights = (error for error in self.last_errors if "AUTHORIZATION" in error.name())
        return next(rights, error)

    def close(self) -> None:
        """Close the client, which leaves the group if it is a member. Wait for that for 5 s: during
        an outage a client with an unanswered commit does not end. A thread goes on."""
        self.connection.close()
        self._admin = None
        self._close_client()

    def _close_client(self) -> None:
        if self._end_arrivals is not None:
            self._end_arrivals()
        closing = threading.Thread(target=self.client.close, name="kafka-close", daemon=True)
        closing.start()
        closing.join(_CLOSE_S)

    def _call(self, what: str, call: Callable[..., Any], *arguments: Any) -> Any:
        with client_errors(what, self.address):
            return call(*arguments)

    def _on_commit(self, error: Any, partitions: list[Any]) -> None:
        if self.on_commit is not None:
            self.on_commit(error, partitions)

    def _on_error(self, error: Any) -> None:
        self.connection.on_error(error)
        self.has_partition_error |= error.name() in UNKNOWN
        self.last_errors.append(error)
        del self.last_errors[:-5]


def check_settings(
    settings: Mapping[str, Any], *, servers: bool = True, grouped: bool = True
) -> None:
    """Raises ConfigError for settings that are wrong whatever the broker says. Without `servers`
    a directory has the addresses of the brokers (`with_servers`). `grouped`: the brokers' group
    assigns the partitions."""
    SETTINGS.check("settings", settings)
    for name in ("bootstrap.servers", "group.id") if servers else ("group.id",):
        if not settings.get(name):
            raise ConfigError(
                f"the settings of Kafka's client lack {name!r}; give "
                '{"bootstrap.servers": "host:9092", "group.id": "who reads"}. Brokers that '
                "register in ZooKeeper are found with the option "
                'directory=ZooKeeperBrokers("zk:2181") instead'
            )
    for name, instead in _OURS.items():
        if name in settings:
            raise ConfigError(f"{name} is not to be set here: {instead}")
    if not is_new_protocol(settings):
        return
    if not grouped:
        raise ConfigError(
            "group.protocol is 'consumer', in which the brokers assign the partitions: give the "
            "KafkaSpout options=KafkaOptions(sharing=by_broker_group); or leave group.protocol "
            "out. No other `sharing`, such as ByZooKeeperGroup or your own, and no batches can "
            "have it"
        )
    for name, instead in _OF_CLASSIC.items():
        if name in settings:
            raise ConfigError(f"{name} is not to be set with group.protocol=consumer: {instead}")


def is_new_protocol(settings: Mapping[str, Any]) -> bool:
    """Whether the consumer joins groups by Kafka's new protocol, of KIP-848."""
    return str(settings.get("group.protocol", "classic")).lower() == "consumer"


def servers_of(settings: Mapping[str, Any]) -> set[str]:
    """The servers named in `bootstrap.servers`."""
    servers = str(settings.get("bootstrap.servers") or "")
    return {server.strip() for server in servers.split(",")}


def with_servers(
    settings: Mapping[str, Any], directory: Callable[[], Directory]
) -> Mapping[str, Any]:
    """The settings with bootstrap.servers; if they lack it, from the directory. Raises what
    `Directory.bootstrap` raises."""
    if settings.get("bootstrap.servers"):
        return settings
    return {**settings, "bootstrap.servers": directory().bootstrap()}


def targets(offsets: Mapping[Partition, int]) -> list[TopicPartition]:
    """Convert to the client's TopicPartition."""
    from confluent_kafka import TopicPartition

    return [TopicPartition(*partition, offset) for partition, offset in offsets.items()]


def ours(partitions: Iterable[TopicPartition]) -> list[Partition]:
    """Convert from the client's TopicPartition."""
    return [Partition(target.topic, target.partition) for target in partitions]


def partition_of_message(message: Message) -> Partition:
    """The partition that a message, or an event, belongs to."""
    return Partition(message.topic() or "", message.partition() or 0)


def _bare(partitions: Iterable[Partition]) -> list[TopicPartition]:
    from confluent_kafka import TopicPartition

    return [TopicPartition(*partition) for partition in partitions]


# ---- end checks ----------------------------------------------------------------------------------
# Checks which partitions a task has read to their end, for windows: see watermarks.py.
#
# The client reports the end of a partition once, when it reaches it, and nothing while a broker is
# away. So the leaders are asked for the ends of those partitions that have no records, once a
# second. A partition is at its end if its leader has answered in time that no offset follows the
# task's.

_EVERY_S = 1.0


class EndChecks:
    """Asks for the ends of partitions without records, and keeps the answers."""

    def __init__(self, consumer: Consumer, clock: Clock) -> None:
        self._consumer, self._clock = consumer, clock
        self._at_end: dict[Partition, float] = {}
        self._open: dict[Partition, tuple[Future[Any], float]] = {}  # when they were asked for
        self._positions: Mapping[Partition, int] = {}  # when the ends were last asked for
        self._ask_s = 0.0

    def at_end(
        self, positions: Mapping[Partition, int], wait_s: float = 0.0
    ) -> Mapping[Partition, float]:
        """The partitions that are read to their end, and when the last request that found this was
        sent. `positions`: the next offset to read of each partition. `wait_s`: how long to wait for
        the answers to a new request, about partitions that were at their end before."""
        self._note_answers(positions)
        now = self._clock.now()
        if now >= self._ask_s:
            self._ask(positions, now)
            was_at_end = [
                answer for part, (answer, _) in self._open.items() if part in self._at_end
            ]
            if wait_s and was_at_end:
                wait(was_at_end, wait_s)
                self._note_answers(positions)
        return self._at_end

    def _note_answers(self, positions: Mapping[Partition, int]) -> None:
        for partition, (answer, asked_s) in [*self._open.items()]:
            if not answer.done():
                continue
            del self._open[partition]
            try:
                is_at_end = 0 <= answer.result().offset <= positions.get(partition, -1)
            except (Exception, CancelledError):  # the leader is away, or there is none
                is_at_end = False
            if is_at_end:
                self._at_end[partition] = asked_s
            else:
                self._at_end.pop(partition, None)

    def _ask(self, positions: Mapping[Partition, int], now: float) -> None:
        self._ask_s = now + _EVERY_S
        quiet = [
            partition
            for partition, at in positions.items()
            if self._positions.get(partition) == at and partition not in self._open
        ]
        self._positions = positions
        self._at_end = {
            partition: at for partition, at in self._at_end.items() if partition in positions
        }
        answers = self._consumer.ask_ends(quiet) if quiet else {}
        self._open |= {partition: (answer, now) for partition, answer in answers.items()}


# ---- the loop of records and of batches ----------------------------------------------------------

# positions ──read──▶ client ──fetch──▶ ahead: messages, in order
#                                   └─────▶ ends, lost, refusals: events of partitions
#
# `partition_reader` reads records with it, and failed ones again; `exactly_once/batch_spouts` reads
# batches. They differ in who stores the positions, and in when a position may advance.

_OUT_OF_RANGE = {"_AUTO_OFFSET_RESET", "OFFSET_OUT_OF_RANGE", "_LOG_TRUNCATION"}
_TEMPORARY = {
    *("_MAX_POLL_EXCEEDED", "_TRANSPORT", "_ALL_BROKERS_DOWN", "_TIMED_OUT", "_RESOLVE"),
    *("LEADER_NOT_AVAILABLE", "NOT_LEADER_FOR_PARTITION", "COORDINATOR_NOT_AVAILABLE"),
    *("REQUEST_TIMED_OUT", "COORDINATOR_LOAD_IN_PROGRESS", "NOT_COORDINATOR"),
}


class ConsumerLoop:
    """A consumer, the partitions that it reads, and what it has fetched of them.

    Apply an event of a partition after all of its messages that are `ahead`.
    """

    def __init__(self, consumer: Consumer) -> None:
        self.consumer = consumer
        self.at: dict[Partition, int] = {}  # the position of each partition that is read
        self.ahead: list[Message] = []  # fetched, not taken
        self.ends: dict[Partition, int] = {}  # the end of a partition whose messages were fetched
        self.lost: set[Partition] = set()  # partitions whose next offset is out of range
        self._refusals: list[Message] = []  # permanent errors

    # ---- positions ------------------------------------------------------------------------------

    def read(self, positions: Mapping[Partition, int]) -> None:
        """Read these partitions, too, from these offsets."""
        self.consumer.assign(positions)
        self.at |= positions

    def seek(self, wanted: Mapping[Partition, int], leap: int = 0) -> None:
        """Read exactly these partitions from these offsets. Positions that match are kept, and
        those that are at most `leap` before."""
        self.leave(self.at.keys() - wanted.keys())
        moved = {
            partition: to
            for partition, to in wanted.items()
            if not 0 <= to - self.at.get(partition, to + 1) <= leap
        }
        self.leave(moved.keys() & self.at.keys())
        if moved:
            self.read(moved)

    def leave(self, partitions: Iterable[Partition]) -> None:
        leaving = [partition for partition in partitions if partition in self.at]
        if leaving:
            self.consumer.unassign(leaving)  # if it raises, they are still read
            for partition in leaving:
                del self.at[partition]
            self.discard(leaving)

    def discard(self, partitions: Collection[Partition]) -> None:
        """Forget what was fetched of these; who reads them next fetches it again."""
        self.ahead = without(self.ahead, partitions)
        self._refusals = without(self._refusals, partitions)
        self.lost -= {*partitions}
        for partition in partitions:
            self.ends.pop(partition, None)

    # ---- messages -------------------------------------------------------------------------------

    def fetch(self, limit: int, wait_s: float = 0.0) -> bool:
        """Append up to `limit` messages to `ahead`, and note events; wait for the first one. The
        client may assign and revoke partitions meanwhile. Returns whether anything arrived."""
        from confluent_kafka import Message

        # First without waiting: a blocking call waits for all, or for the whole time.
        arrived = self.consumer.consume(limit, 0.0)
        if not arrived and wait_s:
            arrived = self.consumer.consume(1, wait_s)
        if not any(map(Message.error, arrived)):
            self.ahead += arrived
            return bool(arrived)
        self.ahead += [message for message in arrived if message.error() is None]
        for event in arrived:
            if (error := event.error()) is None:
                continue
            partition = partition_of_message(event)
            if error.name() == "_PARTITION_EOF":
                if partition in self.at:
                    self.ends[partition] = event.offset() or 0
            elif error.name() == "_FATAL" and self.consumer.grouped:
                self.consumer.fatal = error  # the group says what to do
            elif error.name() in _OUT_OF_RANGE:
                self.lost |= {partition} & self.at.keys()
            elif error.name() not in _TEMPORARY:
                self._refusals.append(event)
        return True

    def raise_refusal(self) -> None:
        """Raise the oldest permanent error, once: KafkaError."""
        if self._refusals:
            refusal = self._refusals.pop(0)
            topic = refusal.topic()
            what = f"topic {topic!r}" if topic else "the topics"
            raise as_ours(refusal.error(), what, self.consumer.address)


def without(messages: Sequence[Message], partitions: Collection[Partition]) -> list[Message]:
    """The messages of other partitions than these."""
    return [message for message in messages if partition_of_message(message) not in partitions]
