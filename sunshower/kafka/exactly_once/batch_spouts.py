"""Batch spouts that read Kafka for exactly-once processing.

The batch group's store holds the progress of each partition, not a Kafka consumer group. The spouts
read only committed transactions; partitions that are added later are read from their first offset.
A topic that is deleted and created again is read as one that was never read: its id is compared
with the stored one after each fetch, before any of the messages is emitted. Storm:
org.apache.storm.kafka.spout.trident.KafkaTridentSpoutTransactional, KafkaTridentSpoutOpaque
"""

from __future__ import annotations

import json
import logging
import uuid
import zlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from types import NoneType
from typing import TYPE_CHECKING, Any, NamedTuple, Unpack

import numpy as np

from sunshower.arguments import FLAG, FUNCTION, SECONDS, Instance, Rule, check_all, checked
from sunshower.errors import (
    ConfigError,
    FailedBatch,
    IncompleteBatch,
    KafkaUnreachable,
    StateMismatch,
    UnknownTopic,
)
from sunshower.kafka.consuming.consumer import Consumer, ConsumerLoop, EndChecks, with_servers
from sunshower.kafka.consuming.decoding import (
    KafkaRecord,
    MessageBatch,
    SourceOptions,
    Translator,
    Undecodable,
)
from sunshower.kafka.consuming.start_position import (
    Start,
    StartFinder,
    StartPosition,
    Where,
    check_start,
)
from sunshower.kafka.consuming.subscription import BY_OFFSETS, TopicWatch
from sunshower.kafka.options import FIRST, KafkaOptions, by_metadata
from sunshower.kafka.partitions.broker_offsets import KafkaOffsets
from sunshower.kafka.partitions.ports import (
    Committed,
    Directory,
    Partition,
    PartitionStatus,
    RefreshedDirectory,
    RetainedOffsets,
    figures,
    may_be_same_topic,
)
from sunshower.kafka.spout import KafkaSpout
from sunshower.topologies.components import Context, OnStream
from sunshower.trident.spouts.bounds import Bounds, Room
from sunshower.trident.spouts.port import (
    OpaquePartitionedSpout,
    Partitioned,
    PartitionedSpout,
    SpoutKind,
)

if TYPE_CHECKING:
    from confluent_kafka import Message

_LOG = logging.getLogger("sunshower.kafka")
REST_S = 0.2
_ENDS_S = 0.2  # a batch waits so long for the leaders of partitions without messages
ASKING_S = 5.0  # per batch, for finding start positions
_LOOK_LATER_S = 10.0  # without an answer, topics that have no new messages are asked for later
_LATER = 1  # after an unanswered request, the pause before the next, as a multiple of its duration

_RULES: dict[str, Rule] = {
    "bounds": Instance((Bounds,), "Bounds(records=…, bytes=…, seconds=…)"),
    "first": FIRST,
    "until_end": FLAG,
    "refresh_s": SECONDS,
    "answer_s": SECONDS,
    "directory": FUNCTION,
    "unreadable": Instance((Callable, NoneType), "a function of a KafkaRecord and a reason"),
}


# ---- batch fetcher -------------------------------------------------------------------------------

IsOver = Callable[[Collection[Partition]], bool]

_AT_ONCE = 10_000  # messages in one call of the client
_WAIT_S = 0.05  # the longest wait for one message, so that conditions are checked in between


