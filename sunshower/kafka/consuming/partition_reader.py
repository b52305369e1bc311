"""The partitions one task reads: start positions, progress, commits and skipped offsets.

Each position belongs to a topic with an id (topic_watch.py). If a topic is deleted and created
again, the reader begins anew in it, as if nothing had been committed. Until that is noticed,
messages of the new topic may have been read on from the old offset: with at-least-once they are
read again. Where a message must not be processed twice (`_exact`), messages are held until an
answer to a request, begun after they arrived, says that the topic is still the same.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Collection, Mapping
from itertools import compress
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sunshower.errors import BadOffset, KafkaError, KafkaUnreachable, UnknownTopic
from sunshower.kafka.consuming.committer import Committer
from sunshower.kafka.consuming.consumer import Consumer
from sunshower.kafka.consuming.cursor import Fetched, partition_of_message
from sunshower.kafka.consuming.message_ids import ReadPartition, ReadPartitions
from sunshower.kafka.consuming.partition_progress import I64
from sunshower.kafka.consuming.record_batch import MessageBatch, OffsetRun
from sunshower.kafka.consuming.start_position import (
    IgnoredPosition,
    Start,
    StartPosition,
    check_start,
    find_start,
    ignored_position,
    report_ignored,
    within,
    writer,
)
from sunshower.kafka.consuming.topic_watch import TopicWatch
from sunshower.kafka.options import Guarantee, KafkaOptions
from sunshower.kafka.partitions.ports import Committed, Offsets, Partition, RebalanceListener

if TYPE_CHECKING:
    from confluent_kafka import Message

_LOG = logging.getLogger("sunshower.kafka")
_FIND_S, _FIND_MAX_S = 2.0, 10.0  # delay before a lookup that failed is retried; doubles each time
_FINISH_S = 5.0  # the wait for a commit when partitions are revoked, or at the end


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
        self.committer = Committer(offsets)
        self.gone: list[tuple[int, int]] = []
        self.skipped: list[tuple[ReadPartition, Skipped]] = []
        self.ahead: list[Message] = []  # fetched from the client, not processed
        self.has_changed = False  # one of its topics was deleted, or created again
        self.recreated = 0  # partitions that were begun anew
        self._consumer = consumer
        self._offsets = offsets
        self._options = options
        self._deployment = deployment
        self._writer = {"topologyId": deployment, "taskId": task}
        self._watch = watch
        self._exact = offsets.by_message or options.guarantee is Guarantee.AT_MOST_ONCE
        self._fetched: list[Message] = []  # not asked for yet
        self._asked: list[Message] = []  # held until there is an answer
        self._has_warned = False  # that the brokers give no ids
        self._ignored: list[IgnoredPosition] = []  # not reported yet
        self._reported = set[Partition]()  # whose stored position was ignored
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
        """Read these, too."""
        self._options.listener.assigned(partitions)
        ids = self._topic_ids(partitions)  # before the offsets are read: then no id is too new
        stored = self._stored(partitions)
        starts: dict[Partition, Start] = {}
        late: KafkaUnreachable | None = None
        for partition in sorted(partitions):
            try:
                if late is None or self._known(stored.get(partition)):
                    kept, id = stored.get(partition), ids.get(partition.topic, "")
                    starts[partition] = self._begin(partition, kept, self.all_new, id)
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
        report_ignored(self._options.first, self._ignored)
        self._ignored.clear()
        for partition, start in starts.items():
            kept = stored.get(partition)
            id = ids.get(partition.topic, "") or (kept.topic_id if kept else "")
            place = self.places.take(partition, start.first, id)
            if kept is not None and not id:
                place.leader_epoch = kept.fields.get("leaderEpoch", -1)
            self._set_metadata(place)
            if kept is not None:
                self.committer.kept[partition] = kept
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
            one
            for one in partitions
            if (kept := stored.get(one)) is None
            or kept.offset != self.places[one].progress.contiguous
            or writer(kept) != self._deployment
            or kept.topic_id != self.places[one].topic_id
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
            one: Committed(kept.offset, json.dumps(self._writer | _topic(kept.fields)))
            for one, kept in stored.items()
        }

    def _topic_ids(self, partitions: Collection[Partition]) -> Mapping[str, str]:
        """The present ids of topics; none if there is no answer: they are asked for again."""
        try:
            return self._watch.ask({partition.topic for partition in partitions})
        except KafkaError as error:
            _LOG.warning("the ids of topics are asked for again: %s", error)
            return {}

    def _set_metadata(self, place: ReadPartition) -> None:
        found = {"topicId": place.topic_id, "leaderEpoch": place.leader_epoch}
        place.metadata = json.dumps(self._writer | _topic(found))

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
                self._consumer.unassign(held)
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
        """Remove all state of a partition."""
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
        return self._options.first.by_anyone or writer(stored) == self._deployment

    def _begin(
        self, partition: Partition, stored: Committed | None, new: bool, topic_id: str
    ) -> Start:
        """Where to read. `new`: without a stored offset, read the partition from its start.
        A stored offset of another topic of that name does not count."""
        where, behind_max = self._options.first, self._options.behind_max
        if stored is not None and stored.topic_id and topic_id not in ("", stored.topic_id):
            return self._begin_anew(partition, stored.offset, new)
        if new and stored is None:
            where = StartPosition.EARLIEST
        if stored is not None and self._known(stored):
            return Start(stored.offset)
        retained = self._consumer.retained(partition)
        stamped = self._consumer.since(partition, where)
        check_start(where, partition, stored and stored.offset, retained)
        start = find_start(
            where, stored, self._deployment, retained, stamped=stamped, behind_max=behind_max
        )
        if stored is not None and not where.by_anyone and writer(stored) != self._deployment:
            found = ignored_position(partition, stored.offset, start.first, retained)
            if found is not None and partition not in self._reported:
                self._ignored.append(found)
                self._reported.add(partition)
        return start

    def _begin_anew(self, partition: Partition, former: int, new: bool = False) -> Start:
        """Where to read a topic that was created again; `former`: where the former one was read."""
        where = self._options.first
        if where is StartPosition.NONE:
            raise BadOffset(
                f"{partition}: its topic was deleted and created again, the former one was read up "
                f"to offset {former}, and first=StartPosition.NONE begins nowhere else: commit an "
                "offset for the group while nothing reads, or say where to begin, such as "
                "first=StartPosition.UNCOMMITTED_EARLIEST"
            )
        start = self._begin(partition, None, new, "")
        if start.skipped is None and where.from_end and not new:
            first = self._consumer.retained(partition).earliest
            start = Start(start.offset, (first, start.offset)) if first < start.offset else start
        self.recreated += 1
        _LOG.warning(
            "%s: its topic was deleted and created again; the former one was read up to offset %d, "
            "the new one is read from %d (first=%s)",
            *(partition, former, start.offset, where),
        )
        return start

    # ---- topics that are created again ----------------------------------------------------------

    def look_at_topics(self, *, now: bool = False) -> None:
        """Compare the ids of topics with those of the positions: every second, `now`, and for
        messages that are held."""
        ids = None
        try:
            ids = self._watch.answer()
        except KafkaError:
            self._fetched, self._asked = self._asked + self._fetched, []
            if self._exact:
                raise
        if ids is not None:
            self._compare(ids)
            asked, self._asked = self._asked, []
            for message in asked:
                is_known = message.error() is not None or message.topic() in ids
                (self.ahead if is_known else self._asked).append(message)
        if self.places and (self._watch.is_due or (self._watch.is_idle and (now or self._fetched))):
            self._asked, self._fetched = self._asked + self._fetched, []
            self._watch.begin({partition.topic for partition in self.places})

    def _compare(self, ids: Mapping[str, str]) -> None:
        for place in [*self.places.values()]:
            id = ids.get(place.partition.topic)
            if id == "" and not self._has_warned:
                self._has_warned = True
                _LOG.warning(
                    "the brokers give no ids of topics (Kafka does from 2.8 on): a topic that is "
                    "deleted and created again, such as %r, is noticed only by its leader epochs, "
                    "and if it ends before the next offset",
                    place.partition.topic,
                )
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

    def receive(self, limit: int) -> None:
        """Take up to `limit` messages from the client. It may revoke partitions meanwhile."""
        taken = self._consumer.consume(limit, 0.0)
        if self._exact:
            self._fetched += taken
            for _ in range(2):  # begin a request; perhaps there is an answer already
                self.look_at_topics()
        else:
            self.ahead += taken

    @property
    def held(self) -> int:
        """How many messages wait for an answer."""
        return len(self._fetched) + len(self._asked)

    def sort(self, taken: list[Message]) -> tuple[MessageBatch, I64]:
        """Messages of this task's partitions, with their ids; handles the client's events, too.

        Raises KafkaError for permanent errors; all other messages go back to `ahead`.
        """
        fetched = Fetched.of(taken)
        if fetched.refusal is not None:
            self.ahead = [one for one in taken if one is not fetched.refusal] + self.ahead
            raise fetched.error(self._consumer.address)
        topics = {partition.topic for partition in self.places}
        topic = topics.pop() if len(topics) == 1 else None
        batch = MessageBatch.of(fetched.messages, topic)
        numbers = batch.offsets()
        keep = self._number(batch, numbers)
        if not keep.all():
            numbers = numbers[keep]
            batch = MessageBatch.of(list(compress(batch.messages, keep)), topic)
        for partition, end in fetched.ends.items():
            if partition in self.places:
                self.places[partition].progress.reached(end)
        self._waiting |= {one: False for one in fetched.lost if one in self.places}
        return batch, numbers

    def put_back(self, messages: list[Message], before: Mapping[Partition, int]) -> None:
        """Undo the emission of messages: `before` has each partition's previous `emitted`."""
        for partition, offset in before.items():
            if (place := self.places.get(partition)) is not None:
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
            own = offsets[here]
            if own[0] < place.progress.emitted:
                keep[here] = own >= place.progress.emitted
                own = own[own >= place.progress.emitted]
            place.progress.emit(own)
            if not self._acks:
                place.progress.ack(own)
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
            self.recreated += 1
            self._skip(
                place, start.offset, "the topic was cut or recreated, and is read from its end"
            )
        self._go_on(place, start.offset)

    def _go_on(self, place: ReadPartition, offset: int) -> None:
        """Reassign at `offset`: the client refuses a seek after an out-of-range error."""
        if not self._consumer.eager:
            self._consumer.unassign([place.partition])
        self._read({place.partition: offset})

    def _read(self, targets: Mapping[Partition, int]) -> None:
        """Add these to the assignment."""
        if self._consumer.eager:
            self.ahead, self._fetched, self._asked = [], [], []
            targets = {**self.emitted(), **targets}
        self._consumer.assign(targets)
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
        self.skipped = [one for one in self.skipped if one[0] is not place]

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
        most = self._options.uncommitted_max
        full = {p for p, place in self.places.items() if place.progress.unsettled >= most}
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

        def others(messages: list[Message]) -> list[Message]:
            return [m for m in messages if partition_of_message(m) != partition]

        self.ahead = others(self.ahead)
        self._fetched, self._asked = others(self._fetched), others(self._asked)


def _topic(fields: Mapping[str, Any]) -> dict[str, Any]:
    """What committed metadata say of the topic: its id, or, without one, the leader epoch."""
    id, epoch = fields.get("topicId"), fields.get("leaderEpoch", -1)
    return {"topicId": id} if id else {"leaderEpoch": epoch} if epoch >= 0 else {}
