"""The partitions one task reads; separate because it is tested without a spout, on a fake broker.

It has their start positions, progress, commits and skipped offsets.
Each position belongs to a topic with an id (subscription.py). If a topic is deleted and created
again, the reader begins anew in it, as if nothing had been committed. Until that is noticed,
messages of the new topic may have been read on from the old offset: with at-least-once they are
read again. Where a message must not be processed twice (`_exact`), messages are held until an
answer to a request, begun after they arrived, says that the topic is still the same.
"""

from __future__ import annotations

import json
import logging
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, compress
from typing import TYPE_CHECKING, Any, NamedTuple
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from sunshower.errors import (
    KafkaError,
    KafkaUnreachable,
    StaleGeneration,
    SunshowerError,
    UnknownTopic,
    user_errors,
)
from sunshower.kafka.consuming.consumer import Consumer, ConsumerLoop, partition_of_message, without
from sunshower.kafka.consuming.decoding import MessageBatch, OffsetRun
from sunshower.kafka.consuming.start_position import Start, StartFinder, check_start, within, writer
from sunshower.kafka.consuming.subscription import TopicWatch
from sunshower.kafka.options import Guarantee, Interceptor, KafkaOptions
from sunshower.kafka.partitions.ports import (
    Committed,
    Offsets,
    Partition,
    RebalanceListener,
    may_be_same_topic,
)
from sunshower.state.log_progress import I64, Progress

if TYPE_CHECKING:
    from confluent_kafka import Message

_FIND_S, _FIND_MAX_S = 2.0, 10.0  # delay before a lookup that failed is retried; doubles each time
_FINISH_S = 5.0  # the wait for a commit when partitions are revoked, or at the end


_LOG = logging.getLogger("sunshower.kafka")

Wanted = Mapping[Partition, Committed]


# ---- message ids ---------------------------------------------------------------------------------
# The partitions a task reads, and the ids of their messages: slot << 48 | offset.
#
# A partition's slot is a hash of its name and of the id of its topic, so it is the same after
# every restart of a task: the flight recorder of the previous process then identifies the same
# messages. If a topic is deleted and created again, its partitions get other slots: messages of
# the former topic that are not settled are still processed, under their own ids.

OFFSET_BITS = 48
_OFFSETS = (1 << OFFSET_BITS) - 1
_SLOTS = 1 << 15  # keeps the id positive
_RESERVED = 1 << 14  # with offset 0, the number of a watermark
_FORMER_MAX = 1000
_FEW = 32  # partitions; with more, the ids are sorted instead of compared with each slot


@dataclass(slots=True)
class ReadPartition:
    """A partition that the task reads."""

    partition: Partition
    slot: int
    progress: Progress
    topic_id: str = ""  # of the topic that its offsets belong to; "": not known
    leader_epoch: int = -1  # of the last message, if the brokers give no ids
    is_former: bool = False  # the topic was created again, and it is not known where to begin there
    paused: bool = False
    metadata: str = ""  # committed with its offsets

    def number(self, offset: int) -> int:
        return self.slot << OFFSET_BITS | offset

    @property
    def numbers(self) -> tuple[int, int]:
        """The range [first, end) of this partition's ids."""
        return self.slot << OFFSET_BITS, (self.slot + 1) << OFFSET_BITS