class BatchLoop(ConsumerLoop):
    """Takes messages for batches; the messages that one batch leaves are for the next."""

    def take(self, room: Room, until: Mapping[Partition, int]) -> dict[Partition, list[Message]]:
        """Messages in order, until `room` is used up or all that are available have arrived.

        For partitions in `until`, only offsets below that value.
        """
        messages: list[Message] = []
        size = room.bytes
        while (
            len(messages) < room.records and size > 0 and room.seconds and not self._finished(until)
        ):
            if not self.ahead:
                is_enough = bool(messages) and self.at.keys() <= self.ends.keys()
                self._fetch(room.records - len(messages), 0.0 if is_enough else room.seconds)
                if not self.ahead and (is_enough or self.lost):
                    break
                continue
            part = self.ahead[: room.records - len(messages)]
            sums = np.cumsum(list(map(len, part)))
            count = max(int(np.searchsorted(sums, size, "right")), 0 if messages else 1)
            if not count:
                break
            messages += part[:count]
            self.ahead = self.ahead[count:]
            size -= int(sums[count - 1])
        return self._taken(messages, until)

    def again(
        self, ranges: Mapping[Partition, range], counts: Mapping[Partition, int], is_over: IsOver
    ) -> dict[Partition, list[Message]]:
        """Read a range of offsets of each partition again: `counts` messages, or all there are.

        Calls `is_over` while nothing arrives, with the partitions whose end is not known. It raises
        if these take too long; if it returns True, the messages that have arrived are returned.
        """
        self.leave([*self.at])
        self.seek({partition: offsets.start for partition, offsets in ranges.items()})
        messages_of: dict[Partition, list[Message]] = {partition: [] for partition in ranges}
        passed = dict.fromkeys(ranges, 0)  # all messages below were fetched, or do not exist
        while self.at:
            if not self._fetch(_AT_ONCE, _WAIT_S) and is_over(
                [other for other in self.at if self.ends.get(other, -1) < passed[other]]
            ):
                self.leave([*self.at])
            for partition, messages in self._by_partition(self.ahead).items():
                offsets = ranges[partition]
                messages_of[partition] += [
                    message for message in messages if (message.offset() or 0) in offsets
                ]
                passed[partition] = (messages[-1].offset() or 0) + 1
            self.ahead = []
            for partition in [*self.lost]:
                # Continue at the first retained offset, or at the end if that comes first.
                first, end = self.consumer.retained(partition)
                passed[partition] = max(first, min(ranges[partition].start, end))
                self.leave([partition])
                self.read({partition: passed[partition]})
            for partition, end in self.ends.items():
                passed[partition] = max(passed[partition], end)
            self.leave(
                [
                    partition
                    for partition in self.at
                    if len(messages_of[partition]) >= counts[partition]
                    or passed[partition] >= ranges[partition].stop
                ]
            )
        return messages_of

    def _fetch(self, limit: int, wait_s: float) -> bool:
        has_arrived = self.fetch(min(limit, _AT_ONCE), min(wait_s, _WAIT_S))
        self.raise_refusal()
        return has_arrived

    def _finished(self, until: Mapping[Partition, int]) -> bool:
        """Whether every partition has reached its bound in `until` and nothing is buffered."""
        return not self.ahead and all(
            partition in until and max(at, self.ends.get(partition, 0)) >= until[partition]
            for partition, at in self.at.items()
        )

    def _taken(
        self, messages: list[Message], until: Mapping[Partition, int]
    ) -> dict[Partition, list[Message]]:
        """Group messages by partition and advance the positions past them."""
        messages_of = self._by_partition(messages)
        waiting = self._by_partition(self.ahead)
        for partition, at in self.at.items():
            new = messages_of.get(partition, [])
            if new and (new[0].offset() or 0) < at:
                new = [message for message in new if (message.offset() or 0) >= at]
            after = max(at, (new[-1].offset() or 0) + 1) if new else at
            if partition not in waiting:
                after = max(after, self.ends.get(partition, 0))
            end = until.get(partition, after)
            self.at[partition] = min(after, end)
            messages_of[partition] = (
                [m for m in new if (m.offset() or 0) < end] if after > end else new
            )
        return {partition: part for partition, part in sorted(messages_of.items()) if part}

    def _by_partition(self, messages: list[Message]) -> dict[Partition, list[Message]]:
        parts_of: dict[Partition, list[list[Message]]] = {}
        batch = MessageBatch.of(messages)
        for run in batch.runs:
            if run.partition in self.at:
                part = [*batch.messages[run.first : run.end]]
                parts_of.setdefault(run.partition, []).append(part)
        return {partition: [*chain.from_iterable(parts)] for partition, parts in parts_of.items()}


# ---- batch extents -------------------------------------------------------------------------------
# The metadata a batch stores per Kafka partition: {"firstOffset": 5, "lastOffset": 9, …}.
#
# "topicId" is that of the topic the offsets belong to; without it (as of Storm, and of releases
# that did not store it) they belong to the topic that there is.
#
# The next batch begins at lastOffset + 1. A batch without records has a lastOffset one below its
# firstOffset; Storm sets both to the last offset of the batch before. Between the two there may be
# offsets without a record: compacted records and transaction markers. Storm:
# org.apache.storm.kafka.spout.trident.KafkaTridentSpoutBatchMetadata


@dataclass(frozen=True)
class Extent:
    """Offsets [first, end) of a partition."""

    first: int
    end: int
    deployment: str | None  # that read it: Storm's topologyId
    count: int | None = None  # records; None: not counted
    checksum: int | None = None  # of offsets, keys and values
    until: int | None = None  # where a bounded job ends in this partition
    run: str | None = None  # the run of that job that determined `until`
    topic_id: str = ""  # "": not known

    @classmethod
    def of(cls, stored: Any, partition: str) -> Extent:
        """Parse stored metadata. Raises StateMismatch if they are not those of a Kafka batch."""
        fields = stored if isinstance(stored, Mapping) else {}
        first, last = fields.get("firstOffset"), fields.get("lastOffset")
        if not isinstance(first, int) or not isinstance(last, int):
            raise StateMismatch(
                f"what is kept of {partition} is {stored!r:.200}, and not what a batch has of a "
                "partition of Kafka: give the spout another id, or remove the nodes to start over"
            )
        rest = {name: fields.get(name) for name in ("count", "checksum", "until", "run")}
        topic_id = fields.get("topicId") or ""
        return cls(first, last + 1, fields.get("topologyId"), **rest, topic_id=topic_id)

    def kept(self) -> dict[str, Any]:
        """The metadata to store: the inverse of `of`."""
        metadata = {
            "firstOffset": self.first,
            "lastOffset": self.end - 1,
            "topologyId": self.deployment,
            "count": self.count,
            "checksum": self.checksum,
            "until": self.until,
            "run": self.run,
            "topicId": self.topic_id or None,
        }
        return {name: value for name, value in metadata.items() if value is not None}

    def at(self, offset: int) -> Extent:
        return Extent(offset, offset, self.deployment, topic_id=self.topic_id)

    @property
    def records_max(self) -> int:
        """An upper bound on the number of records; exact if they were counted."""
        return self.end - self.first if self.count is None else self.count

    @property
    def committed(self) -> Committed:
        """The end of the extent as a consumer offset, with Storm's metadata."""
        fields = {"topologyId": self.deployment, "topicId": self.topic_id}
        return Committed(self.end, json.dumps(fields))


