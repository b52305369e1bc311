"""Polls a log with offsets; separate because it is one implementation of the port SpoutSource.

Its spout commits its own offsets, and may lose partitions:

    poll ──▶ emitted ──▶ acked, in bulk ──▶ the spout commits when and where it chooses
      ├────▶ unreadable: queued as a dead letter, without an attempt
      └────▶ gone: open messages with these numbers are dropped without a report

A record may go to another stream (OnStream). A list of records is one message: they are the edges
of one tree, which is complete when all of them are, and are emitted again together. New records of
a stream are emitted in the order of the log, whether a message has one record or several.
`Pending` keeps what was polled until it is acked. If the spout can read records again,
it keeps nothing: a failed message then waits in the retry queue until its record is read again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from itertools import compress, islice
from typing import TYPE_CHECKING, Any

import numpy as np

from sunshower.errors import BadEmit, ProtocolError, user_errors
from sunshower.failures import Cause, Failure
from sunshower.runtime.tasks.spouts.retry_queue import ABSENT, LETTERS_END, Replay
from sunshower.runtime.tasks.spouts.source import Drawn, MessageRecords, Send, SpoutSource, apart
from sunshower.runtime.tasks.task_transfer import TaskTransfer
from sunshower.runtime.tasks.user_code import Raised, as_raised, guard
from sunshower.runtime.tracking.ids import I64
from sunshower.runtime.tracking.pending import Released
from sunshower.texts import describe
from sunshower.topologies.components import DEFAULT, OnStream
from sunshower.topologies.logs import Polled, Unreadable
from sunshower.topologies.retry import DEAD_LETTERS

if TYPE_CHECKING:
    from sunshower.runtime.tasks.spouts.spout_task import SpoutTask

_POLL_S = 0.5  # longest time between two polls, also without room for records
_AFTER_READING = 2  # attempt number of an unreadable record's dead letter; reading was the first
_AGAIN_MAX = 4096  # numbers to request again at a time …
_FOUND_MAX = 1024  # … and records read again that wait for their emit
_GIVES_WAY_S = 1.0  # if none of those has come for so long, others are requested first
_GONE = "its part of the log has changed hands"
_NOTHING: Polled[Any] = Polled(np.zeros(0, np.int64), ())


class LogSource(SpoutSource):
    """Polls the user's spout; `message_id` of that spout maps numbers to message ids."""

    def __init__(self, task: SpoutTask) -> None:
        self._host = task
        self._task = task.task
        self._came_s = 0.0  # when a record was last read again, or none was missing
        self._ahead = _NOTHING  # polled and not emitted, after an injected error of the source
        self._has_ended = False
        self._mixed = False  # the last drawn records may be OnStreams, or lists
        self._keeps_records = True

    def adopt(self, spout: Any) -> None:
        spout.set_queue(lambda: [n for n in self._host.replays.line.numbers if n >= LETTERS_END])
        self._host.watermarks.partitions_of = spout.partitions_of
        self._host.watermarks.partitions_read = spout.partitions_read
        self._host.watermarks.partitions_at_end = spout.partitions_at_end
        self._host.watermarks.partition_name = spout.partition_name
        self._keeps_records = not (spout.refetches and spout.replay)
        self.next_poll_s = 0.0

    def pack(self, transfer: TaskTransfer, *, stays: bool) -> None:
        transfer.ahead = [self._ahead] if stays else []

    def unpack(self, transfer: TaskTransfer) -> None:
        (self._ahead,) = transfer.ahead

    def look(self, now: float) -> None:
        self.next_poll_s = now + _POLL_S
        if self._host.supervision.runs:
            try:
                self._poll(0, now)
                self._stop_at_end()
            except Raised as raised:
                self._host.supervision.note(raised)

    def abandon(self) -> None:
        """Close the spout, so that other members of its group can take over its partitions."""
        self._host.close()

    def drain(self) -> None:
        self.exhausted = True

    def draw(self, limit: int, now: float) -> Drawn:
        polled = _NOTHING if self.exhausted or not limit else self._take(limit, now)
        count = len(polled.numbers) + len(polled.unreadable)
        self._set_aside(polled.unreadable, now)
        return Drawn(polled.numbers, polled.records, polled.records, count)

    def message_id(self, replay: Replay) -> Any:
        return self._name(replay.number)

    def message_ids(self, released: Released) -> list[Any]:
        return [self._name(number) for number in released.numbers.tolist()]

    def values(self, replay: Replay) -> dict[str, Any]:
        payload = replay.payload
        if isinstance(payload, Unreadable):
            return dict(payload.record)
        if type(payload) is list:
            return {"records": [self._host.output_streams.values(*apart(part)) for part in payload]}
        return self._host.output_streams.values(*apart(payload))

    # ---- input --------------------------------------------------------------------------------

    def _take(self, wanted: int, now: float) -> Polled[Any]:
        """Up to `wanted` records available now; records that do not fit are unreadable."""
        if len(self._ahead.numbers):
            polled, self._ahead = self._ahead, _NOTHING
            self._mixed = _is_mixed(set(map(type, polled.records)))
            self._keep_from(polled, wanted)
        else:
            try:
                guard(self._task, "poll", self._host.instrument.faults.before_call)
                polled = self._poll(wanted, now)
            except Raised as raised:
                self.error = raised
                return _NOTHING
        self._stop_before_hit(polled)
        self._stop_at_end()
        try:
            self._note_first_end()
        except Raised as raised:
            self.error = raised
        return polled

    def _poll(self, limit: int, now: float) -> Polled[Any]:
        """Poll, and drop the messages of lost partitions. Raises Raised."""
        self.next_poll_s = now + _POLL_S
        polled: Polled[Any] | None = guard(
            self._task, "poll", partial(self._host.spout.poll, limit)
        )
        if limit:
            self.asked_s = now
        if polled is None:
            return _NOTHING
        for first, end in polled.gone:
            self._forget(first, end, now)
        count = len(polled.numbers) + len(polled.unreadable)
        if count > limit or len(polled.numbers) != len(polled.records):
            raise as_raised(
                self._task,
                "poll",
                ProtocolError(
                    f"poll({limit}) gave {len(polled.numbers)} numbers, {len(polled.records)} "
                    f"records and {len(polled.unreadable)} unreadable ones; give as many numbers "
                    "as records, and no more than it was asked for"
                ),
            )
        self._has_ended |= polled.ended
        self._check(polled)
        return polled

    def _note_first_end(self) -> None:
        """Ask the spout each time: it may get partitions that it has not read yet."""
        if self.notes_first_end and not len(self._ahead.numbers):
            read = guard(self._task, "has_read_first", self._host.spout.has_read_first)
            self.has_read_first = bool(read)

    def read_again(self, now: float) -> None:
        """Request due records that are not kept; some are returned now, others in a later call."""
        line = self._host.replays.line
        if not self._host.is_open:  # the new owner of the partitions reads them
            line.absent.clear()
        room = _FOUND_MAX - line.due(now)
        if room <= 0 or not line.absent:
            return
        numbers = np.array([*islice(line.absent, _AGAIN_MAX)], np.int64)
        try:
            polled = guard(self._task, "refetch", partial(self._host.spout.refetch, numbers, room))
        except Raised as raised:
            self.error = raised
            return
        self._check(polled)
        if len(polled.numbers) or polled.unreadable or len(line.absent) <= _AGAIN_MAX:
            self._came_s = now
        elif now - self._came_s >= _GIVES_WAY_S:  # records of other messages may be available
            self._came_s = now
            for number in numbers.tolist():
                line.absent[number] = line.absent.pop(number)
        for number, record in zip(polled.numbers.tolist(), polled.records, strict=True):
            line.found(number, record)
        lost = [unread for unread in polled.unreadable if line.absent.pop(unread.number, None)]
        self._set_aside([self._with_failure(unread) for unread in lost], now)

    def _with_failure(self, unreadable: Unreadable) -> Unreadable:
        """`one` with the failure it was to be replayed for, if that was charged."""
        charges = self._host.replays.line.charges.get(unreadable.number)
        if charges is None:
            return unreadable
        return unreadable._replace(
            reason=f"{unreadable.reason}; before that it failed: {charges.failure}"
        )

    def _stop_at_end(self) -> None:
        self.exhausted |= self._has_ended and not len(self._ahead.numbers)

    def _forget(self, first: int, end: int, now: float) -> None:
        """Drop the open messages of [first, end): another member owns them now."""
        released = self._host.pending.release(self._host.pending.within(first, end))
        self._host.watermarks.dropped(released, first, end, now)
        failures = [Failure(Cause.REBALANCED, reason=_GONE)] * len(released.roots)
        self._host.instrument.failed(released, failures)
        self._host.replays.forget(first, end)
        ahead = self._ahead
        stays = (ahead.numbers < first) | (ahead.numbers >= end)
        self._ahead = Polled(ahead.numbers[stays], list(compress(ahead.records, stays)))

    def _check(self, polled: Polled[Any]) -> None:
        """Move records that do not fit their stream to `unreadable`."""
        records = polled.records
        kinds = set(map(type, records))
        self._mixed = _is_mixed(kinds)
        if self._host.output_streams.fits(DEFAULT, records, kinds):
            return
        bad = {index: why for index, record in enumerate(records) if (why := self._misfit(record))}
        if not bad:
            return
        numbers = polled.numbers
        polled.unreadable = [
            *polled.unreadable,
            *(
                Unreadable(
                    int(numbers[index]), {"record": describe(records[index])}, str(why), "BadEmit"
                )
                for index, why in bad.items()
            ),
        ]
        polled.numbers = np.delete(numbers, list(bad))
        polled.records = [record for index, record in enumerate(records) if index not in bad]

    def _misfit(self, payload: Any) -> BadEmit | None:
        if type(payload) is list:
            return next(filter(None, map(self._misfit, payload)), None)
        stream, record = apart(payload)
        try:
            bad = self._host.output_streams.check(stream, [record])
        except BadEmit as error:
            return error
        return None if bad is None else self._host.output_streams.misfit_error(stream, record)

    def _stop_before_hit(self, polled: Polled[Any]) -> None:
        """Keep back the records from the first one that an experiment injects an error for."""
        if self._mixed or not len(polled.numbers):
            return
        faults = self._host.instrument.faults
        hit = faults.first_hit(polled.records, self._host.schema(DEFAULT))
        if hit is not None:
            self._keep_from(polled, hit)
            self.error = as_raised(self._task, "poll", faults.error)

    def _keep_from(self, polled: Polled[Any], index: int) -> None:
        """Keep the records from `index` on for a later emit."""
        if index < len(polled.numbers):
            rest = (polled.numbers[index:], polled.records[index:])
            left = (self._ahead.numbers, self._ahead.records)
            self._ahead = Polled(np.concatenate((rest[0], left[0])), [*rest[1], *left[1]])
            polled.numbers, polled.records = polled.numbers[:index], polled.records[:index]

    def _set_aside(self, unreadable: Sequence[Unreadable], now: float) -> None:
        """Queue these as dead letters, or to halt the topology; else log and skip them."""
        passed_over = []
        for record in unreadable:
            if record.halts or self._host.replays.line.retry.has_dead_letters:
                place = (
                    self._task.component,
                    self._task.index,
                    record.reason,
                    record.exception,
                )
                why = Failure(Cause.EXCEPTION, *place, worker=self._task.worker)
                self._host.replays.line.condemn(Replay(record.number, record, _AFTER_READING), why)
                continue
            passed_over.append(record.number)
            if self._host.replays.notices.admits(self._task.component, now):
                name = describe(self._name(record.number))
                self._host.replays.notices.say(
                    f"message {name} of spout {self._task.component!r} is passed over: "
                    f"{record.reason}"
                )
        if passed_over:
            self._host.replays.settle(passed_over)
            self._tell_acked(np.array(passed_over, np.int64))

    # ---- output -------------------------------------------------------------------------------

    def send(self, drawn: Drawn, attempts: Any, now: float, send: Send) -> None:
        if self._mixed:
            self._send_mixed(drawn.payloads, drawn.numbers, attempts, now)
            return
        payloads = drawn.payloads if self._keeps_records else [ABSENT] * len(drawn.payloads)
        send(DEFAULT, drawn.records, payloads, drawn.numbers, attempts, now)
        self._ack_untracked(drawn.numbers)

    def send_again(self, replays: Sequence[Replay], now: float, send: Send) -> None:
        numbers, payloads, attempts = zip(*replays, strict=True)
        self._send_mixed(payloads, np.array(numbers, np.int64), attempts, now)

    def _send_mixed(self, messages: Sequence[Any], numbers: I64, attempts: Any, now: float) -> None:
        """Emit messages of one or of several records, on any streams. On each stream, the records
        leave in the order of the log."""
        records: dict[str, MessageRecords] = defaultdict(MessageRecords)
        for index, message in enumerate(messages):
            for each in message if type(message) is list else (message,):
                stream, record = apart(each)
                records[stream].add(index, record)
        payloads = messages if self._keeps_records else list(map(_without_record, messages))
        self._host.send_messages(records, payloads, numbers, attempts, now)
        self._ack_untracked(numbers)

    def _ack_untracked(self, numbers: I64) -> None:
        """Without ackers, messages are acked once they are sent, as in Storm."""
        if not self._host.is_tracked:
            self._host.replays.settle(numbers.tolist())
            self._tell_acked(numbers)

    # ---- callbacks of the spout -----------------------------------------------------------------

    def listens(self, spout: Any) -> bool:
        return True

    def settled(self, released: Released) -> list[Any]:
        if len(released.numbers):
            self._tell_acked(released.numbers)
        return []

    def _tell_acked(self, numbers: I64) -> None:
        if self._host.is_open:
            self._host.notify("acked", partial(self._host.spout.acked, numbers))

    def _name(self, number: int) -> Any:
        try:
            return self._host.spout.message_id(number)
        except user_errors():
            return number


def _is_mixed(kinds: set[type]) -> bool:
    """Whether some messages of these types are not one record of the default stream."""
    return OnStream in kinds or list in kinds


def _without_record(message: Any) -> Any:
    """What `Pending` keeps of a message that can be read again. A dead letter cannot."""
    is_letter = type(message) is OnStream and message.stream == DEAD_LETTERS
    return message if is_letter else ABSENT