class ReadPartitions(Mapping[Partition, ReadPartition]):
    """The partitions read by this task, by partition and by message id."""

    def __init__(self) -> None:
        self._by_partition: dict[Partition, ReadPartition] = {}
        self._by_slot: dict[int, ReadPartition] = {}
        self._former: dict[int, ReadPartition] = {}  # of topics that were created again, by slot
        self.changes = 0  # how often a partition was added or removed

    def __getitem__(self, partition: Partition) -> ReadPartition:
        return self._by_partition[partition]

    def __iter__(self) -> Iterator[Partition]:
        return iter(self._by_partition)

    def __len__(self) -> int:
        return len(self._by_partition)

    def take(self, partition: Partition, start: int, topic_id: str = "") -> ReadPartition:
        """Add a partition that is read from `start` on."""
        slot = crc32(f"{partition}{topic_id}".encode()) % _SLOTS
        while slot == _RESERVED or slot in self._by_slot or slot in self._former:
            slot = (slot + 1) % _SLOTS
        place = ReadPartition(partition, slot, Progress(start), topic_id)
        self._by_partition[partition] = self._by_slot[slot] = place
        self.changes += 1
        return place

    def drop(self, partition: Partition) -> ReadPartition:
        """Remove a partition that this task no longer reads."""
        place = self._by_partition.pop(partition)
        del self._by_slot[place.slot]
        self.changes += 1
        return place

    def replace(self, partition: Partition, start: int, topic_id: str) -> ReadPartition:
        """Begin anew in a partition whose topic was created again. Messages of the former topic
        keep their names as long as it is one of the last that were replaced."""
        former = self.drop(partition)
        self._former[former.slot] = former
        while len(self._former) > _FORMER_MAX:
            del self._former[next(iter(self._former))]
        return self.take(partition, start, topic_id)

    def former(self, number: int) -> ReadPartition | None:
        """The partition of a former topic that a message id belongs to, or None."""
        return self._former.get(number >> OFFSET_BITS)

    def acked(self, numbers: I64) -> None:
        """Mark messages as settled; ids of partitions that are not read here are ignored."""
        for place, offsets in self.each(numbers):
            place.progress.ack(offsets)

    def each(self, numbers: I64) -> Iterator[tuple[ReadPartition, I64]]:
        """The offsets of these messages by partition, for partitions that are read here."""
        if not len(numbers):
            return
        slots = numbers >> OFFSET_BITS
        if len(self._by_slot) <= _FEW:  # with four slots, a quarter of the time of a sort
            parts = [(slot, numbers[slots == slot]) for slot in self._by_slot]
        else:
            order = np.sort(numbers)
            slots_present, begins = np.unique(order >> OFFSET_BITS, return_index=True)
            parts = list(zip(slots_present.tolist(), np.split(order, begins[1:]), strict=True))
        for slot, part in parts:
            if len(part) and (place := self._by_slot.get(slot)) is not None:
                yield place, part & _OFFSETS

    def name(self, number: int) -> tuple[Any, ...] | None:
        """The topic, partition and offset of a message id, and the id of the topic if it is known;
        None if the partition is not read here."""
        slot = number >> OFFSET_BITS
        place = self._by_slot.get(slot) or self._former.get(slot)
        if place is None:
            return None
        name = (*place.partition, number & _OFFSETS)
        return (*name, place.topic_id) if place.topic_id else name


# ---- committer -----------------------------------------------------------------------------------
# Commits offsets in the background, one write at a time, so that no write blocks the spout.
# KafkaSpout.poll decides when, log_progress.py up to which offset; the stores write.