def partition_name(partition: Partition) -> str:
    """Storm's name of a partition: topic@0."""
    return f"{partition.topic}@{partition.number}"


def partition_of(name: str) -> Partition:
    """The inverse of `name_of`."""
    topic, _, number = name.rpartition("@")
    return Partition(topic, int(number))


def checksum(messages: Sequence[Message]) -> int:
    """A CRC-32 of offsets, keys and values with their lengths; null and empty values differ."""
    batch = MessageBatch.of(messages)
    crc = zlib.crc32(batch.offsets().tobytes())
    for column in ("key", "value"):
        parts: Any = batch.column(column)
        sizes = np.array([-1 if part is None else len(part) for part in parts], np.int64)
        crc = zlib.crc32(b"".join(filter(None, parts)), zlib.crc32(sizes.tobytes(), crc))
    return crc


# ---- batch spouts --------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class BatchOptions:
    """The options of batch spouts. Raises ConfigError for a value out of range."""

    bounds: Bounds = field(default_factory=Bounds)  #: of one task's part of a batch
    first: Where = StartPosition.UNCOMMITTED_EARLIEST  #: firstPollOffsetStrategy
    until_end: bool = False  #: read up to the end that a run finds at its start, then finish
    #: How to continue in a partition that ends before the next offset; None fails the batch.
    #: EARLIEST: the topic was recreated; LATEST: its end was lost and written again.
    shortened: StartPosition | None = None
    refresh_s: float = 30.0  #: partitionRefreshPeriodMs: new partitions and topics
    #: The time limit for reading a replayed batch: less than message_timeout_s, otherwise the batch
    #: is charged with a broker outage.
    answer_s: float = 10.0
    directory: Callable[[Mapping[str, Any]], Directory] = by_metadata  #: called with the settings
    #: Returns a record for an undecodable message, or None to skip it; its arguments are the
    #: message as bytes and the reason. Without it such a message fails its batch.
    unreadable: Callable[[KafkaRecord, str], Any] | None = None

    def __post_init__(self) -> None:
        check_all(self, _RULES, "BatchOptions: ")
        if self.shortened not in (None, StartPosition.EARLIEST, StartPosition.LATEST):
            raise ConfigError(
                f"shortened is {self.shortened!r}; it may be StartPosition.EARLIEST, "
                "StartPosition.LATEST, or None"
            )


_OPTIONS = Instance((BatchOptions, NoneType), "BatchOptions(until_end=True, …)")


