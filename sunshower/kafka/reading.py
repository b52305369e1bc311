"""What one task reads: its partitions, where each begins, what is settled, and what was skipped."""

from __future__ import annotations

import logging
from collections.abc import Collection
from itertools import compress
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sunshower.errors import KafkaError
from sunshower.kafka.committing import Committer
from sunshower.kafka.consumer import Consumer
from sunshower.kafka.lots import Lot, told
from sunshower.kafka.metadata import as_ours
from sunshower.kafka.options import Guarantee, KafkaOptions
from sunshower.kafka.partitions import Committed, Offsets, Partition
from sunshower.kafka.places import Place, Places
from sunshower.kafka.progress import I64
from sunshower.kafka.starting import First, Since, begin, within
from sunshower.kafka.storm_start import Start, writer

if TYPE_CHECKING:
    from confluent_kafka import Message

_LOG = logging.getLogger("sunshower.kafka")
_FINISH_S = 5.0  # to wait for a commit when partitions change hands, or at the end


class Skipped(NamedTuple):
    """Offsets of a partition that were not read: from the first to the one before `end`."""

    partition: Partition
    first: int
    end: int
    why: str


class Reading:
    """See the port `Owner`. `gone` and `skipped` are what is to be told on."""

    def __init__(
        self,
        consumer: Consumer,
        offsets: Offsets,
        options: KafkaOptions,
        deployment: str,
        metadata: str,
    ) -> None:
        self.places = Places()
        self.committer = Committer(offsets, getattr(offsets, "write_soon", None))
        self.gone: list[tuple[int, int]] = []
        self.skipped: list[tuple[Place, Skipped]] = []
        self.ahead: list[Message] = []  # taken from the client, and not looked at
        self._consumer = consumer
        self._offsets = offsets
        self._options = options
        self._deployment = deployment
        self._metadata = metadata
        self._acks = options.guarantee is Guarantee.AT_LEAST_ONCE
        self.begun = False  # the partitions that were there at the beginning are assigned
        self._full: set[Partition] = set()  # paused: too much of them is uncommitted
        self._resting = False  # all are paused
        self._misplaced: set[Partition] = set()  # what is to be read next there is not there

    # ---- which ------------------------------------------------------------------------------

    def assigned(self, partitions: Collection[Partition]) -> None:
        stored = self._offsets.read(partitions)
        starts = {one: self._begin(one, stored.get(one)) for one in sorted(partitions)}
        for partition, start in starts.items():
            kept = stored.get(partition)
            first = start.skipped[0] if start.skipped else start.offset
            place = self.places.take(partition, first)
            if kept is not None:
                self.committer.kept[partition] = kept
            if start.skipped:
                self._skip(place, start.offset, "they are too far behind, or removed")
        try:
            self._consumer.assign({partition: start.offset for partition, start in starts.items()})
        except KafkaError:
            for partition in starts:
                self._drop(partition)
            raise

    def revoked(self, partitions: Collection[Partition], *, lost: bool) -> None:
        if not lost:
            self.commit_now(partitions)
        held = [partition for partition in partitions if partition in self.places]
        if held:  # otherwise their beginning has failed
            self._consumer.unassign(held)
        for partition in held:
            self.gone.append(self._drop(partition).numbers)

    def _drop(self, partition: Partition) -> Place:
        """Know nothing of it any more."""
        place = self.places.drop(partition)
        self.committer.forget(partition)
        self._full.discard(partition)
        self._misplaced.discard(partition)
        self.skipped = [one for one in self.skipped if one[0] is not place]
        self._drop_ahead(partition)
        return place

    def _begin(self, partition: Partition, stored: Committed | None) -> Start:
        """Where to read; brokers are asked only where what is stored does not say it."""
        where, behind_max = self._options.first, self._options.behind_max
        if self.begun and stored is None and not self._consumer.grouped:
            where = First.EARLIEST  # it was not there when this began: all of it is new
        by_anyone = where in (First.UNCOMMITTED_EARLIEST, First.UNCOMMITTED_LATEST)
        goes_on = stored is not None and (by_anyone or writer(stored) == self._deployment)
        if goes_on and stored is not None and behind_max is None:
            return Start(stored.offset)
        earliest, latest = self._consumer.bounds(partition)
        stamped = None
        if isinstance(where, Since):
            stamped = self._consumer.since(partition, where.timestamp_ms)
        return begin(
            where,
            stored,
            self._deployment,
            earliest,
            latest,
            stamped=stamped,
            behind_max=behind_max,
        )

    # ---- what comes ---------------------------------------------------------------------------

    def sort(self, messages: list[Message]) -> tuple[Lot, I64]:
        """Those that are records of ours, with their numbers; what else the client says is heard.

        Raises KafkaError for what does not go away by itself, before anything has been taken in.
        """
        events = told(messages)
        if events:
            self._check(events)
            messages = [message for message in messages if message.error() is None]
        topics = {partition.topic for partition in self.places}
        topic = topics.pop() if len(topics) == 1 else None
        lot = Lot.of(messages, topic)
        numbers = lot.offsets()
        keep = self._number(lot, numbers)
        if not keep.all():
            lot, numbers = Lot.of(list(compress(lot.messages, keep)), topic), numbers[keep]
        for message in events:
            self._hear(message)
        return lot, numbers

    def _number(self, lot: Lot, offsets: I64) -> NDArray[np.bool_]:
        """Make numbers of the offsets, in place. Returns which of them are ours, and new."""
        keep = np.ones(len(offsets), np.bool_)
        for run in lot.runs:
            here = slice(run.first, run.end)
            place = self.places.get(Partition(run.topic, run.partition))
            if place is None:
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

    def _check(self, events: list[Message]) -> None:
        """Raise what is an error of ours."""
        for message in events:
            error = message.error()
            assert error is not None
            if error.name() not in _EVENTS:
                where = f"topic {message.topic()!r}" if message.topic() else "the topics"
                raise as_ours(error, where, self._consumer.address)

    def _hear(self, message: Message) -> None:
        error, topic = message.error(), message.topic()
        place = self.places.get(Partition(topic or "", message.partition() or 0))
        if place is None or error is None:
            return
        if error.name() == "_PARTITION_EOF":
            place.progress.reached(message.offset() or 0)
        elif error.name() in _OUT_OF_RANGE:
            self._misplaced.add(place.partition)

    def find_again(self) -> None:
        """Where to go on in partitions that have nothing at the offset that was to be read next.

        Raises KafkaError where the brokers do not say it; then it is to be called again.
        """
        for partition in sorted(self._misplaced):
            place = self.places.get(partition)
            if place is not None:
                self._find(place)
            self._misplaced.discard(partition)

    def _find(self, place: Place) -> None:
        """What was to be read next has been removed, or the topic is another one by now."""
        earliest, latest = self._consumer.bounds(place.partition)
        wanted = place.progress.emitted
        start = within(wanted, earliest, latest, self._options.first)
        self._drop_ahead(place.partition)
        if wanted < earliest:
            self._skip(place, earliest, "they were removed before they were read")
        elif wanted > latest:
            _LOG.warning(
                "%s ends at %d, and %d was to be read next: it has been truncated or made anew, "
                "and is read from %d",
                *(place.partition, latest, wanted, start.offset),
            )
            self.places.restart(place, start.offset)
            self.gone.append(place.numbers)
        self._go_on(place, start.offset)

    def _go_on(self, place: Place, offset: int) -> None:
        """Read on there. A seek is refused by the client after such an error."""
        targets = {place.partition: offset}
        if self._consumer.eager:
            self.ahead = []
            others = {partition: one.progress.emitted for partition, one in self.places.items()}
            targets = others | targets
        else:
            self._consumer.unassign([place.partition])
        self._consumer.assign(targets)
        self._full -= targets.keys()

    def _skip(self, place: Place, end: int, why: str) -> None:
        """Go on at `end`. What lies before it is one open offset, until it has been told."""
        skipped = Skipped(place.partition, place.progress.emitted, end, why)
        _LOG.warning("%s: offsets %d to %d are skipped: %s", *skipped[:2], end - 1, why)
        place.progress.emit(np.array([skipped.first], np.int64))
        place.progress.reached(end)
        self.skipped.append((place, skipped))

    # ---- how far ------------------------------------------------------------------------------

    def settled(
        self, partitions: Collection[Partition] | None = None
    ) -> dict[Partition, Committed]:
        """What may be committed of these, or of all."""
        wanted = self.places if partitions is None else partitions
        return {
            partition: Committed(place.progress.contiguous, self._metadata)
            for partition in wanted
            if (place := self.places.get(partition)) is not None
        }

    def commit_now(self, partitions: Collection[Partition] | None = None) -> bool:
        """Commit what is settled, and wait for it. Returns whether it is kept."""
        return self.committer.finish(self.settled(partitions), _FINISH_S)

    def rest(self) -> None:
        """Fetch nothing, for a while."""
        self._consumer.pause(self.places)
        self._resting = True
        for place in self.places.values():
            place.paused = True

    def breathe(self) -> None:
        """Fetch what there is room for: not what has too much uncommitted."""
        most = self._options.uncommitted_max
        full = {p for p, place in self.places.items() if place.progress.unsettled >= most}
        if full == self._full and not self._resting:
            return
        if new := full - self._full:
            self._consumer.pause(new)
        if over := (self.places.keys() if self._resting else self._full) - full:
            self._consumer.resume(over)
        self._full, self._resting = full, False
        for partition, place in self.places.items():
            place.paused = partition in full

    def _drop_ahead(self, partition: Partition) -> None:
        """What was taken of it is read anew by whoever reads it next."""
        name = (partition.topic, partition.number)
        self.ahead = [m for m in self.ahead if (m.topic(), m.partition()) != name]


_OUT_OF_RANGE = {"_AUTO_OFFSET_RESET", "OFFSET_OUT_OF_RANGE"}
_EVENTS = _OUT_OF_RANGE | {
    *("_PARTITION_EOF", "_MAX_POLL_EXCEEDED", "_TRANSPORT", "_ALL_BROKERS_DOWN", "_TIMED_OUT"),
    *("LEADER_NOT_AVAILABLE", "NOT_LEADER_FOR_PARTITION", "COORDINATOR_NOT_AVAILABLE"),
    *("REQUEST_TIMED_OUT", "_RESOLVE", "COORDINATOR_LOAD_IN_PROGRESS", "NOT_COORDINATOR"),
}