class Committer:
    """Writes to `offsets` and keeps the last written value of each partition in `written`.

    `stale` counts commits that were refused because the partitions had been reassigned; `failed`
    counts commits that failed otherwise. A thread runs the write where a store has no `write_soon`.
    `interceptor`: `report` calls its `on_commit` for each write that has succeeded.
    """

    def __init__(self, offsets: Offsets, interceptor: Interceptor | None = None) -> None:
        self.written: dict[Partition, Committed] = {}
        self.commits = self.stale = self.failed = 0
        self._offsets = offsets
        self._thread = ThreadPoolExecutor(1, "commits")
        self._submitted: Future[None] | None = None  # the last write submitted to the thread
        self._underway: tuple[Future[None], Wanted] | None = None
        self._interceptor = interceptor
        self._answered: deque[tuple[Future[None], Wanted]] = deque()  # not reported yet

    def begin(self, wanted: Wanted) -> None:
        """Start a write of the changed offsets; do nothing while a write is in progress."""
        if self._underway is not None and self._underway[0].done():
            underway, self._underway = self._underway, None
            self._record_outcome(*underway)
        new = self._new(wanted)
        if self._underway is None and new:
            self._underway = self._without_thread(new) or self._in_thread(new), new

    def send(self, wanted: Wanted, within_s: float) -> bool:
        """Write the changed offsets also if an older write is in progress: the last ones before
        partitions are given away, or the spout closes. Returns False if some are not stored.

        Kafka's client completes a commit before either, so this does not wait for its answer, which
        may not come during an outage. For other stores it waits.
        """
        new = self._new(wanted)
        write = self._without_thread(new) if new else None
        if write is None:
            return self.finish(wanted, within_s)
        self._underway = write, new
        return True

    def finish(self, wanted: Wanted, within_s: float) -> bool:
        """Write the changed offsets and wait. Returns whether all of `wanted` is stored."""
        if self._underway is not None:
            write, new = self._underway
            if write is self._submitted:  # the single thread runs it first, and it may hang
                wait([write], within_s)
                if not write.done():
                    return False
            self._underway = None  # an unfinished write carries older offsets: ignore its result
            if write.done():
                self._record_outcome(write, new)
        if new := self._new(wanted):
            write = self._in_thread(new)
            wait([write], within_s)
            if write.done():
                self._record_outcome(write, new)
        return not self._new(wanted)

    def forget(self, partition: Partition) -> None:
        """Drop the stored value: another reader may commit this partition from now on."""
        self.written.pop(partition, None)
        if self._underway is not None:  # a thread may read what it writes
            write, new = self._underway
            self._underway = write, {other: new[other] for other in new if other != partition}

    def report(self) -> None:
        """Tell the interceptor what has been stored since the last call."""
        while self._interceptor is not None and self._answered:
            write, offsets = self._answered.popleft()
            if not write.cancelled() and write.exception() is None:
                intercept(self._interceptor.on_commit, dict(offsets))  # of its own

    def close(self) -> None:
        """Stop the thread without waiting; a hanging write ends when its client is closed."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _new(self, wanted: Wanted) -> dict[Partition, Committed]:
        return {p: committed for p, committed in wanted.items() if self.written.get(p) != committed}

    def _without_thread(self, wanted: Wanted) -> Future[None] | None:
        write = self._offsets.write_soon(wanted)
        if write is not None:
            self._note_answer(write, wanted)
        return write

    def _in_thread(self, wanted: Wanted) -> Future[None]:
        self._submitted = self._thread.submit(self._offsets.write, wanted)
        self._note_answer(self._submitted, wanted)
        return self._submitted

    def _note_answer(self, write: Future[None], wanted: Wanted) -> None:
        """Keep the write for `report` when it is done, in whatever thread."""
        if self._interceptor is not None:
            write.add_done_callback(lambda done: self._answered.append((done, wanted)))

    def _record_outcome(self, done: Future[None], wanted: Wanted) -> None:
        try:
            done.result()
        except StaleGeneration as error:
            self.stale += 1
            _LOG.warning("a commit is refused: %s", error)
        except SunshowerError as error:
            self.failed += 1
            _LOG.warning("a commit has failed, and is tried again: %s", error)
        else:
            self.commits += 1
            self.written.update(wanted)


def intercept(call: Callable[[Any], None], seen: Any) -> None:
    """Call a method of an Interceptor. An exception is logged."""
    try:
        call(seen)
    except user_errors():
        name = getattr(call, "__qualname__", call)
        _LOG.exception("%s has failed, and reading goes on", name)


# ---- partition reader ----------------------------------------------------------------------------


class Skipped(NamedTuple):
    """Offsets [first, end) of a partition that were not read."""

    partition: Partition
    first: int
    end: int
    why: str


class PartitionReader(RebalanceListener):
    """Owns the partitions of a sharing, and calls the listener of the options. The spout reports
    `gone` (ranges of message ids) and `skipped`."""

    def __init__(
        self,
        consumer: Consumer,
        offsets: Offsets,
        options: KafkaOptions,
        deployment: str,
        task: int,
        watch: TopicWatch,
    ) -> None:
        self.places = ReadPartitions()
        self.committer = Committer(offsets, options.interceptor)
        self.gone: list[tuple[int, int]] = []
        self.skipped: list[tuple[ReadPartition, Skipped]] = []
        self.ahead: list[Message] = []  # that may be emitted
        self.has_changed = False  # one of its topics was deleted, or created again
        self.starts = StartFinder(consumer, options.first, deployment, options.behind_max)
        self._consumer = consumer
        self.loop = ConsumerLoop(consumer)  # in `ahead` it has messages that are not asked for yet
        self._offsets = offsets
        self._options = options
        self._deployment = deployment
        self._writer = {"topologyId": deployment, "taskId": task}
        self._watch = watch
        self._exact = offsets.by_message or options.guarantee is Guarantee.AT_MOST_ONCE
        self._asked: list[Message] = []  # held until there is an answer
        self._acks = options.guarantee is Guarantee.AT_LEAST_ONCE
        self.all_new = False  # partitions assigned from now on were created after the first look
        self._full: set[Partition] = set()  # paused: too many uncommitted offsets
        self._all_paused = False  # all are paused
        # Partitions whose position must be looked up; the value is `all_new` at that time.
        self._waiting: dict[Partition, bool] = {}
        self._find_s, self._look_up_again_s = 0.0, _FIND_S
        self._first_ends: dict[Partition, int] = {}  # when `has_read_first` was first asked

    @property
    def has_unbegun(self) -> bool:
        """Whether it was assigned partitions of which it does not know yet where to begin."""
        return bool(self._waiting.keys() - self.places.keys())

    # ---- partitions -------------------------------------------------------------------------

    def assigned(self, partitions: Collection[Partition]) -> None:
        self._options.listener.assigned(partitions)
        ids = self._topic_ids(partitions)  # before the offsets are read: then no id is too new
        stored = self._stored(partitions)
        starts: dict[Partition, Start] = {}
        late: KafkaUnreachable | None = None
        for partition in sorted(partitions):
            try:
                if late is None or self._known(stored.get(partition)):
                    committed, id = stored.get(partition), ids.get(partition.topic, "")
                    starts[partition] = self._begin(partition, committed, self.all_new, id)
            except KafkaUnreachable as error:
                late = error
        if late is not None and not starts and not self.places:
            raise late
        self._take(starts, stored, ids)
        if late is not None:
            self._waiting |= dict.fromkeys(sorted({*partitions} - starts.keys()), self.all_new)
            _LOG.warning("%s begin later: %s", ", ".join(map(str, self._waiting)), late)

    def _take(
        self,
        starts: Mapping[Partition, Start],
        stored: Mapping[Partition, Committed],
        ids: Mapping[str, str],
    ) -> None:
        """Read these partitions from their start positions."""
        self.starts.report_ignored()
        for partition, start in starts.items():
            committed = stored.get(partition)
            id = ids.get(partition.topic, "") or (committed.topic_id if committed else "")
            place = self.places.take(partition, start.first, id)
            if committed is not None and not id:
                place.leader_epoch = committed.fields.get("leaderEpoch", -1)
            self._set_metadata(place)
            if committed is not None:
                self.committer.written[partition] = committed
            if start.skipped:
                self._skip(
                    place, start.offset, "too far behind, removed, or of a topic that was recreated"
                )
        try:
            self._read({partition: start.offset for partition, start in starts.items()})
        except KafkaError:
            for partition in starts:
                self._drop(partition)
            raise
        self._keep_starts(starts.keys(), stored)

    def _keep_starts(
        self, partitions: Collection[Partition], stored: Mapping[Partition, Committed]
    ) -> None:
        """Commit start positions at the end at once: a restart would find a later end."""
        if not self._options.first.from_end:
            return
        new = [
            partition
            for partition in partitions
            if (committed := stored.get(partition)) is None
            or committed.offset != self.places[partition].progress.contiguous
            or writer(committed) != self._deployment
            or committed.topic_id != self.places[partition].topic_id
        ]
        if new and not self.send_commit(new):
            _LOG.warning(
                "where %s begin could not be committed: if this task dies before the next commit, "
                "what it has not settled by then is passed over",
                ", ".join(map(str, sorted(new))),
            )

    def _stored(self, partitions: Collection[Partition]) -> dict[Partition, Committed]:
        stored = self._offsets.read(partitions)
        if self._offsets.keeps_writer:
            return stored
        return {
            partition: Committed(
                committed.offset, json.dumps(self._writer | _topic(committed.fields))
            )
            for partition, committed in stored.items()
        }

    def _topic_ids(self, partitions: Collection[Partition]) -> Mapping[str, str]:
        """The present ids of topics; none if there is no answer: they are asked for again."""
        try:
            return self._watch.ask({partition.topic for partition in partitions})
        except KafkaError as error:
            _LOG.warning("the ids of topics are asked for again: %s", error)
            return {}

    def _set_metadata(self, place: ReadPartition) -> None:
        fields = {"topicId": place.topic_id, "leaderEpoch": place.leader_epoch}
        place.metadata = json.dumps(self._writer | _topic(fields))

    def revoked(self, partitions: Collection[Partition], *, lost: bool) -> None:
        """Commit what is settled of these, unless they are `lost`; stop reading them, and drop
        their open messages."""
        for partition in partitions:
            self._waiting.pop(partition, None)
        held = [partition for partition in partitions if partition in self.places]
        try:
            if not lost:
                self.send_commit(partitions)
            if held:  # otherwise their beginning has failed
                self.loop.leave(held)
        finally:
            for partition in held:
                self.gone.append(self._drop(partition).numbers)
            self._options.listener.revoked(partitions, lost=lost)

    def has_read_first(self) -> bool:
        """Whether each partition is read to the end that it had when this was first asked, as a
        position: markers of transactions and compacted messages take one. Raises KafkaError."""
        for partition in self.places:
            if partition not in self._first_ends:
                self._first_ends[partition] = self._consumer.retained(partition).latest
        return not self._waiting and all(
            place.progress.emitted >= self._first_ends[partition]
            for partition, place in self.places.items()
        )

    def _drop(self, partition: Partition) -> ReadPartition:
        place = self.places.drop(partition)
        self._first_ends.pop(partition, None)
        self.committer.forget(partition)
        self._full.discard(partition)
        self._waiting.pop(partition, None)
        self._forget_skipped(place)
        self._drop_ahead(partition)
        return place

    def _known(self, stored: Committed | None) -> bool:
        """Whether the stored offset alone determines where to read, without a broker request."""
        if stored is None or self._options.behind_max is not None:
            return False
        return self.starts.continues(stored)

    def _begin(
        self, partition: Partition, stored: Committed | None, new: bool, topic_id: str
    ) -> Start:
        """Where to read. `new`: without a stored offset, read the partition from its start.
        A stored offset of another topic of that name does not count."""
        if stored is not None and not may_be_same_topic(stored.topic_id, topic_id):
            return self._begin_anew(partition, stored.offset, new)
        if stored is not None and self._known(stored):
            return Start(stored.offset)
        retained = self._consumer.retained(partition)
        start = self.starts.find(partition, stored, retained, new=new)
        if stored is not None and not self.starts.continues(stored):
            self.starts.note_ignored(partition, stored.offset, start.first, retained)
        return start

    def _begin_anew(self, partition: Partition, former: int, new: bool = False) -> Start:
        retained = self._consumer.retained(partition)
        return self.starts.find_anew(partition, former, retained, new=new)

    # ---- topics that are created again ----------------------------------------------------------

    def look_at_topics(self, *, now: bool = False) -> None:
        """Compare the ids of topics with those of the positions: every second, `now`, and for
        messages that are held."""
        ids = None
        try:
            ids = self._watch.answer()
        except KafkaError:
            self.loop.ahead, self._asked = self._asked + self.loop.ahead, []
            if self._exact:
                raise
        if ids is not None:
            self._compare(ids)
            asked, self._asked = self._asked, []
            for message in asked:
                (self.ahead if message.topic() in ids else self._asked).append(message)
        is_wanted = now or bool(self.loop.ahead)
        if self.places and (self._watch.is_due or (self._watch.is_idle and is_wanted)):
            self._asked, self.loop.ahead = self._asked + self.loop.ahead, []
            self._watch.begin({partition.topic for partition in self.places})

    def _compare(self, ids: Mapping[str, str]) -> None:
        for place in [*self.places.values()]:
            id = ids.get(place.partition.topic)
            if not id or id == place.topic_id:
                continue
            if place.topic_id:
                self._replace(place)
            else:  # positions without an id are those of the topic that there is
                place.topic_id = id
                self._set_metadata(place)
        self.has_changed |= any(partition.topic not in ids for partition in self.places)

    def _replace(self, place: ReadPartition) -> None:
        """The topic was created again: read nothing of it until it is known where to begin."""
        place.is_former = self.has_changed = True
        self._drop_ahead(place.partition)
        self._waiting[place.partition] = False

    # ---- messages -----------------------------------------------------------------------------

    def receive(self, limit: int) -> bool:
        """Take up to `limit` messages from the client. It may revoke partitions meanwhile. Returns
        whether anything arrived."""
        has_arrived = self.loop.fetch(limit)
        if self._exact:
            for _ in range(2):  # begin a request; perhaps there is an answer already
                self.look_at_topics()
        else:
            self.ahead += self.loop.ahead
            self.loop.ahead = []
        return has_arrived

    @property
    def held(self) -> int:
        """How many messages wait for an answer."""
        return len(self.loop.ahead) + len(self._asked)

    def sort(self, taken: list[Message]) -> tuple[MessageBatch, I64]:
        """Messages of this task's partitions, with their ids."""
        topics = {partition.topic for partition in self.places}
        topic = topics.pop() if len(topics) == 1 else None
        batch = MessageBatch.of(taken, topic)
        numbers = batch.offsets()
        keep = self._number(batch, numbers)
        if not keep.all():
            numbers = numbers[keep]
            batch = MessageBatch.of(list(compress(batch.messages, keep)), topic)
        self.apply_events()
        return batch, numbers

    def apply_events(self) -> None:
        """Note the ends of partitions, and which next offsets are out of range, where no message
        from before is left."""
        loop = self.loop
        if not loop.ends and not loop.lost:
            return
        waiting = {
            partition_of_message(message) for message in chain(self.ahead, self._asked, loop.ahead)
        }
        for partition in loop.ends.keys() - waiting:
            end = loop.ends.pop(partition)
            if partition in self.places:
                self.places[partition].progress.reached(end)
        for partition in loop.lost - waiting:
            loop.lost.remove(partition)
            if partition in self.places:
                self._waiting[partition] = False

    def put_back(self, messages: list[Message], before: Mapping[Partition, int]) -> None:
        """Undo the emission of messages: `before` has each partition's previous `emitted`."""
        for partition, offset in before.items():
            if (place := self.places.get(partition)) is not None:
                # All below was fetched: it counts as reached once these are emitted again.
                end = max(place.progress.emitted, self.loop.ends.get(partition, 0))
                self.loop.ends[partition] = end
                place.progress.back(offset)
        self.ahead = messages + self.ahead

    def _number(self, batch: MessageBatch, offsets: I64) -> NDArray[np.bool_]:
        """Turn offsets into ids, in place. Returns which messages are assigned here and new."""
        keep = np.ones(len(offsets), np.bool_)
        for run in batch.runs:
            here = slice(run.first, run.end)
            place = self.places.get(run.partition)
            if place is None or place.is_former or not self._follows(place, batch, run):
                keep[here] = False
                continue
            new = offsets[here]
            if new[0] < place.progress.emitted:
                keep[here] = new >= place.progress.emitted
                new = new[new >= place.progress.emitted]
            place.progress.emit(new)
            if not self._acks:
                place.progress.ack(new)
            offsets[here] |= place.numbers[0]
        return keep

    def _follows(self, place: ReadPartition, batch: MessageBatch, run: OffsetRun) -> bool:
        """Whether messages can be of the topic of the messages before. Without ids: the epochs of
        its leaders only grow."""
        if place.topic_id:
            return True
        first = batch.messages[run.first].leader_epoch()
        last = batch.messages[run.end - 1].leader_epoch()
        if first is None or last is None:
            return True
        if not place.leader_epoch <= first <= last:
            self._replace(place)
            return False
        if last != place.leader_epoch:
            place.leader_epoch = last
            self._set_metadata(place)
        return True

    def look_up_positions(self, now: Callable[[], float]) -> None:
        """Look up positions: of partitions whose next offset is out of range, and of new ones.

        A lookup without an answer is retried after a growing delay, after those of the other
        partitions: a partition without a leader does not block the others.
        """
        if not self._waiting or now() < self._find_s:
            return
        for partition, new in [*self._waiting.items()]:
            try:
                self._find_one(partition, new)
            except (KafkaUnreachable, UnknownTopic) as error:
                self.has_changed |= isinstance(error, UnknownTopic)
                _LOG.warning("where to go on in %s is asked again: %s", partition, error)
                self._waiting.pop(partition, None)
                self._waiting[partition] = new
                self._find_s = now() + self._look_up_again_s
                self._look_up_again_s = min(2 * self._look_up_again_s, _FIND_MAX_S)
                return
            self._waiting.pop(partition, None)
        self._look_up_again_s = _FIND_S

    def _find_one(self, partition: Partition, new: bool) -> None:
        ids = self._watch.ask({partition.topic})
        place = self.places.get(partition)
        if place is None:
            stored = self._stored([partition])
            start = self._begin(partition, stored.get(partition), new, ids.get(partition.topic, ""))
            self._take({partition: start}, stored, ids)
            return
        id = ids.get(partition.topic, "")
        if place.is_former or (id and place.topic_id and id != place.topic_id):
            self._read_anew(place, id)
        else:
            self._find(place)

    def _read_anew(self, place: ReadPartition, topic_id: str) -> None:
        """Read a topic that was created again. Open messages of the former topic remain open."""
        partition, former = place.partition, place.progress.emitted
        self._replace(place)
        stored = self._stored([partition]).get(partition)  # perhaps by another reader
        if stored is not None and topic_id and stored.topic_id == topic_id:
            start = self._begin(partition, stored, False, topic_id)
        else:
            start = self._begin_anew(partition, former)
        self._forget_skipped(place)
        self._first_ends.pop(partition, None)
        place = self.places.replace(partition, start.first, topic_id)
        self._set_metadata(place)
        if start.skipped:
            self._skip(place, start.offset, "they are of a topic that was created again")
        self._go_on(place, start.offset)
        self._keep_starts([partition], {})

    def _find(self, place: ReadPartition) -> None:
        """The next offset is out of range: it was deleted, or the topic lost its end."""
        retained = self._consumer.retained(place.partition)
        wanted = place.progress.emitted
        check_start(self._options.first, place.partition, wanted, retained)
        start = within(wanted, retained, self._options.first)
        self._drop_ahead(place.partition)
        if wanted < retained.earliest:
            self._skip(place, retained.earliest, "they were removed before they were read")
        elif wanted > retained.latest:
            _LOG.warning(
                "%s ends at %d, and %d was to be read next: it has been truncated or recreated, "
                "and is read from %d",
                *(place.partition, retained.latest, wanted, start.offset),
            )
            self._forget_skipped(place)
            self._first_ends.pop(place.partition, None)
            place = self.places.replace(place.partition, start.first, place.topic_id)
            self._set_metadata(place)
            self.starts.recreated += 1
            self._skip(
                place, start.offset, "the topic was cut or recreated, and is read from its end"
            )
        self._go_on(place, start.offset)

    def _go_on(self, place: ReadPartition, offset: int) -> None:
        """Reassign at `offset`: the client refuses a seek after an out-of-range error."""
        if not self._consumer.eager:
            self.loop.leave([place.partition])
        self._read({place.partition: offset})

    def _read(self, targets: Mapping[Partition, int]) -> None:
        if self._consumer.eager:
            targets = {**self.emitted(), **targets}
            self.loop.discard([*self.loop.at])
            self.ahead, self._asked = [], []
        self.loop.read(targets)
        self._full -= targets.keys()

    def _skip(self, place: ReadPartition, end: int, why: str) -> None:
        """Continue at `end`. The range before it is one open offset until it is reported."""
        if end <= place.progress.emitted:
            return
        skipped = Skipped(place.partition, place.progress.emitted, end, why)
        _LOG.warning("%s: offsets %d to %d are skipped: %s", *skipped[:2], end - 1, why)
        place.progress.emit(np.array([skipped.first], np.int64))
        place.progress.reached(end)
        self.skipped.append((place, skipped))

    def _forget_skipped(self, place: ReadPartition) -> None:
        """Report no range that was skipped there before."""
        self.skipped = [entry for entry in self.skipped if entry[0] is not place]

    def emitted(self) -> dict[Partition, int]:
        """The next offset to read of each partition."""
        return {partition: place.progress.emitted for partition, place in self.places.items()}

    # ---- commits ------------------------------------------------------------------------------

    def settled(
        self, partitions: Collection[Partition] | None = None
    ) -> dict[Partition, Committed]:
        """The offsets that may be committed, of these partitions or of all."""
        wanted = self.places if partitions is None else partitions
        return {
            partition: Committed(place.progress.contiguous, place.metadata)
            for partition in wanted
            if (place := self.places.get(partition)) is not None and not place.is_former
        }

    def commit_now(self) -> bool:
        """Commit settled offsets and wait. Returns whether they are stored."""
        return self.committer.finish(self.settled(), _FINISH_S)

    def send_commit(self, partitions: Collection[Partition] | None = None) -> bool:
        """Commit settled offsets without waiting for Kafka's answer: see `Committer.send`."""
        return self.committer.send(self.settled(partitions), _FINISH_S)

    def pause_all(self) -> None:
        """Pause all partitions until `pause_full`."""
        self._consumer.pause(self.places)
        self._all_paused = True
        for place in self.places.values():
            place.paused = True

    def pause_full(self) -> None:
        """Pause partitions with too many uncommitted offsets; resume the others."""
        limit = self._options.uncommitted_max
        full = {p for p, place in self.places.items() if place.progress.unsettled >= limit}
        if full == self._full and not self._all_paused:
            return
        if new := full - self._full:
            self._consumer.pause(new)
        if over := (self.places.keys() if self._all_paused else self._full) - full:
            self._consumer.resume(over)
        self._full, self._all_paused = full, False
        for partition, place in self.places.items():
            place.paused = partition in full

    def _drop_ahead(self, partition: Partition) -> None:
        """Discard buffered messages of a partition; its next reader fetches them again."""
        self.loop.discard([partition])
        self.ahead = without(self.ahead, [partition])
        self._asked = without(self._asked, [partition])


