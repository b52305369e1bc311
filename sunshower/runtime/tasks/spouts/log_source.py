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
from itertools import compress
from typing import TYPE_CHECKING, Any

import numpy as np

from sunshower.errors import BadEmit, ProtocolError, user_errors
from sunshower.runtime.tasks.spouts.retry_queue import ABSENT, Replay
from sunshower.runtime.tasks.spouts.source import Drawn, MessageRecords, Sender, SpoutSource, apart
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
_NOTHING: Polled[Any] = Polled(np.zeros(0, np.int64), ())


class LogSource(SpoutSource):
    """Polls the user's spout; `message_id` of that spout maps numbers to message ids."""

    def __init__(self, task: SpoutTask) -> None:
        self._task, self._streams = task.task, task.output_streams
        self._instrument, self._supervision = task.instrument, task.supervision
        self._gone: list[tuple[int, int]] = []  # ranges of numbers, since the task asked last
        self._ahead = _NOTHING  # polled and not emitted, after an injected error of the source
        self._has_ended = self._is_open = False
        self._mixed = False  # the last drawn records may be OnStreams, or lists
        self._keeps_records = True

    def adopt(self, spout: Any) -> None:
        self.log, self._is_open = spout, True
        self._keeps_records = not (spout.refetches and spout.replay)
        self.next_poll_s = 0.0

    def pack(self, transfer: TaskTransfer, *, stays: bool) -> None:
        transfer.ahead = [self._ahead] if stays else []

    def unpack(self, transfer: TaskTransfer) -> None:
        (self._ahead,) = transfer.ahead

    def look(self, now: float) -> Sequence[tuple[int, int]]:
        self.next_poll_s = now + _POLL_S
        if not self._supervision.runs:
            return ()
        self._poll(0, now)
        self._stop_at_end()
        return self._take_gone()

    def drain(self) -> None:
        self.exhausted = True

    def close(self) -> None:
        self._is_open = False

    def draw(self, limit: int, now: float, room: float) -> Drawn:
        polled = _NOTHING if self.exhausted or not limit else self._take(limit, now)
        count, records = len(polled.numbers) + len(polled.unreadable), polled.records
        news = (polled.unreadable, self._take_gone())
        return Drawn(polled.numbers, records, records, count, False, *news)

    def message_id(self, replay: Replay) -> Any:
        return self._name(replay.number)

    def message_ids(self, released: Released) -> list[Any]:
        return [self._name(number) for number in released.numbers.tolist()]

    def values(self, replay: Replay) -> dict[str, Any]:
        payload = replay.payload
        if isinstance(payload, Unreadable):
            return dict(payload.record)
        if type(payload) is list:
            return {"records": [self._streams.values(*apart(part)) for part in payload]}
        return self._streams.values(*apart(payload))

    # ---- input --------------------------------------------------------------------------------

    def _take(self, wanted: int, now: float) -> Polled[Any]:
        """Up to `wanted` records available now; records that do not fit are unreadable."""
        if len(self._ahead.numbers):
            polled, self._ahead = self._ahead, _NOTHING
            self._mixed = _is_mixed(set(map(type, polled.records)))
            self._keep_from(polled, wanted)
        else:
            try:
                guard(self._task, "poll", self._instrument.faults.before_call)
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
        """Poll, and drop what is ahead of lost partitions. Raises Raised."""
        self.next_poll_s = now + _POLL_S
        assert self.log is not None
        polled = guard(self._task, "poll", partial(self.log.poll, limit))
        if limit:
            self.asked_s = now
        if polled is None:
            return _NOTHING
        self._gone += polled.gone
        for first, end in polled.gone:
            ahead = self._ahead
            stays = (ahead.numbers < first) | (ahead.numbers >= end)
            self._ahead = Polled(ahead.numbers[stays], list(compress(ahead.records, stays)))
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

    def _take_gone(self) -> Sequence[tuple[int, int]]:
        gone, self._gone = self._gone, []
        return gone

    def _note_first_end(self) -> None:
        """Ask the spout each time: it may get partitions that it has not read yet."""
        if self.notes_first_end and not len(self._ahead.numbers) and self.log is not None:
            read = guard(self._task, "has_read_first", self.log.has_read_first)
            self.has_read_first = bool(read)

    def refetch(self, numbers: I64, room: int) -> Polled[Any]:
        assert self.log is not None
        polled = guard(self._task, "refetch", partial(self.log.refetch, numbers, room))
        self._check(polled)
        return polled

    def _stop_at_end(self) -> None:
        self.exhausted |= self._has_ended and not len(self._ahead.numbers)

    def _check(self, polled: Polled[Any]) -> None:
        """Move records that do not fit their stream to `unreadable`."""
        records = polled.records
        kinds = set(map(type, records))
        self._mixed = _is_mixed(kinds)
        if self._streams.fits(DEFAULT, records, kinds):
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
            bad = self._streams.check(stream, [record])
        except BadEmit as error:
            return error
        return None if bad is None else self._streams.misfit_error(stream, record)

    def _stop_before_hit(self, polled: Polled[Any]) -> None:
        """Keep back the records from the first one that an experiment injects an error for."""
        if self._mixed or not len(polled.numbers):
            return
        faults = self._instrument.faults
        hit = faults.first_hit(polled.records, self._streams.schema(DEFAULT))
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

    # ---- output -------------------------------------------------------------------------------

    def send(self, drawn: Drawn, attempts: Any, now: float, sender: Sender) -> None:
        if self._mixed:
            self._send_mixed(drawn.payloads, drawn.numbers, attempts, now, sender)
            return
        payloads = drawn.payloads if self._keeps_records else [ABSENT] * len(drawn.payloads)
        sender.send(DEFAULT, drawn.records, payloads, drawn.numbers, attempts, now)

    def send_again(self, replays: Sequence[Replay], now: float, sender: Sender) -> None:
        numbers, payloads, attempts = zip(*replays, strict=True)
        self._send_mixed(payloads, np.array(numbers, np.int64), attempts, now, sender)

    def _send_mixed(
        self, messages: Sequence[Any], numbers: I64, attempts: Any, now: float, sender: Sender
    ) -> None:
        """Emit messages of one or of several records, on any streams. On each stream, the records
        leave in the order of the log."""
        records: dict[str, MessageRecords] = defaultdict(MessageRecords)
        for index, message in enumerate(messages):
            for each in message if type(message) is list else (message,):
                stream, record = apart(each)
                records[stream].add(index, record)
        payloads = messages if self._keeps_records else list(map(_without_record, messages))
        sender.send_messages(records, payloads, numbers, attempts, now)

    # ---- callbacks of the spout -----------------------------------------------------------------

    def listens(self, spout: Any) -> bool:
        return True

    def settled(self, released: Released) -> list[Any]:
        self.passed_over(released.numbers)
        return []

    def passed_over(self, numbers: I64) -> None:
        if len(numbers) and self._is_open and self.log is not None:
            try:
                guard(self._task, "acked", partial(self.log.acked, numbers))
            except Raised as raised:
                self._supervision.note(raised)

    def _name(self, number: int) -> Any:
        try:
            return number if self.log is None else self.log.message_id(number)
        except user_errors():
            return number


def _is_mixed(kinds: set[type]) -> bool:
    """Whether some messages of these types are not one record of the default stream."""
    return OnStream in kinds or list in kinds


def _without_record(message: Any) -> Any:
    """What `Pending` keeps of a message that can be read again. A dead letter cannot."""
    is_letter = type(message) is OnStream and message.stream == DEAD_LETTERS
    return message if is_letter else ABSENT
