"""KafkaSpout: reads records from Kafka in batches and acks each by its offset.

    sharing ─assigns──▶ partitions ──consume──▶ messages ──translate──▶ records ──▶ the topology
                           ▲                                                          │ acks
                           └─ start position ── offsets ◀── commits ── progress ◀─────┘

Storm: org.apache.storm.kafka.spout.KafkaSpout, org.apache.storm.kafka.KafkaSpout
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from copy import copy
from types import NoneType
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from sunshower.arguments import CLASS, NAME, NONE, AnyOf, Each, Instance, checked
from sunshower.errors import (
    ConfigError,
    KafkaError,
    KafkaUnreachable,
    LifecycleError,
    UnknownTopic,
    user_errors,
)
from sunshower.kafka.consuming.consumer import (
    Consumer,
    EndChecks,
    check_settings,
    servers_of,
    with_servers,
)
from sunshower.kafka.consuming.decoding import (
    KafkaRecord,
    MessageBatch,
    Received,
    Translator,
    Undecodable,
)
from sunshower.kafka.consuming.partition_reader import (
    OFFSET_BITS,
    PartitionReader,
    Refetcher,
    Skipped,
    intercept,
)
from sunshower.kafka.consuming.start_position import StartPosition
from sunshower.kafka.consuming.subscription import TopicSubscription, TopicWatch
from sunshower.kafka.formats import Bytes, Format, format_of
from sunshower.kafka.options import (
    Guarantee,
    KafkaOptions,
    ReaderContext,
    by_broker_group,
    by_metadata,
    nowhere,
)
from sunshower.kafka.partitions.ports import (
    Partition,
    PartitionStatus,
    RebalanceListener,
    RefreshedDirectory,
    figures,
)
from sunshower.secret import protected
from sunshower.state.log_progress import I64
from sunshower.topologies.components import Context
from sunshower.topologies.logs import LogSpout, Polled, Unreadable
from sunshower.topologies.operators.state_shapes import shape_of
from sunshower.topologies.signatures import result_record

if TYPE_CHECKING:
    from confluent_kafka import Message

Out = TypeVar("Out")

# `sunshower logs` shows its lines; they are no warnings, so no handler of Python prints them.
_CHANGES = logging.getLogger("sunshower.kafka.partitions")
if not _CHANGES.level:
    _CHANGES.setLevel(logging.INFO)

_TOPICS = Each(NAME, 'a list of names: ["orders"]')
_OPTIONS = Instance((KafkaOptions, NoneType), "KafkaOptions(first=StartPosition.EARLIEST, …)")
_TYPE = AnyOf((CLASS, Each(NAME, "a list of the names of fields"), NONE))
_NO_RECORD = Undecodable("it made a record when it was read first, and makes none now", "")
_ONE_RECORD = Undecodable(
    "it made several records, and OffsetsWithResults stores results by message: let translate= "
    "return one record, and take it apart in the bolt",
    "",
)
_HELD_MAX = 20_000  # messages that wait until their topic is known to be still the same
_AHEAD_MAX = 64  # messages buffered while the spout may not emit; then all partitions are paused


class KafkaSpout(LogSpout[Any]):
    """Reads topics of Kafka.

    `settings` are librdkafka's, including group.id and bootstrap.servers, which may be left out
    if `options.directory` finds the brokers. Give exactly one of `topics`, `pattern`, `partitions`.
    Records are KafkaRecords, unless `value` has a record type or `translate` is given; then its
    annotation (`-> Word`) declares their type, or `emits`, or `streams` at the declaration.
    `fields` selects fields of Received, emitted as plain tuples: fewer fields are faster. If
    `translate` returns a list, the message has several records in one tree: its offset is committed
    when all of them are processed, and if one fails, all are emitted again.
    Undecodable messages become dead letters with topic, partition, offset, key and value.
    While all brokers, or dependencies of `value`, `key` or `translate`, are down, the task waits.
    Raises ConfigError for invalid arguments, before any request to a broker.
    """

    @checked(
        settings=None, topics=None, fields=None, value=None, key=None, emits=_TYPE, options=_OPTIONS
    )
    def __init__(
        self,
        settings: Mapping[str, Any],
        *,
        topics: Collection[str] = (),
        pattern: str | None = None,
        partitions: Collection[Partition] = (),
        value: Format | None = None,
        key: Format | None = None,
        translate: Callable[[Received], Any] | None = None,
        fields: Sequence[str] = (),
        emits: Any = None,
        options: KafkaOptions | None = None,
        deployment: str | None = None,
    ) -> None:
        """`deployment`: a topology started under the same name continues at its offsets, whatever
        `options.first` says; by default each declaration is a deployment of its own."""
        self.options = KafkaOptions() if options is None else options
        check_settings(
            settings,
            servers=self.options.directory is by_metadata,
            grouped=self.options.sharing is by_broker_group,
        )
        if isinstance(topics, str):
            raise ConfigError(f"topics is {topics!r}; give a list: [{topics!r}]")
        _TOPICS.check("KafkaSpout: topics", topics)
        self.settings = protected(settings)
        self.subscription = TopicSubscription(tuple(topics), pattern, tuple(partitions))
        self.deployment = deployment or uuid.uuid4().hex
        self.replay = self.options.guarantee is Guarantee.AT_LEAST_ONCE
        self.refetches = self.options.refetch
        self._commits_first = self.options.guarantee is Guarantee.AT_MOST_ONCE
        formats = (format_of("value", value), format_of("key", key))
        self.reads = (*formats, translate, _checked(fields, translate))
        self.emits = emits or self.reads[3] or self.reads[0].record_type
        if self.emits is None and translate is not None:
            self.emits = result_record(translate, "KafkaSpout: translate")
        if self.emits is None and translate is None:
            self.emits = KafkaRecord
        self.skipped: list[Skipped] = []  # the last 100
        self.skipped_count = self.unreadable = 0

    # ---- lifecycle ----------------------------------------------------------------------------

    def open(self, context: Context) -> None:
        """Raises errors of topics, address or credentials within 10 s."""
        self._clock = context.clock
        self._translator = Translator(*self.reads)
        for topic in self.subscription.topics:
            for part in ("key", "value"):
                self._translator.decoder(topic, part)
        directory = self._directory = RefreshedDirectory(
            self.options.directory(self.settings), context.clock, every_s=self.options.refresh_s
        )
        with ExitStack() as undo:
            undo.callback(directory.close)
            self.subscription.found(directory)
            settings = with_servers(self.settings, lambda: directory)
            if instance := settings.get("group.instance.id"):  # as of Kafka Streams' threads
                settings = {**settings, "group.instance.id": f"{instance}-{context.index}"}
            self._consumer = Consumer(settings)
            undo.callback(self._consumer.close)
            self._consumer.call_on_arrival(context.wake)
            self._refetcher = Refetcher(settings)
            undo.callback(self._refetcher.close)
            self._start(context, directory, undo)
            self._undo = undo.pop_all()

    def _start(self, context: Context, directory: RefreshedDirectory, undo: ExitStack) -> None:
        """Create the components; `undo` closes them in reverse order, also if the rest fails."""
        topology = f"{context.topology}-{self.deployment}"
        reader = ReaderContext(
            context=context,
            subscription=self.subscription,
            directory=directory,
            consumer=self._consumer,
            refresh_s=self.options.refresh_s,
            deployment=topology,
        )
        self._ends = EndChecks(self._consumer, context.clock)
        self._sharing = self.options.sharing(reader)
        try:
            self._offsets = self.options.store(reader._replace(sharing=self._sharing))
        except BaseException:
            self._sharing.leave(RebalanceListener())  # it has no partitions yet
            raise
        undo.callback(self._offsets.close)
        watch = TopicWatch(directory.topic_ids, context.clock)
        undo.callback(watch.close)
        self._reader = PartitionReader(
            self._consumer, self._offsets, self.options, topology, context.task, watch
        )
        self._received = Translator(Bytes(), Bytes(), _own)
        self._translator.topic_id = self._received.topic_id = self._topic_id
        undo.callback(self._reader.committer.close)
        undo.callback(self._sharing.leave, self._reader)
        self._name = f"Task [{context.index + 1}/{context.parallelism}] of {context.component!r}"
        self._logged: tuple[int, set[Partition]] = 0, set()  # changes, and what it read then
        self._commit_s = context.clock.now() + self.options.commit_s
        self._emit_s = 0.0  # at most once: emit nothing before this time, after a failed commit
        self._sharing.look(self._reader)
        self._reader.all_new = self._sharing.later_is_new

    def deactivate(self) -> None:
        self._reader.send_commit()

    def close(self) -> None:
        if hasattr(self, "_undo"):
            try:
                self._reader.send_commit()
            finally:
                self._undo.close()
                self._reader.committer.report()  # closing the client completes its last commit

    def figures(self) -> dict[str, float]:
        odd = {
            "skipped": float(self.skipped_count),
            "unreadable": float(self.unreadable),
            "recreated": float(self._reader.starts.recreated),
        }
        return figures(self.standing(), is_known=not self._consumer.connection.is_cut) | odd

    def result(self) -> dict[str, Any]:
        """The final progress of each partition, and counters of commits and errors."""
        committer = self._reader.committer
        return {
            "standing": self.standing(),
            "skipped": list(self.skipped),
            "unreadable": self.unreadable,
            "recreated": self._reader.starts.recreated,
            "commits": committer.commits,
            "stale commits": committer.stale,
            "failed commits": committer.failed,
        }

    # ---- records --------------------------------------------------------------------------------

    def poll(self, limit: int) -> Polled[Any] | None:
        self._reader.committer.report()
        self._log_changes()
        try:
            return self._poll(limit)
        except UnknownTopic as error:
            if not self._reader.places:
                raise
            raise KafkaUnreachable(
                f"what this task has read does not exist any more: {error}. The task waits until "
                "it is created again"
            ) from error

    def _poll(self, limit: int) -> Polled[Any] | None:
        reader = self._reader
        self._sharing.look(reader)
        has_error, self._consumer.has_partition_error = self._consumer.has_partition_error, False
        reader.look_at_topics(now=has_error)
        if has_error or reader.has_changed:
            reader.has_changed = False
            self._look_for_partitions()
        now = self._clock.now()
        if now >= self._commit_s:
            self._commit_s = now + self.options.commit_s
            reader.committer.begin(reader.settled())
        if limit and now >= self._emit_s:
            reader.look_up_positions(self._clock.now)
            reader.pause_full()
            try:
                polled = self._records(limit)
            except KafkaUnreachable:
                raise  # no broker answers: nothing new is known of partitions
            except KafkaError:
                self._look_for_partitions()
                raise
        else:
            self._take_ahead()
            polled = None
        if reader.gone:
            polled = polled or Polled(np.zeros(0, np.int64), ())
            polled.gone, reader.gone = reader.gone, []
            self._refetcher.stop()
        return polled

    def _log_changes(self) -> None:
        """Log one line for each change of the partitions that this task reads.

        Storm: org.apache.storm.kafka.KafkaUtils.logPartitionMapping
        """
        places, (changes, before) = self._reader.places, self._logged
        if places.changes == changes:
            return
        now = {*places}
        self._logged = places.changes, now
        if now != before:
            sets = (now, now - before, before - now)
            names = [", ".join(map(str, sorted(partitions))) or "none" for partitions in sets]
            _CHANGES.info("%s reads %s; new: %s; given up: %s", self._name, *names)

    def _look_for_partitions(self) -> None:
        """Let the next poll look up topics and partitions: one was not as it was."""
        self._directory.refresh()
        self._sharing.refresh()

    def _topic_id(self, partition: Partition) -> str:
        """For records: the id of the topic that this task reads."""
        place = self._reader.places.get(partition)
        return place.topic_id if place else ""

    def refetch(self, numbers: I64, limit: int) -> Polled[Any]:
        places = self._reader.places
        former = [number for number in numbers.tolist() if places.former(number)]
        if former:  # these are nowhere any more
            lost = [self._of_former_topic(number) for number in former[:limit]]
            return Polled(np.zeros(0, np.int64), (), lost)
        wanted = {place.partition: np.sort(offsets) for place, offsets in places.each(numbers)}
        messages, gone = self._refetcher.find(wanted, limit)
        batch = MessageBatch.of(messages)
        refetched = batch.offsets()
        for run in batch.runs:
            refetched[run.first : run.end] |= places[run.partition].numbers[0]
        records, odd = self._translator.records(batch)
        if odd:
            records = [_NO_RECORD if record is None else record for record in records]
        lost = [
            self._lost(
                Skipped(partition, at, at + 1, why),
                {"offset": at},
                f"{partition}, offset {at} is gone",
            )
            for partition, at, why in gone
        ]
        polled = Polled(refetched, records, lost)
        if odd:
            self._separate(polled, batch.messages)
        return polled

    def has_read_first(self) -> bool:
        return self.partitions_read() is not None and self._reader.has_read_first()

    def from_start(self) -> KafkaSpout | None:
        """Return a copy that reads all partitions from their first offsets, or from the time of
        StartTime, and commits nothing; None if `options.first` begins at the end, or nowhere."""
        first = self.options.first
        if isinstance(first, StartPosition):
            if first.from_end or first is StartPosition.NONE:
                return None
            first = StartPosition.EARLIEST
        copied = copy(self)
        copied.options = KafkaOptions(
            first=first,
            refresh_s=self.options.refresh_s,
            directory=self.options.directory,
            store=nowhere,
        )
        copied.replay, copied.refetches, copied._commits_first = True, False, False
        copied.deployment = uuid.uuid4().hex
        return copied

    def acked(self, numbers: I64) -> None:
        self._reader.places.acked(numbers)

    def continue_from(self, former: LogSpout[Any]) -> KafkaSpout:
        """Return a copy that is the same deployment as `former`, whatever `options.first` says.
        Raises LifecycleError if it would not find the offsets of `former`, or leave some."""
        different = [*self._differences(former)] if isinstance(former, KafkaSpout) else ["class"]
        if different or not isinstance(former, KafkaSpout):
            raise LifecycleError(
                f"a KafkaSpout has another {' and another '.join(different)}, and would not "
                "continue at all offsets of the running code: keep what it had, or kill the "
                "topology and submit it. Nothing has been changed"
            )
        copied = copy(self)
        copied.deployment = former.deployment
        return copied

    def _differences(self, former: KafkaSpout) -> Iterator[str]:
        """The names of what `former` has stored its offsets by, where it differs."""
        if self.settings.get("group.id") != former.settings.get("group.id"):
            yield "group.id"
        if servers_of(self.settings) != servers_of(former.settings):
            yield "bootstrap.servers"
        for name in ("store", "directory"):
            if shape_of(getattr(self.options, name)) != shape_of(getattr(former.options, name)):
                yield name
        if not self.subscription.covers(former.subscription):
            yield f"subscription, without all of: {former.subscription.name}"

    def partitions_read(self) -> Collection[int] | None:
        places = self._reader.places
        if self._reader.has_unbegun or not (places or self._sharing.is_settled):
            return None
        return [place.slot for place in places.values()]

    def partitions_at_end(self) -> Mapping[int, float]:
        places = self._reader.places
        at_end = self._ends.at_end(self._reader.emitted())
        return {
            places[partition].slot: at_s
            for partition, at_s in at_end.items()
            if partition in places
        }

    def partition_name(self, partition: int) -> str:
        name = self._reader.places.name(partition << OFFSET_BITS)
        return str(partition if name is None else name[0])

    def partitions_of(self, numbers: I64) -> I64:
        return numbers >> OFFSET_BITS

    def message_id(self, number: int) -> Any:
        """The id (topic, partition, offset, id of the topic); without the last if the brokers give
        none."""
        name = self._reader.places.name(number)
        return number if name is None else name

    def standing(self) -> dict[Partition, PartitionStatus]:
        committed = self._reader.committer.written
        line = np.array(self.queued(), np.int64)
        return {
            partition: PartitionStatus(
                committed=committed[partition].offset if partition in committed else None,
                contiguous=place.progress.contiguous,
                emitted=place.progress.emitted,
                end=self._consumer.end(partition),
                holes=place.progress.holes,
                waiting=int(np.count_nonzero(line >> OFFSET_BITS == place.slot)),
                paused=place.paused,
            )
            for partition, place in self._reader.places.items()
        }

    def _records(self, limit: int) -> Polled[Any] | None:
        """Up to `limit` available records; messages stay in `ahead` until they are translated."""
        reader = self._reader
        room = limit - min(limit, len(reader.skipped))
        has_arrived = False
        if not reader.ahead and room:
            has_arrived = reader.receive(room if reader.held < _HELD_MAX else 1)
        reader.loop.raise_refusal()
        taken, reader.ahead = reader.ahead[:room], reader.ahead[room:]
        if not taken and not reader.skipped:
            reader.apply_events()
            if not has_arrived and not reader.gone:  # `poll` returns that first
                self._consumer.connection.check()
            return None
        before = reader.emitted()
        batch, numbers = reader.sort(taken)
        if self._commits_first and batch.messages and not reader.commit_now():
            reader.put_back(taken, before)
            self._emit_s = self._clock.now() + self.options.commit_s
            return None
        try:
            records, odd = self._translator.records(batch)
        except user_errors():  # a dependency is unavailable: emit none of these
            reader.put_back(taken, before)
            raise
        if (interceptor := self.options.interceptor) is not None and batch.messages:
            intercept(interceptor.on_consume, self._received.records(batch)[0])
        polled = Polled(numbers, records, self._skipped(limit - len(records)))
        if odd:
            self._separate(polled, batch.messages)
        return polled

    def _separate(self, polled: Polled[Any], messages: Sequence[Message]) -> None:
        """Remove skipped messages from the records, and undecodable ones to `unreadable`."""
        if self._offsets.by_message:
            polled.records = [_ONE_RECORD if type(r) is list else r for r in polled.records]
        odd = [
            index
            for index, record in enumerate(polled.records)
            if record is None or type(record) is Undecodable
        ]
        if not odd:
            return
        numbers, records = polled.numbers, polled.records
        bad = [index for index in odd if records[index] is not None]
        self.unreadable += len(bad)
        polled.unreadable = [
            *polled.unreadable,
            *(self._unreadable(int(numbers[at]), messages[at], records[at]) for at in bad),
        ]
        passed = [index for index in odd if records[index] is None]
        self._reader.places.acked(numbers[passed])
        polled.numbers = np.delete(numbers, odd)
        left = set(odd)
        polled.records = [record for index, record in enumerate(records) if index not in left]

    def _unreadable(self, number: int, message: Message, bad: Any) -> Unreadable:
        record = {
            "topic": message.topic(),
            "partition": message.partition(),
            "offset": message.offset(),
            "key": message.key(),
            "value": message.value(),
        }
        return Unreadable(number, record, bad.reason, bad.exception, halts=self.replay)

    def _skipped(self, limit: int) -> list[Unreadable]:
        """Ranges of offsets that were not read, each reported once."""
        reader = self._reader
        reported, reader.skipped = reader.skipped[:limit], reader.skipped[limit:]
        return [
            self._lost(
                skipped,
                {"from": skipped.first, "to": skipped.end - 1},
                f"offsets {skipped.first} to {skipped.end - 1} of {skipped.partition} are skipped",
            )
            for _, skipped in reported
        ]

    def _lost(self, skipped: Skipped, where: Mapping[str, int], what: str) -> Unreadable:
        """Count and report offsets without a record: `where` and `what` describe them."""
        self.skipped = [*self.skipped, skipped][-100:]
        self.skipped_count += skipped.end - skipped.first
        record = {"topic": skipped.partition.topic, "partition": skipped.partition.number, **where}
        number = self._reader.places[skipped.partition].number(skipped.first)
        return Unreadable(number, record, f"{what}: {skipped.why}", halts=False)

    def _of_former_topic(self, number: int) -> Unreadable:
        """A failed message that cannot be read again."""
        topic, partition, offset, *_ = self.message_id(number)
        self.skipped_count += 1
        record = {"topic": topic, "partition": partition, "offset": offset}
        what = f"{topic}[{partition}], offset {offset} is gone: the topic was created again"
        return Unreadable(number, record, what, halts=False)

    def _take_ahead(self) -> None:
        """Poll the client while the spout may not emit: it requires regular polls."""
        reader = self._reader
        if len(reader.ahead) + reader.held >= _AHEAD_MAX:
            reader.pause_all()
        reader.receive(1)


def _own(received: Received) -> Received:
    """Without the list of headers, which belongs to the client's message, and so to its record."""
    return received._replace(headers=(*received.headers,))


def _checked(fields: Sequence[str], translate: Any) -> tuple[str, ...]:
    """The fields. Raises ConfigError for unknown ones, and if `translate` is given, too."""
    known = Received._fields
    if not isinstance(fields, list | tuple) or not all(name in known for name in fields):
        raise ConfigError(f"fields is {fields!r}; a message has {', '.join(Received._fields)}")
    if fields and translate is not None:
        raise ConfigError("give fields=(…) or translate=…, not both: translate gets all fields")
    return tuple(fields)