class KafkaBatches(Partitioned):
    """The base of the Kafka batch spouts; `source` takes the options of KafkaSpout."""

    declared_by = "annotate its function translate (-> Word), or give emits=Word"

    @checked(settings=None, options=_OPTIONS)
    def __init__(
        self,
        settings: Mapping[str, Any],
        *,
        options: BatchOptions | None = None,
        **source: Unpack[SourceOptions],
    ) -> None:
        self.options = BatchOptions() if options is None else options
        shared = ("first", "refresh_s", "directory")
        same = KafkaOptions(**{name: getattr(self.options, name) for name in shared})
        # It validates the arguments and determines the record type.
        spout = KafkaSpout(settings, options=same, **source)
        self.settings, self.subscription = spout.settings, spout.subscription
        self.emits, self.deployment = spout.emits, spout.deployment
        self.bounds = self.options.bounds
        self.declared = uuid.uuid4().hex if self.options.until_end else ""
        self._reads = spout.reads
        self._directory: RefreshedDirectory | None = None
        self._consumer: Consumer | None = None
        self.skipped = self.unreadable = 0
        self._has_found = False  # the subscribed topics existed
        self._run, self._added = "", frozenset[str]()  # of the batch, see begin_batch

    # ---- lifecycle ------------------------------------------------------------------------------

    def open(self, context: Context) -> None:
        self._clock = context.clock
        self._topology = f"{context.topology}-{self.deployment}"
        self.origin = "" if self.options.first.by_anyone else self._topology
        self._begun: dict[tuple[str, str, int | None, str], Extent] = {}
        self._ids: Mapping[str, str] = {}  # of topics, at the last request
        self._watch = TopicWatch(
            lambda topics: self._open_directory().topic_ids(topics), self._clock, BY_OFFSETS
        )
        self._extents_of: Mapping[Partition, Extent] = {}  # the positions of this batch
        self._unanswered_s: dict[str, float] = {}  # the time of the last failed request
        self._quiet_until_s = self._clock.now()
        self._read: dict[Partition, Extent] = {}
        self._committed: dict[Partition, int] = {}
        self._has_committed = False  # a batch, perhaps without partitions for this task

    def _connect(self) -> Consumer:
        if self._consumer is None:
            self._consumer = Consumer(with_servers(self.settings, self._open_directory))
            self._loop = BatchLoop(self._consumer)
            self._finder = StartFinder(self._consumer, self.options.first, self._topology)
            self._ends = EndChecks(self._consumer, self._clock)
            self._translator = Translator(*self._reads)
            self._translator.topic_id = lambda partition: self._extents_of[partition].topic_id
        return self._consumer

    def _open_directory(self) -> RefreshedDirectory:
        if self._directory is None:
            directory, every_s = self.options.directory(self.settings), self.options.refresh_s
            self._directory = RefreshedDirectory(directory, self._clock, every_s=every_s)
        return self._directory

    def close(self) -> None:
        if self._directory is not None:
            self._directory.close()
        if self._consumer is not None:
            self._consumer.close()
        self._directory = self._consumer = None

    def figures(self) -> dict[str, float]:
        standing = {
            partition: PartitionStatus(
                committed=self._committed.get(partition),
                contiguous=self._committed.get(partition, extent.first),
                emitted=extent.end,
                end=self._end(partition),
            )
            for partition, extent in self._read.items()
        }
        odd = {
            "skipped": float(self.skipped),
            "unreadable": float(self.unreadable),
            "recreated": float(self._finder.recreated if self._consumer else 0),
        }
        is_known = bool(self._read) or self._has_committed  # in this life
        if self._consumer is None or self._consumer.connection.is_cut:
            is_known = False
        is_known = is_known and all(status.end is not None for status in standing.values())
        return figures(standing, is_known=is_known) | odd

    def _end(self, partition: Partition) -> int | None:
        return self._consumer.end(partition) if self._consumer else None

    # ---- batches --------------------------------------------------------------------------------

    def partitions(self) -> Sequence[str]:
        """The subscribed partitions. Raises UnknownTopic, NotAuthorised, KafkaUnreachable: also if
        a topic that this coordinator has seen does not exist any more."""
        try:
            partitions = self.subscription.found(self._open_directory())
        except UnknownTopic as error:
            if not self._has_found:
                raise
            raise KafkaUnreachable(
                f"what the batches have read does not exist any more: {error}. They wait until it "
                "is created again"
            ) from error
        self._has_found = True
        return [partition_name(partition) for partition in partitions]

    def begin_batch(self, run: str, added: Collection[str]) -> None:
        self._run, self._added = run, frozenset(added)

    def is_end(self, partition: str, metadata: Any) -> bool:
        extent = Extent.of(metadata, partition)
        ours = extent.until is not None and extent.run == self._bounded
        return ours and extent.end >= (extent.until or 0)

    @property
    def _bounded(self) -> str | None:
        """The run of the current batch; None if `until_end` is not set."""
        return self._run if self.options.until_end else None

    def committed(self, metadata: Mapping[str, Any]) -> None:
        self._has_committed = True
        for name, stored in metadata.items():
            if isinstance(stored, dict):
                self._committed[partition_of(name)] = Extent.of(stored, name).end

    def emit_all_new(self, last: Mapping[str, Any], room: Room) -> dict[str, Any]:
        """Emit one batch of the available messages of all of a task's partitions. Raises
        KafkaUnreachable while all brokers are down."""
        self._connect()
        starts = self._starts(last)
        if not starts:
            self._clock.sleep(min(room.seconds, REST_S))  # the interval between requests
        self._loop.seek({partition: extent.end for partition, extent in starts.items()})
        until = {partition: e.until for partition, e in starts.items() if e.until is not None}
        taken = self._loop.take(room, until)
        if starts and not taken:
            self._connect().connection.check()
        starts, unread = self._of_present_topics(starts, now=bool(taken))
        self._extents_of = starts
        metadata = {}
        for partition, start in sorted(starts.items()):
            if partition in unread:
                self._note_topic(last, partition, start, room)
                metadata[partition_name(partition)] = replace(start, count=0).kept()
                self._read[partition] = start
                continue
            messages = taken.get(partition, [])
            extent = replace(start, first=start.end, end=self._loop.at[partition])
            if partition in self._loop.lost:
                self._loop.leave([partition])  # the next batch finds a new position
                if not messages:
                    extent = self._beyond(partition, start)
            self._note_topic(last, partition, extent, room)
            room.partition = partition_name(partition)
            self._emit(messages, room)
            digest = checksum(messages) if self.kind is SpoutKind.TRANSACTIONAL else None
            extent = replace(extent, count=len(messages), checksum=digest)
            name, self._read[partition] = partition_name(partition), extent
            known = last[name] is not None and Extent.of(last[name], name) == start
            idle = known and extent.end == start.end and self.kind is SpoutKind.OPAQUE
            metadata[name] = last[name] if idle else extent.kept()
        return metadata

    def _note_topic(
        self, last: Mapping[str, Any], partition: Partition, extent: Extent, room: Room
    ) -> None:
        """Note that a partition begins anew if its topic was created again."""
        stored = last[name := partition_name(partition)]
        former = "" if stored is None else Extent.of(stored, name).topic_id
        if not may_be_same_topic(former, extent.topic_id):
            room.anew.add(name)

    def partitions_at_end(self) -> Mapping[str, float] | None:
        read = self._loop.at
        positions = {
            partition: read[partition] for partition in self._extents_of if partition in read
        }
        at_end = self._ends.at_end(positions, _ENDS_S)
        return {
            partition_name(partition): at_s
            for partition, at_s in at_end.items()
            if partition in positions
        }

    def _emit(self, messages: list[Message], room: Room) -> None:
        if messages:
            rows, odd = self._translator.records(MessageBatch.of(messages))
            if odd:
                results = map(self._row, rows, messages)
                each = (row if type(row) is list else [row] for row in results if row is not None)
                rows = [*chain.from_iterable(each)]
            room.emit(rows, sum(map(len, messages)))

    def _row(self, row: Any, message: Message) -> Any:
        """The row; for an undecodable message, the result of `unreadable`."""
        if OnStream in map(type, row if type(row) is list else [row]):
            raise FailedBatch("a batch has one stream: let translate return records, or None")
        if not isinstance(row, Undecodable):
            return row
        self.unreadable += 1
        place = (message.topic() or "", message.partition() or 0, message.offset() or 0)
        if self.options.unreadable is None:
            raise FailedBatch(
                f"{place[0]}[{place[1]}], offset {place[2]} cannot be read: {row.reason} "
                f"({row.exception}). Give options=BatchOptions(unreadable=…), which makes a record "
                "of it or passes it over"
            )
        record = KafkaRecord(*place, message.key(), message.value())
        return self.options.unreadable(record, row.reason)

    # ---- topics that are created again -----------------------------------------------------------

    def _topic_ids(self, topics: Collection[str]) -> Mapping[str, str]:
        """The present ids. Raises KafkaUnreachable."""
        self._watch.put_off()
        self._ids = self._watch.ask(topics)
        return self._ids

    def _of_present_topics(
        self, starts: Mapping[Partition, Extent], *, now: bool
    ) -> tuple[dict[Partition, Extent], Collection[Partition]]:
        """The positions, with those in topics that were created again replaced by where to begin
        there; and the partitions that are not read in this batch: what was fetched is dropped.

        `now`: messages were fetched, and are emitted only if their topic is still the same.
        """
        if not starts or not (now or self._watch.is_due):
            return {**starts}, ()
        positions, unread = dict[Partition, Extent](), set[Partition]()
        try:
            ids = self._topic_ids({partition.topic for partition in starts})
        except KafkaUnreachable as error:
            if not now:
                self._watch.put_off(_LOOK_LATER_S)
                return {**starts}, ()
            _LOG.warning("what was fetched is fetched again: %s", error)
            self._loop.leave({*starts})
            empty = {partition: replace(at, first=at.end) for partition, at in starts.items()}
            return empty, {*starts}
        for partition, start in starts.items():
            id = ids.get(partition.topic)
            if id is None:  # deleted, or not known to this broker
                positions[partition] = replace(start, first=start.end)
                unread.add(partition)
            elif may_be_same_topic(start.topic_id, id):
                positions[partition] = replace(start, topic_id=start.topic_id or id)
            else:
                positions[partition] = self._anew(partition, start, id)
                unread.add(partition)
        self._loop.leave(unread)
        return positions, unread

    def _anew(self, partition: Partition, former: Extent, id: str) -> Extent:
        """Where to begin in a topic that was created again, as an empty extent."""
        consumer = self._connect()
        if self.options.first is StartPosition.NONE:
            raise FailedBatch(
                f"{partition}: its topic was deleted and created again, the former one was read up "
                f"to offset {former.end}, and first=StartPosition.NONE begins nowhere else: say "
                "where to begin, such as first=StartPosition.EARLIEST"
            )
        retained = consumer.retained(partition)
        start = self._finder.find_anew(partition, former.end, retained)
        if start.skipped:
            self._skip(partition, *start.skipped, "they are of a topic that is new")
        return self._begun_at(start, retained, id)

    def _begun_at(self, start: Start, retained: RetainedOffsets, id: str) -> Extent:
        return Extent(
            *(start.offset, start.offset, self._topology),
            until=retained.latest if self.options.until_end else None,
            run=self._bounded,
            topic_id=id,
        )

    # ---- start positions ------------------------------------------------------------------------

    def begins_anew(self, stored: Mapping[str, Any]) -> None:
        """Log one warning if this start does not continue at the stored positions."""
        consumer, finder = self._connect(), self._finder
        for name, metadata in stored.items():
            extent, partition = Extent.of(metadata, name), partition_of(name)
            if extent.deployment == self._topology:
                continue
            try:
                id = self._topic_ids({partition.topic}).get(partition.topic)
                was_recreated = id is None or not may_be_same_topic(extent.topic_id, id)
                if not was_recreated:
                    retained = consumer.retained(partition)
                    start = finder.find(partition, None, retained)
                    finder.note_ignored(partition, extent.end, start.offset, retained)
            except KafkaUnreachable as error:
                _LOG.warning("it is not known where %s begins: %s", name, error)
        finder.report_ignored()

    def _starts(self, last: Mapping[str, Any]) -> dict[Partition, Extent]:
        """The start position of each partition, as an extent that ends there.

        Partitions whose broker does not answer are left out, so that batches continue without
        them, and so are those for which no time is left.
        """
        positions: dict[Partition, Extent] = {}
        until_s = self._clock.now() + ASKING_S
        for name in sorted(last, key=lambda name: self._unanswered_s.get(name, 0.0)):
            if (start := self._start(name, last[name], until_s)) is not None:
                positions[partition_of(name)] = start
        return positions

    def _start(self, name: str, stored: Any, until_s: float) -> Extent | None:
        extent = None if stored is None else Extent.of(stored, name)
        ours = (self._topology, self._bounded)
        if extent is not None and (extent.deployment, extent.run) == ours:
            return extent
        partition, before = partition_of(name), None if extent is None else extent.end
        key = (self._run, name, before, "" if extent is None else extent.topic_id)
        if key in self._begun:  # a replayed attempt begins at the same offset
            return self._begun[key]
        now_s = self._clock.now()
        if not self._quiet_until_s <= now_s < until_s:
            return None
        try:
            self._begun[key] = self._first(partition, extent)
        except KafkaUnreachable as error:
            self._unanswered_s[name] = later_s = self._clock.now()
            self._quiet_until_s = later_s + _LATER * (later_s - now_s)
            _LOG.warning("%s is read later: %s", name, error)
            return None
        return self._begun[key]

    def _first(self, partition: Partition, extent: Extent | None) -> Extent:
        consumer = self._connect()
        id = self._topic_ids({partition.topic}).get(partition.topic, "")  # before the offsets
        if extent is not None and not may_be_same_topic(extent.topic_id, id):
            return self._anew(partition, extent, id)
        stored = None if extent is None else extent.committed
        if stored is None and self.options.first.by_anyone:
            stored = KafkaOffsets(consumer).read([partition]).get(partition)
            if stored is not None and not may_be_same_topic(stored.topic_id, id):
                return self._anew(partition, Extent(stored.offset, stored.offset, None), id)
        retained = consumer.retained(partition)
        is_short = extent is not None and extent.end > retained.latest
        if extent is not None and is_short and self._finder.continues(extent.committed):
            stored = extent.at(self._shortened(partition, extent.end, retained)).committed
        is_new = partition_name(partition) in self._added
        start = self._finder.find(partition, stored, retained, new=is_new)
        if start.skipped:
            self._skip(partition, *start.skipped)
        return self._begun_at(start, retained, id)

    def _beyond(self, partition: Partition, start: Extent) -> Extent:
        """The extent of a batch without records whose next offset, the end of `start`, is out of
        range."""
        wanted = start.end
        id = self._topic_ids({partition.topic}).get(partition.topic)
        if id is not None and not may_be_same_topic(start.topic_id, id):
            return self._anew(partition, start, id)
        retained = self._connect().retained(partition)
        if wanted < retained.earliest:
            check_start(self.options.first, partition, wanted, retained)
            self._skip(partition, wanted, retained.earliest)
            return replace(start, first=wanted, end=retained.earliest)
        if wanted <= retained.latest:
            return replace(start, first=wanted)
        after = self._shortened(partition, wanted, retained)
        until = None if start.until is None else retained.latest
        return replace(start, first=after, end=after, until=until)

    def _shortened(self, partition: Partition, wanted: int, retained: RetainedOffsets) -> int:
        """The offset to continue at in a partition that ends too early. Raises FailedBatch without
        `shortened`: reading what is there could count it twice, skipping it could lose it."""
        problem = f"{partition} ends at {retained.latest}, and {wanted} was to be read next"
        if self.options.shortened is None:
            raise FailedBatch(
                f"{problem}: the topic was recreated, or has lost its end. Read it from its "
                "start with options=BatchOptions(shortened=StartPosition.EARLIEST), or from its "
                "end with StartPosition.LATEST"
            )
        from_start = self.options.shortened is StartPosition.EARLIEST
        after = retained.earliest if from_start else retained.latest
        _LOG.warning("%s; it is read from %d", problem, after)
        return after

    def _skip(self, partition: Partition, first: int, end: int, why: str = "they are gone") -> None:
        self.skipped += end - first
        _LOG.warning("%s: offsets %d to %d are skipped: %s", partition, first, end - 1, why)

    def _other_topic(self, partition: Partition, extent: Extent) -> str:
        """Why a batch cannot be read again, if its topic was created again since; or ""."""
        id = self._ids.get(partition.topic)
        if not extent.topic_id or (id is not None and may_be_same_topic(extent.topic_id, id)):
            return ""
        return (
            f"{partition}, offsets {extent.first} to {extent.end - 1}: the topic was deleted"
            f"{' and created again' if id else ''} since the batch was read: keep topics until "
            "their batches are committed, or use KafkaOpaque"
        )


