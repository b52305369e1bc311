"""Sends the watermarks of one spout task: see topologies/operators/windows/watermarks.py.

At most one is on its way. Its root is in the task's pending table, with a message number that no
record has.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any, Protocol

import numpy as np

from sunshower.clock import SystemClock
from sunshower.config import Config
from sunshower.errors import TopologyFailed, user_errors
from sunshower.failures import Failure
from sunshower.records import Schema, is_table
from sunshower.runtime.events.health import WaitKind
from sunshower.runtime.events.metrics import EventTime
from sunshower.runtime.plan import Task
from sunshower.runtime.tasks.spouts.retry_queue import LETTERS_END, RetryQueue
from sunshower.runtime.tasks.spouts.source import SpoutSource
from sunshower.runtime.tasks.supervision import Supervision
from sunshower.runtime.tracking.batch import Anchors
from sunshower.runtime.tracking.ids import I64, U64, slots_of
from sunshower.runtime.tracking.pending import Deadlines, Pending, Released
from sunshower.runtime.tracking.reports import Reports
from sunshower.runtime.transport.output_streams import OutputStreams
from sunshower.texts import describe, describe_error
from sunshower.topologies.graph import Component
from sunshower.topologies.logs import LogSpout
from sunshower.topologies.operators.windows.event_times import (
    ClockLimit,
    Time,
    TimeField,
    TimeReader,
    as_float,
    highest,
    is_before,
    lowest,
    plus,
    times_or_inf,
    values_or_none,
)
from sunshower.topologies.operators.windows.watermarks import (
    HOLDS_S,
    WATERMARKS,
    PartitionTimes,
    Watermark,
    all_ahead,
    passed_over,
)

_LOG = logging.getLogger("sunshower")

WATERMARK = 1 << 62  # the message number of a watermark
_EVERY_S = 0.2
_EVERY_DONE_S = 1.0  # for windows that have lost what they knew
_AGAIN_S, _AGAIN_MAX_S = 0.1, 5.0
_SCAN_S = 1e-5  # the time between two looks at the retry queue, for each message in it


class WatermarkHost(Protocol):
    """The spout task, with what sends watermarks."""

    task: Task
    deadlines: Deadlines
    output_streams: OutputStreams
    source: SpoutSource
    supervision: Supervision
    is_open: bool
    active: bool

    @property
    def is_held(self) -> bool: ...


@dataclass(slots=True)
class MessageTimes:
    """The event times of messages that are emitted together. A message may have several records."""

    lowest: list[Time]  # of each message; inf: it has no event time
    # message → how many of its records are too far ahead of the clock
    ahead: dict[int, int] = field(default_factory=dict)
    are_ahead: set[int] = field(default_factory=set)  # the messages of which all are

    def add(self, messages: Sequence[int], records: MessageTimes) -> None:
        """Add the times of records. `messages`: the message of each."""
        for index, (message, lowest_time) in enumerate(zip(messages, records.lowest, strict=True)):
            is_ahead = index in records.ahead
            if is_ahead:
                self.ahead[message] = self.ahead.get(message, 0) + 1
            if is_before(lowest_time, self.lowest[message]):
                self.lowest[message] = lowest_time
                if is_ahead:
                    self.are_ahead.add(message)
                else:
                    self.are_ahead.discard(message)


class WatermarkSender:
    """Notes the event times of the records that a spout task emits, and sends watermarks, once
    `watch` was called."""

    def __init__(
        self,
        owner: WatermarkHost,
        pending: Pending,
        reports: Reports,
        retries: RetryQueue,
        config: Config,
    ) -> None:
        self.on = False
        self.next_s = inf  # when to send the next one
        self.stops = False  # the source is not read on, though it has not ended
        self.lags = False  # whether the rows of windows are read so slowly that the spout must wait
        self.queued: dict[int, Time] = {}  # message in the retry queue → its event time
        self.partitions_of: Callable[[I64], I64] = np.zeros_like  # message numbers
        self.partitions_read: Callable[[], Collection[int] | None] = lambda: (0,)
        self.partitions_at_end: Callable[[], Mapping[int, float] | None] = lambda: None
        self.partition_name: Callable[[int], str] = str
        self.method: Callable[[Any], Any] | None = None  # instead of fields: `Spout.event_time`
        self._own: str | Callable[[Any], Any] | None = None  # instead of both: as declared
        self._owner, self._pending, self._reports = owner, pending, reports
        self._retries, self._timeout_s = retries, config.message_timeout_s
        self.wall: Callable[[], float] = SystemClock().wall
        self.ahead = 0  # how many records were too far ahead of the clock
        self._is_warned = False  # of a record for which no event time was found
        self.queued_ahead: set[int] = set()  # messages with such times, pending or queued
        self._fields: Mapping[str, TimeField] = {}
        self._readers: dict[str, tuple[TimeReader, ClockLimit]] = {}  # of streams
        self._times = np.full(0, inf, object)  # by slot of the pending table
        self._queued_lowest: Time = inf
        self._scan_s = 0.0
        self._partitions = PartitionTimes()
        self._is_known = False  # which partitions the task reads
        self._begun_s: float | None = None  # when it first asked which they are
        self._look_s = 0.0  # when it asked last
        self._mark: Watermark | None = None  # the last one sent
        self._complete = True  # its tree
        self._sent_s = 0.0
        self._attempt = self._failures = 0
        self._failure: Failure | None = None
        self._silent_s: float | None = None  # as declared
        self._last_ones = 0  # complete ones since the last record was
        self._windows = 0

    def watch(self, spout: Component) -> None:
        """Send watermarks from now on, to the windows downstream of the spout."""
        self.on, self.next_s, self._own = True, 0.0, spout.event_time
        self._fields, self._windows = spout.event_times, spout.windows
        self._partitions.idle_s, self._silent_s = spout.idle_s, spout.silent_s

    @property
    def pending_records(self) -> int:
        """How many trees of records are pending."""
        return len(self._pending) - (not self._complete)

    @property
    def event_time(self) -> EventTime | None:
        """How far the task is in event time, as of the last watermark; None without windows."""
        if not self.on:
            return None
        last = self._mark or _NONE
        reached = inf if last.ended else as_float(lowest([last.pending, last.reached]))
        newest, ahead = as_float(self._partitions.newest), " and ".join(self._ahead_partitions())
        units = (limit.per_s(reader.kinds) for reader, limit in self._readers.values())
        return EventTime(
            reached,
            newest,
            holds=self._holds,
            ahead=ahead,
            all_ahead=self._all_ahead,
            per_s=next(units, None),
        )

    @property
    def done(self) -> bool:
        """Whether the windows know that no record follows, and that their rows are processed: one
        watermark ends a window, the next one that behind it, the last one confirms."""
        if not self.on or self._last_ones > self._windows:
            return True
        return self.stops and self._owner.source.exhausted and not self._owner.is_open

    def times(self, stream: str, records: Any, schema: Schema) -> MessageTimes:
        """The event times of records; inf for those without one. Raises TopologyFailed for those
        for which something must be declared: datetimes without a zone, and numbers with `ahead`
        and without a unit."""
        if stream not in self._fields:
            return MessageTimes([inf] * len(records))
        reader, limit = self._reader(stream, schema)
        field = self._field(stream)
        if is_table(records) and field is not None:
            values = records.column(field).to_pylist()
        else:
            records = schema.rows_of_table(records) if is_table(records) else records
            values = values_or_none(reader, records)
        times = times_or_inf(reader, values)
        if field is None and not self._is_warned and inf in times:
            self._warn(reader, records[times.index(inf)])
        ahead = limit.beyond(values, reader.kinds, times, self.wall())
        return MessageTimes(times, dict.fromkeys(ahead, 1), set(ahead))

    def _warn(self, reader: TimeReader, record: Any) -> None:
        """Log why a record has no event time. Its window, which reads a field, does not fail it."""
        self._is_warned = True
        try:
            reader.time(record)
        except user_errors() as error:
            _LOG.warning(
                "spout %r: %s does not move the watermark: %s. Further ones are not logged",
                self._owner.task.component,
                describe(record),
                describe_error(error),
            )

    def emitted(
        self, roots: U64, numbers: Sequence[int] | I64, message_times: MessageTimes, now: float
    ) -> None:
        """Note messages that are emitted now."""
        numbers, times = np.asarray(numbers, np.int64), message_times.lowest
        # A replayed letter comes late in any case, and does not hold windows back.
        for index in (numbers < LETTERS_END).nonzero()[0].tolist():
            times[index] = inf
            message_times.ahead.pop(index, None)
            message_times.are_ahead.discard(index)
        if self.queued:
            self._note_replays(numbers, message_times)
        if message_times.ahead:
            self._count_ahead(numbers, message_times)
        slots = slots_of(roots)
        if len(slots) and (last_slot := int(slots.max())) >= len(self._times):
            grown = np.full(max(1024, 2 * last_slot), inf, object)
            grown[: len(self._times)] = self._times
            self._times = grown
        self._times[slots] = times
        self._note_reached(numbers, times, now)

    def _count_ahead(self, numbers: I64, message_times: MessageTimes) -> None:
        """Count records that are too far ahead of the clock."""
        if not self.ahead:
            _LOG.warning(
                "spout %r: an event time, %s, is more than %s ahead of the clock. Its record is in "
                "its window, and does not move the watermark: see ahead= of the window. Further "
                "ones are counted, not logged",
                self._owner.task.component,
                message_times.lowest[min(message_times.ahead)],
                self._ahead_text,
            )
        self.ahead += sum(message_times.ahead.values())
        self.queued_ahead.update(numbers[[*message_times.are_ahead]].tolist())

    def _note_reached(self, numbers: I64, times: list[Time], now: float) -> None:
        """Note what the partitions of these messages have reached."""
        partitions, are_ahead = self.partitions_of(numbers), self._are_ahead(numbers)
        if are_ahead:
            times = [inf if at in are_ahead else time for at, time in enumerate(times)]
        for index in are_ahead:
            self._partitions.emitted_ahead(int(partitions[index]), now)
        groups: dict[int, list[Time]] = {}
        if partitions.any():
            for part, time in zip(partitions.tolist(), times, strict=True):
                groups.setdefault(part, []).append(time)
        else:
            groups[0] = times
        for part, part_times in groups.items():
            top = highest(part_times)
            if top == inf:
                top = highest(time for time in part_times if time != inf)
            if top != -inf:
                self._partitions.emitted(part, top, now)

    def _note_replays(self, numbers: I64, message_times: MessageTimes) -> None:
        """Give replayed messages the event times, and the decision, of their first emit."""
        for index, number in enumerate(numbers.tolist()):
            if (known := self.queued.pop(number, None)) is not None:
                message_times.lowest[index] = known
                message_times.ahead.pop(index, None)
                message_times.are_ahead.discard(index)

    def _are_ahead(self, numbers: I64) -> set[int]:
        """The indices of messages whose time is too far ahead of the clock."""
        if not self.queued_ahead:
            return set()
        return {at for at, number in enumerate(numbers.tolist()) if number in self.queued_ahead}

    def dropped(self, released: Released, first: int, end: int, now: float) -> None:
        """Note messages that are dropped, because another task reads their partition: `released`,
        and those of [first, end) in the retry queue. Windows wait for them until that task has
        read them."""
        if not self.on:
            return
        times = [time for number, time in self.queued.items() if first <= number < end]
        times += self._times[slots_of(released.roots)].tolist()
        partition = int(self.partitions_of(np.array([first]))[0])
        self._partitions.left(partition, lowest(times), now)

    def follow(self, log: LogSpout[Any]) -> None:
        """Ask this spout for the partitions of its records from now on."""
        self.partitions_of, self.partition_name = log.partitions_of, log.partition_name
        self.partitions_read, self.partitions_at_end = log.partitions_read, log.partitions_at_end

    @property
    def is_under_way(self) -> bool:
        """Whether the tree of a watermark is open. It takes a free slot of the pending table, also
        while as many messages as there are slots wait for their replays."""
        return not self._complete

    def completed(self, released: Released, now: float) -> Released:
        """Note complete trees. Returns those of records."""
        mine = released.numbers == WATERMARK
        if not mine.any():
            self._hasten(now)
            return released
        self._complete, self._failures, self.lags = True, 0, False
        ends = self._owner.source.exhausted and (self.stops or (self._mark or _NONE).ended)
        is_last = ends and self._is_empty  # not while a message waits for its replay
        self._last_ones = self._last_ones + 1 if is_last else 0
        if is_last and not self.done:
            self.next_s = now
        self._hasten(now)
        return Released(*(values[~mine] for values in released))

    def _hasten(self, now: float) -> None:
        """If the source has just ended, send the watermark that says so at once."""
        if not self._owner.source.exhausted or self.stops or self._failure is not None:
            return
        if self._complete and self._is_empty and not (self._mark or _NONE).ended:
            self.next_s = min(self.next_s, now)

    def failed(
        self, released: Released, why: Failure | Mapping[int, Failure], now: float, *, held: bool
    ) -> Released:
        """Note failed trees, which the framework replays. Returns those of records."""
        mine = released.numbers == WATERMARK
        records = Released(*(values[~mine] for values in released)) if mine.any() else released
        times = self._times[slots_of(records.roots)]
        self.queued.update(zip(records.numbers.tolist(), times.tolist(), strict=True))
        self._queued_lowest = lowest([self._queued_lowest, *times.tolist()])
        if mine.any():
            root = int(released.roots[mine][0])
            failure = why if isinstance(why, Failure) else why[root]
            charged = self._retries.is_charged(WATERMARK, failure, now, held=held)
            self._failures += charged and not self.done
            self._failure = failure
            wait_s = min(_AGAIN_S * 2.0 ** min(self._attempt, 10), _AGAIN_MAX_S)
            self._complete, self.next_s, self.lags = True, now + wait_s, False
            self._last_ones = 0
        return records

    def send(self, now: float) -> None:
        """Send the next watermark, or the last one again if its tree failed.

        Raises TopologyFailed if it has used up its attempts.
        """
        self.next_s = now + (_EVERY_DONE_S if self.done else _EVERY_S)
        owner, streams = self._owner, self._owner.output_streams
        if owner.is_open:
            self._look(now)
        self.lags = not self._complete and now - self._sent_s >= self._timeout_s / 2
        if not (owner.is_open and owner.active and self._complete and self._pending.free):
            return
        if streams.full:
            return
        again = self._failure is not None
        if self._failures >= self._retries.retry.attempts:
            raise TopologyFailed(
                f"a watermark of spout {owner.task.component!r} failed {self._failures} "
                f"times, the last time: {self._failure}. What a window, a timer or an order of "
                "records makes has no spout record to put aside; fix the function that raised"
            )
        self._attempt = self._attempt + 1 if again else 1
        mark = self._mark if again and self._mark is not None else self._next(now)
        self._mark = mark._replace(attempt=self._attempt)
        self._failure = None
        roots = self._pending.take([None], [WATERMARK], self._attempt, now, self._timeout_s)
        self.emitted(roots, [WATERMARK], MessageTimes([inf]), now)
        edges = streams.send(WATERMARKS, [self._mark], Anchors(roots))
        assert edges is not None
        owner.deadlines.extend(roots)
        self._reports.start(roots, edges)
        self._complete, self._sent_s = False, now

    def _field(self, stream: str) -> str | None:
        """The field with the event time; None: a function says it."""
        if isinstance(self._own, str):
            return self._own
        by_function = self._own is not None or self.method is not None
        return None if by_function else self._fields[stream].name

    def _time_by_function(self, record: Any) -> Any:
        function = self.method if self._own is None else self._own
        assert callable(function)
        return function(record)  # a method of another object after a restart of the spout

    def _reader(self, stream: str, schema: Schema) -> tuple[TimeReader, ClockLimit]:
        """What reads the event times of a stream, and finds those that are too far ahead."""
        if (known := self._readers.get(stream)) is None:
            declared = self._fields[stream]
            if (field := self._field(stream)) is not None:
                what, get = f"field {field!r}", schema.key([field])
            else:
                what, get = "event_time()", self._time_by_function
            what += f" of spout {self._owner.task.component!r}"
            known = declared.reader_by(what, get), ClockLimit(what, declared)
            self._readers[stream] = known
        return known

    @property
    def _newest(self) -> Time:
        """The highest event time emitted, in any zone in which windows read it."""
        newest = self._partitions.newest
        spread_s = max((reader.spread_s for reader, _ in self._readers.values()), default=0)
        return plus(newest, spread_s) if spread_s else newest

    @property
    def _all_ahead(self) -> bool:
        """Whether all event times of the task are too far ahead of the clock."""
        has_ended = (self._mark or _NONE).ended or self.stops
        return not has_ended and self._partitions.are_all_ahead(self._look_s)

    @property
    def _ahead_text(self) -> str:
        """How far ahead of the clock times may be."""
        return next((limit.text for _, limit in self._readers.values()), "")

    def _ahead_partitions(self) -> Iterator[str]:
        """Say which partitions are passed over because their times are too far ahead."""
        if (self._mark or _NONE).ended or self.stops or self._all_ahead:
            return
        for number, for_s in self._partitions.only_ahead(self._look_s).items():
            yield passed_over(self.partition_name(number), self._ahead_text, for_s)

    @property
    def _holds(self) -> str:
        """What the watermark waits for, for users; "" if that is not worth a line."""
        owner, last, now = self._owner, self._mark or _NONE, self._look_s
        if last.ended or self.stops:
            return ""
        if (waits := owner.supervision.health.wait) is not None:
            kind = "a dependency" if waits.kind is WaitKind.UNAVAILABLE else "its source, in doubt"
            return f"the task waits for {kind}"
        if not owner.active:
            return "the topology is inactive"
        if not self._complete and now - self._sent_s >= HOLDS_S:
            return f"its last watermark has not been processed for {now - self._sent_s:.0f} s"
        queued = lowest(self.queued.values())
        if is_before(last.pending, last.reached) and not is_before(last.pending, queued):
            return f"{len(self._retries):,} failed records are to be emitted again"
        if not self._is_known:
            return "the task does not know yet which partitions it reads"
        if self._all_ahead:
            return all_ahead(self._ahead_text)
        if (slowest := self._partitions.slowest) is None:
            return ""
        name, since_s = self.partition_name(slowest[0]), self._begun_s or 0.0
        return slowest[1].holds(name, since_s, now, is_held=owner.is_held)

    @property
    def _is_empty(self) -> bool:
        is_emitted = self._owner.source.is_empty
        return is_emitted and not len(self._pending) and not len(self._retries)

    def _look(self, now: float) -> None:
        """Ask the spout which partitions it reads, and which are read to their end."""
        self._look_s = now
        self._begun_s = now if self._begun_s is None else self._begun_s
        partitions, at_end = self.partitions_read(), self.partitions_at_end()
        self._is_known = partitions is not None
        if partitions is None:
            self._partitions.unknown(now)
        else:
            if at_end is None:  # it cannot tell: each answer counts
                at_end = dict.fromkeys(partitions, self._owner.source.asked_s)
            self._partitions.look(partitions, at_end, self._confirmed, now)

    @property
    def _confirmed(self) -> int:
        """The number of the last watermark whose tree is complete."""
        last = self._mark or _NONE
        return last.number if self._complete and self._failure is None else last.number - 1

    def _next(self, now: float) -> Watermark:
        last = self._mark or _NONE
        number = last.number + 1
        if self.queued_ahead:
            self.queued_ahead &= {*self._pending.numbers().tolist(), *self._retries.numbers}
        pending = lowest([*self._pending.only_pending(self._times), self._lowest_queued(now)])
        ended = self._owner.source.exhausted and not self.stops and self._is_empty
        # A partition without a record yet holds windows back, as does a task that does not know its
        # partitions.
        reached, idle = (self._partitions.lowest if self._is_known else -inf), False
        fetched = 0
        if self._is_known and self._partitions.is_idle:
            idle, fetched = True, self._partitions.confirmed
        task, life = self._owner.task.id, self._pending.incarnation
        place = (task, life, number, 1, last.number)
        newest, silent = self._newest, False
        if self._silent_s is not None and self._is_known and pending == inf:
            silent = self._partitions.silent_s >= self._silent_s
        mark = Watermark(*place, pending, reached, idle, ended, fetched, newest, self.ahead > 0)
        emptied, busy = self._partitions.emptied if self._is_known else (0, -inf)
        sender = self._owner.task.component
        return mark._replace(silent=silent, sender=sender, emptied=emptied, busy=busy)

    def _lowest_queued(self, now: float) -> Time:
        """At most the lowest event time in the retry queue."""
        if now >= self._scan_s:
            queued = {number: self.queued.get(number, inf) for number in self._retries.numbers}
            self.queued = queued
            self._queued_lowest = lowest(queued.values())
            self._scan_s = now + _SCAN_S * len(queued)
        return self._queued_lowest


_NONE = Watermark(0, 0, 0, 0, 0, inf, -inf, idle=False, ended=False)
