"""Runs spouts over a log with offsets, which commit their own offsets and may lose partitions.

    poll ──▶ emitted ──▶ acked, in bulk ──▶ the spout commits when and where it chooses
      ├────▶ unreadable: queued as a dead letter, without an attempt
      └────▶ gone: open messages with these numbers are dropped without a report

`Pending` keeps the record, or an OnStream, until it is acked. If the spout can read records again,
it keeps nothing: a failed message then waits in the retry queue until its record is read again.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from itertools import compress, islice
from typing import Any

import numpy as np

from sunshower.errors import BadEmit, ProtocolError
from sunshower.failures import Cause, Failure
from sunshower.runtime.control.task_transfer import TaskTransfer
from sunshower.runtime.tasks.bolts.dead_letters import told
from sunshower.runtime.tasks.spouts.bulk_spout import BulkSpoutTask
from sunshower.runtime.tasks.spouts.retry_queue import ABSENT, Replay
from sunshower.runtime.tasks.user_code import RAISED, Raised, TaskError, blame, guard
from sunshower.runtime.tracking.ids import I64
from sunshower.runtime.tracking.pending import Released
from sunshower.topologies.components import DEFAULT, Context, OnStream
from sunshower.topologies.logs import Polled, Unreadable
from sunshower.topologies.retry import DEAD_LETTERS, DeadLetter

_POLL_S = 0.5  # longest time between two polls, also without room for records
_AFTER_READING = 2  # attempt number of an unreadable record's dead letter; reading was the first
_AGAIN_MAX = 4096  # numbers to request again at a time …
_FOUND_MAX = 1024  # … and records read again that wait for their emit
_GIVES_WAY_S = 1.0  # if none of those has come for so long, others are requested first
_GONE = "its part of the log has changed hands"
_NOTHING: Polled[Any] = Polled(np.zeros(0, np.int64), ())


class LogSpoutTask(BulkSpoutTask):
    """Polls the user's spout; `message_id` of that spout maps numbers to message ids."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._poll_by_s = math.inf  # ∞ until it is open
        self._came_s = 0.0  # when a record was last read again, or none was missing
        self._ahead = _NOTHING  # polled and not emitted, after an injected error of the source
        self._ended = self._is_open = False
        self._mixed = False  # the last drawn records may go to several streams
        self._keeps_records = True

    def _adopt(self, spout: Any) -> None:
        super()._adopt(spout)
        spout.in_line = lambda: self.replays.line.numbers
        self._keeps_records = not (spout.refetches and spout.replay)
        self._hears_ack = self._is_open = True
        self._poll_by_s = 0.0

    def pack(self, *, stays: bool, now: float) -> TaskTransfer:
        transfer = super().pack(stays=stays, now=now)
        transfer.waiting = transfer.waiting if stays else []  # the next life reads them again
        transfer.ahead = [self._ahead] if stays else []
        return transfer

    def unpack(self, transfer: TaskTransfer, context: Context) -> None:
        if transfer.instance is None:
            self.replays.inherit(transfer.blames)
            self.open(context)
            return
        super().unpack(transfer, context)
        (self._ahead,) = transfer.ahead

    @property
    def next_look_s(self) -> float:
        return min(super().next_look_s, self._poll_by_s)

    @property
    def next_emit_s(self) -> float:
        soonest_s = super().next_emit_s
        if self.replays.line.absent and self.pending.room:
            return min(soonest_s, self.rest.until_s)
        return soonest_s

    def look(self, now: float) -> None:
        super().look(now)
        if now >= self._poll_by_s:
            self._poll_by_s = now + _POLL_S
            if self.supervision.runs:
                try:
                    self._poll(0, now)
                    self._stop_at_end()
                except Raised as raised:
                    self.supervision.note(raised)

    def emit(self, now: float, limit: int) -> int:
        if self._reports.tracked:
            limit = min(limit, self.pending.room)
        if self.replays.line.absent:
            self._read_again(now)
        replays, wanted = self.replays.share_out(now, limit, self._fresh_room)
        polled = _NOTHING if self.exhausted or not wanted else self._draw(wanted, now)
        count = len(polled.numbers) + len(polled.unreadable)
        if count < wanted:  # the source has nothing now
            replays = limit - count
        if not (count or self.replays.line or self._broken):
            return 0
        self._set_aside(polled.unreadable, now)
        numbers, fresh = polled.numbers, polled.records
        attempts = np.ones(len(numbers), np.int64)
        if self.replays.haunted:
            emit, attempts = self.replays.recognise(numbers, fresh)
            fresh = list(compress(fresh, emit))
            numbers, attempts = numbers[emit], attempts[emit]
        again, letters = self.replays.take(replays, len(fresh))
        self._send_again(again + letters, now)
        self._send_all(fresh, numbers, attempts, now, mixed=self._mixed)
        self._raise_broken(now, progress=bool(fresh))
        return count + len(again) + len(letters)

    def abandon(self) -> None:
        """Close the spout, so that other members of its group can take over its partitions."""
        super().abandon()
        self.close()
        self._hears_ack = self._hears_fail = False

    def close(self) -> TaskError | None:
        if not self._is_open:
            return None
        self._is_open, self._poll_by_s = False, math.inf
        return super().close()

    def message_id(self, replay: Replay) -> Any:
        return self._called(replay.number)

    def values(self, replay: Replay) -> dict[str, Any]:
        payload = replay.payload
        if isinstance(payload, Unreadable):
            return dict(payload.record)
        stream, record = _apart(payload)
        schema = self.output_streams.output_stream(stream).spec.schema
        (values,) = schema.rows([record])
        return dict(zip(schema.fields, values, strict=True))

    def letter_payload(self, replay: Replay, letter: DeadLetter) -> Any:
        return OnStream(DEAD_LETTERS, letter)

    # ---- input --------------------------------------------------------------------------------

    def _draw(self, wanted: int, now: float) -> Polled[Any]:
        """Up to `wanted` records available now; records that do not fit are unreadable."""
        if len(self._ahead.numbers):
            polled, self._ahead = self._ahead, _NOTHING
            self._mixed = OnStream in set(map(type, polled.records))
            self._keep_from(polled, wanted)
        else:
            try:
                guard(self.task, "poll", self.instrument.faults.before_call)
                polled = self._poll(wanted, now)
            except Raised as raised:
                self._broken = raised
                return _NOTHING
        self._stop_before_hit(polled)
        self._stop_at_end()
        return polled

    def _poll(self, limit: int, now: float) -> Polled[Any]:
        """Poll, and drop the messages of lost partitions. Raises Raised."""
        self._poll_by_s = now + _POLL_S
        polled: Polled[Any] | None = guard(self.task, "poll", partial(self.spout.poll, limit))
        if polled is None:
            return _NOTHING
        for first, end in polled.gone:
            self._forget(first, end)
        count = len(polled.numbers) + len(polled.unreadable)
        if count > limit or len(polled.numbers) != len(polled.records):
            raise blame(
                self.task,
                "poll",
                ProtocolError(
                    f"poll({limit}) gave {len(polled.numbers)} numbers, {len(polled.records)} "
                    f"records and {len(polled.unreadable)} unreadable ones; give as many numbers "
                    "as records, and no more than it was asked for"
                ),
            )
        self._ended |= polled.ended
        self._check(polled)
        return polled

    def _read_again(self, now: float) -> None:
        """Request due records that are not kept; some are returned now, others in a later call."""
        line = self.replays.line
        if not self._is_open:  # the new owner of the partitions reads them
            line.absent.clear()
        room = _FOUND_MAX - line.due(now)
        if room <= 0 or not line.absent:
            return
        numbers = np.array([*islice(line.absent, _AGAIN_MAX)], np.int64)
        try:
            found = guard(self.task, "refetch", partial(self.spout.refetch, numbers, room))
        except Raised as raised:
            self._broken = raised
            return
        self._check(found)
        if len(found.numbers) or found.unreadable or len(line.absent) <= _AGAIN_MAX:
            self._came_s = now
        elif now - self._came_s >= _GIVES_WAY_S:  # records of other messages may be available
            self._came_s = now
            for number in numbers.tolist():
                line.absent[number] = line.absent.pop(number)
        for number, record in zip(found.numbers.tolist(), found.records, strict=True):
            line.found(number, record)
        lost = [one for one in found.unreadable if line.absent.pop(one.number, None)]
        self._set_aside([self._with_failure(one) for one in lost], now)

    def _with_failure(self, one: Unreadable) -> Unreadable:
        """`one` with the failure it was to be replayed for, if that was charged."""
        blame_ = self.replays.line.blame_of(one.number)
        if blame_ is None:
            return one
        return one._replace(reason=f"{one.reason}; before that it failed: {blame_.failure}")

    def _stop_at_end(self) -> None:
        self.exhausted |= self._ended and not len(self._ahead.numbers)

    def _forget(self, first: int, end: int) -> None:
        """Drop the open messages of [first, end): another member owns them now."""
        released = self.pending.release(self.pending.within(first, end))
        failures = [Failure(Cause.REBALANCED, reason=_GONE)] * len(released.roots)
        self.instrument.failed(released, failures)
        self.replays.forget(first, end)
        ahead = self._ahead
        kept = (ahead.numbers < first) | (ahead.numbers >= end)
        self._ahead = Polled(ahead.numbers[kept], list(compress(ahead.records, kept)))

    def _check(self, polled: Polled[Any]) -> None:
        """Move records that do not fit their stream to `unreadable`."""
        records = polled.records
        kinds = set(map(type, records))
        self._mixed = OnStream in kinds
        if self.output_streams.fits(DEFAULT, records, kinds):
            return
        bad = {index: why for index, one in enumerate(records) if (why := self._misfit(one))}
        if not bad:
            return
        numbers = polled.numbers
        polled.unreadable = [
            *polled.unreadable,
            *(
                Unreadable(
                    int(numbers[index]), {"record": told(records[index])}, str(why), "BadEmit"
                )
                for index, why in bad.items()
            ),
        ]
        polled.numbers = np.delete(numbers, list(bad))
        polled.records = [one for index, one in enumerate(records) if index not in bad]

    def _misfit(self, payload: Any) -> BadEmit | None:
        stream, record = _apart(payload)
        try:
            bad = self.output_streams.check(stream, [record])
        except BadEmit as error:
            return error
        return None if bad is None else self.output_streams.misfit_error(stream, record)

    def _stop_before_hit(self, polled: Polled[Any]) -> None:
        """Keep back the records from the first one that an experiment injects an error for."""
        if self._mixed or not len(polled.numbers):
            return
        schema = self.output_streams.output_stream(DEFAULT).spec.schema
        hit = self.instrument.faults.first_hit(polled.records, schema)
        if hit is not None:
            self._keep_from(polled, hit)
            self._broken = blame(self.task, "poll", self.instrument.faults.error)

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
        for one in unreadable:
            if one.halts or self.replays.line.retry.has_dead_letters:
                place = (self.task.component, self.task.index, one.reason, one.exception)
                why = Failure(Cause.EXCEPTION, *place, worker=self.task.worker)
                self.replays.line.condemn(Replay(one.number, one, _AFTER_READING), why)
                continue
            passed_over.append(one.number)
            if self.replays.notices.admits(self.task.component, now):
                who = f"message {told(self._called(one.number))} of spout {self.task.component!r}"
                self.replays.notices.say(f"{who} is passed over: {one.reason}")
        if passed_over:
            self.replays.settle(passed_over)
            self._tell_numbers(np.array(passed_over, np.int64))

    # ---- output -------------------------------------------------------------------------------

    def _send_again(self, replays: list[Replay], now: float) -> None:
        numbers: I64 = np.array([replay.number for replay in replays], np.int64)
        attempts: I64 = np.array([replay.attempt for replay in replays], np.int64)
        payloads = [replay.payload for replay in replays]
        self._send_all(payloads, numbers, attempts, now, mixed=True)

    def _send_all(
        self, payloads: Sequence[Any], numbers: I64, attempts: I64, now: float, *, mixed: bool
    ) -> None:
        """Emit each on its stream; all on the default stream unless `mixed`."""
        if not mixed:
            if payloads:
                self._send(DEFAULT, payloads, payloads, numbers, attempts, now)
            return
        places: defaultdict[str, list[int]] = defaultdict(list)
        for index, payload in enumerate(payloads):
            places[_apart(payload)[0]].append(index)
        for stream, which in places.items():
            own = [payloads[index] for index in which]
            records = [_apart(payload)[1] for payload in own]
            self._send(stream, records, own, numbers[which], attempts[which], now)

    def _send(
        self,
        stream: str,
        records: Any,
        payloads: Sequence[Any],
        numbers: Sequence[int] | I64,
        attempts: Any,
        now: float,
    ) -> None:
        if not self._keeps_records and stream != DEAD_LETTERS:
            payloads = [ABSENT] * len(payloads)
        super()._send(stream, records, payloads, numbers, attempts, now)
        if not self._reports.tracked:  # as in Storm without ackers: acked once sent
            own = np.asarray(numbers)
            self.replays.settle(own.tolist())
            self._tell_numbers(own)

    # ---- callbacks of the spout -----------------------------------------------------------------

    def _tell_completed(self, released: Released) -> None:
        if len(released.numbers):
            self._tell_numbers(released.numbers)

    def _tell_numbers(self, numbers: I64) -> None:
        if self._hears_ack:
            self.hear("acked", partial(self.spout.acked, numbers))

    def _message_ids(self, released: Released) -> list[Any]:
        return [self._called(number) for number in released.numbers.tolist()]

    def _called(self, number: int) -> Any:
        try:
            return self.spout.message_id(number)
        except RAISED:
            return number


def _apart(payload: Any) -> tuple[str, Any]:
    """The stream and the record of a payload."""
    if type(payload) is OnStream:
        return payload.stream, payload.record
    return DEFAULT, payload