class KafkaOpaque(KafkaBatches, OpaquePartitionedSpout):
    """Batches that may have other records when they are replayed; each record is in exactly one
    committed batch. Retention fails no batch."""


class KafkaTransactional(KafkaBatches, PartitionedSpout):
    """Batches that have the same records each time they are emitted."""

    def emit_all_again(self, metadata: Mapping[str, Any], room: Room) -> None:
        self._connect()
        extents = {partition_of(name): Extent.of(stored, name) for name, stored in metadata.items()}
        self._extents_of = extents
        wanted = {partition: extent for partition, extent in extents.items() if extent.records_max}
        until_s = self._clock.now() + self.options.answer_s

        def is_over(silent: Collection[Partition]) -> bool:
            late = self._clock.now() > until_s
            if late and silent:
                raise KafkaUnreachable(
                    f"{', '.join(map(str, sorted(silent)))} could not be read again within "
                    f"{self.options.answer_s:g} s, from {self._connect().address}; the "
                    "batch is emitted again. If that continues: do its brokers run?"
                )
            return late

        ranges = {
            partition: range(extent.first, extent.end) for partition, extent in wanted.items()
        }
        counts = {partition: extent.records_max for partition, extent in wanted.items()}
        messages_of = self._loop.again(ranges, counts, is_over)
        gone = []
        self._topic_ids({partition.topic for partition in wanted})
        for partition, messages in sorted(messages_of.items()):
            if problem := self._missing(partition, wanted[partition], messages):
                gone.append(problem)
            else:
                self._emit(messages, room)
        self._read |= extents
        if gone:
            raise IncompleteBatch("; ".join(gone))

    def _missing(self, partition: Partition, extent: Extent, messages: list[Message]) -> str:
        """What differs from the recorded batch; "" without a count, as in Storm's metadata."""
        if (problem := self._other_topic(partition, extent)) or extent.count is None:
            return problem
        if len(messages) == extent.count and checksum(messages) == extent.checksum:
            return ""
        earliest, latest = self._connect().retained(partition)
        return (
            f"{partition}, offsets {extent.first} to {extent.end - 1}: the batch had "
            f"{extent.count} records, and {len(messages)} are there now"
            f"{'' if len(messages) != extent.count else ', which are others'}; the partition has "
            f"{earliest} to {latest - 1}. Retention or compaction has removed them, or the topic "
            "was recreated: keep records until their batches are committed, or use KafkaOpaque"
        )