def _topic(fields: Mapping[str, Any]) -> dict[str, Any]:
    """What committed metadata say of the topic: its id, or, without one, the leader epoch."""
    id, epoch = fields.get("topicId"), fields.get("leaderEpoch", -1)
    return {"topicId": id} if id else {"leaderEpoch": epoch} if epoch >= 0 else {}


# ---- refetching ----------------------------------------------------------------------------------
# Reads failed messages again, for a spout that does not store records until their ack.
#
# A second client reads them: it does not move the spout's position, and fetches nothing while no
# message is wanted. It seeks to the first wanted offset of each partition, and reads on as long as
# the next wanted one is near. (20,000 messages, 1 % fail once: 0.3 s more than from memory, mostly
# for the start of the client; if all fail once, the same time as from memory.) Storm:
# org.apache.storm.kafka.spout.KafkaSpout (doSeekRetriableTopicPartitions), which seeks its only
# consumer back, and so reads all later messages again, too.

_LEAP = 1000  # offsets to read through; a seek is faster beyond that
_FETCH = {  # a small prefetch, refilled soon
    "queued.min.messages": 1000,
    "queued.max.messages.kbytes": 8192,
    "fetch.queue.backoff.ms": 10,
}
_COMPACTED = "it was compacted away"


class Gone(NamedTuple):
    """A message that is no longer in the topic."""

    partition: Partition
    offset: int
    why: str