# ---- offset ranges -------------------------------------------------------------------------------
# Ranges are for volumes that should not pass through Python: Spark reads them
# (sunshower/spark_integration/tables/kafka_rows.py). No messages are fetched here.

_BOUNDS = Bounds(records=1_000_000)


class OffsetRange(NamedTuple):
    """Offsets [first, end) of a partition. Some may hold no record: transaction markers and
    compacted records."""

    topic: str
    partition: int
    first: int
    end: int
    topic_id: str = ""  # differs if the topic is created again; "": the brokers give none


class KafkaRanges(KafkaBatches, PartitionedSpout):
    """Emits an OffsetRange for each partition with new offsets; transactional: a replayed batch has
    the same ranges.

    `options.bounds.records` limits the offsets of one task's part, by default 1 million; bytes are
    not known. A range that retention has partly deleted cannot be emitted again (IncompleteBatch);
    records removed by compaction are not detected. Raises ConfigError.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        *,
        topics: Collection[str] = (),
        pattern: str | None = None,
        partitions: Collection[Partition] = (),
        options: BatchOptions | None = None,
        deployment: str | None = None,
    ) -> None:
        super().__init__(
            settings,
            topics=topics,
            pattern=pattern,
            partitions=partitions,
            options=BatchOptions(bounds=_BOUNDS) if options is None else options,
            deployment=deployment,
        )
        self.emits = OffsetRange
        self._latest: dict[Partition, int] = {}
        self._asked_s: dict[str, float] = {}  # the last request; the least recent one is next

    def emit_all_new(self, last: Mapping[str, Any], room: Room) -> dict[str, Any]:
        starts = self._starts(last)
        extents = self._extents(starts, room)
        while room.seconds and all(
            extent.end == starts[partition].end for partition, extent in extents.items()
        ):
            if extents and self.options.until_end:
                break  # all offsets up to the end are in batches
            self._clock.sleep(min(room.seconds, REST_S))
            extents = self._extents(starts, room)
        begins = {partition: extent.at(extent.first) for partition, extent in extents.items()}
        is_any = any(extent.first < extent.end for extent in extents.values())
        present, unread = self._of_present_topics(begins, now=is_any)
        for other, begin in present.items():
            if other not in unread:
                extents[other] = replace(extents[other], topic_id=begin.topic_id)
            elif begin.topic_id != extents[other].topic_id:  # the topic was created again
                extents[other] = begin
            else:
                extents[other] = replace(extents[other], end=extents[other].first)
        for partition, extent in sorted(extents.items()):
            self._emit_range(partition, extent, room)
        return {partition_name(partition): extent.kept() for partition, extent in extents.items()}

    def emit_all_again(self, metadata: Mapping[str, Any], room: Room) -> None:
        gone = []
        self._topic_ids({partition_of(name).topic for name in metadata})
        for name, stored in sorted(metadata.items()):
            partition, extent = partition_of(name), Extent.of(stored, name)
            if problem := self._missing(partition, extent):
                gone.append(problem)
            else:
                self._emit_range(partition, extent, room)
        if gone:
            raise IncompleteBatch("; ".join(gone))

    def partitions_at_end(self) -> Mapping[str, float] | None:
        return None  # a partition is in a batch only if its leader has answered

    def _missing(self, partition: Partition, extent: Extent) -> str:
        if extent.first == extent.end:
            return ""
        if problem := self._other_topic(partition, extent):
            return problem
        earliest, latest = self._connect().retained(partition)
        if earliest <= extent.first and extent.end <= latest:
            return ""
        return (
            f"{partition}, offsets {extent.first} to {extent.end - 1}: the partition has "
            f"{earliest} to {latest - 1} now. Retention has removed them, or the topic was "
            "created again: keep records until their batches are committed"
        )

    def _end(self, partition: Partition) -> int | None:
        return self._latest.get(partition)

    def _emit_range(self, partition: Partition, extent: Extent, room: Room) -> None:
        self._read[partition] = extent
        room.partition = partition_name(partition)
        if extent.first < extent.end:
            room.emit([OffsetRange(*partition, extent.first, extent.end, extent.topic_id)])

    def _extents(self, starts: Mapping[Partition, Extent], room: Room) -> dict[Partition, Extent]:
        """The extents of a batch; partitions whose broker does not answer are left out."""
        extents, waiting = dict[Partition, Extent](), dict[Partition, int]()
        until_s = self._clock.now() + ASKING_S
        for partition in sorted(
            starts, key=lambda partition: self._asked_s.get(partition_name(partition), 0.0)
        ):
            if self._clock.now() >= until_s:
                break
            self._asked_s[partition_name(partition)] = self._clock.now()
            try:
                extents[partition], waiting[partition] = self._look(partition, starts[partition])
            except KafkaUnreachable as error:
                _LOG.warning("%s is read later: %s", partition, error)
        return {
            partition: replace(extents[partition], end=extents[partition].end + count)
            for partition, count in shares(waiting, self.bounds.records).items()
        }

    def _look(self, partition: Partition, start: Extent) -> tuple[Extent, int]:
        """An empty extent at the next offset, and the number of offsets waiting there. Raises
        KafkaUnreachable, and FailedBatch for a partition that has become shorter."""
        earliest, latest = self._connect().retained(partition)
        self._latest[partition] = latest
        if not earliest <= start.end <= latest:  # empty in this batch, the next one continues
            start = self._beyond(partition, start)
            latest = start.end
        end = latest if start.until is None else min(latest, start.until)
        empty = replace(start.at(start.end), until=start.until, run=start.run)
        return empty, max(end - start.end, 0)


def shares(waiting: Mapping[Partition, int], limit: int) -> dict[Partition, int]:
    """Divide `limit` equally over partitions, as far as they have offsets waiting; at least one
    for each that has some, so that none starves."""
    counts, left = dict[Partition, int](), limit
    few_first = sorted(waiting, key=lambda partition: (waiting[partition], partition))
    for place, partition in enumerate(few_first):
        counts[partition] = min(waiting[partition], max(left // (len(few_first) - place), 1))
        left -= counts[partition]
    return counts