class Refetcher:
    """`settings` are those of the spout's client."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._settings = {**settings, **_FETCH}

    @cached_property
    def _loop(self) -> ConsumerLoop:
        return ConsumerLoop(Consumer(self._settings))

    def find(self, wanted: Mapping[Partition, I64], limit: int) -> tuple[list[Message], list[Gone]]:
        """The wanted messages that have arrived, up to `limit`, and those that no longer exist.

        `wanted` has ascending offsets. This does not wait: call it again for the others.
        Raises KafkaError for permanent errors.
        """
        loop = self._loop
        loop.seek({partition: int(offsets[0]) for partition, offsets in wanted.items()}, _LEAP)
        loop.fetch(limit)
        try:
            loop.raise_refusal()
        except KafkaError:
            self.stop()  # the fetched messages are read again
            raise
        messages: list[Message] = []
        gone: list[Gone] = []
        batch = MessageBatch.of(loop.ahead)
        loop.ahead = []
        for run in batch.runs:
            if run.partition in loop.at:
                messages += self._wanted_of_run(run, batch.messages, wanted[run.partition], gone)
        for partition, end in loop.ends.items():
            passed = self._pass(partition, wanted[partition], end)
            gone += [Gone(partition, at, _COMPACTED) for at in passed.tolist()]
        loop.ends.clear()
        for partition in [*loop.lost]:
            gone += self._out_of_range(partition, wanted[partition])
        loop.leave([partition for partition, at in loop.at.items() if wanted[partition][-1] < at])
        return messages, gone

    def stop(self) -> None:
        """Stop reading: no message is wanted."""
        if "_loop" in vars(self):
            self._loop.seek({})

    def close(self) -> None:
        if "_loop" in vars(self):
            self._loop.consumer.close()

    def _wanted_of_run(
        self, run: OffsetRun, messages: Sequence[Message], wanted: I64, gone: list[Gone]
    ) -> list[Message]:
        """The wanted messages of a run; wanted offsets missing between its messages are gone."""
        came = np.asarray(run.offsets, np.int64)
        run_messages = messages[run.first : run.end]
        passed = self._pass(run.partition, wanted, int(came[-1]) + 1)
        missing = np.setdiff1d(passed, came, assume_unique=True)
        gone += [Gone(run.partition, at, _COMPACTED) for at in missing.tolist()]
        return [run_messages[index] for index in np.flatnonzero(np.isin(came, passed)).tolist()]

    def _pass(self, partition: Partition, wanted: I64, end: int) -> I64:
        """Advance to `end`. Returns the wanted offsets in between."""
        at = self._loop.at[partition]
        self._loop.at[partition] = max(at, end)
        return wanted[(wanted >= at) & (wanted < end)]

    def _out_of_range(self, partition: Partition, wanted: I64) -> Iterable[Gone]:
        """The position is out of range: report wanted offsets outside the retained range."""
        left = wanted[wanted >= self._loop.at[partition]]
        self._loop.leave([partition])  # after such an error the client does not read it any more
        try:
            first, end = self._loop.consumer.retained(partition)
        except KafkaUnreachable:
            return  # the next `find` gets the same error
        for at in left.tolist():
            if at < first:
                yield Gone(partition, at, "it was removed")
            elif at >= end:
                yield Gone(partition, at, f"the topic ends at {end}: it was cut, or recreated")
