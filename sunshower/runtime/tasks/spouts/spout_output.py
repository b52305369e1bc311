"""Sends the records of one spout task, and starts a tree for each of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from typing import Any, Protocol

import numpy as np

from sunshower.config import Config
from sunshower.failures import Failure
from sunshower.records import Schema
from sunshower.runtime.events.instrument import Instrument
from sunshower.runtime.events.trace_recorder import TraceChoice
from sunshower.runtime.tasks.spouts.retry_queue import LETTERS_END, Replay
from sunshower.runtime.tasks.spouts.watermark_sender import (
    MessageTimes,
    WatermarkHost,
    WatermarkSender,
)
from sunshower.runtime.tasks.user_code import no_way
from sunshower.runtime.tracking.batch import Anchors
from sunshower.runtime.tracking.congestion_control import PendingLimit
from sunshower.runtime.tracking.ids import I64, U64
from sunshower.runtime.tracking.pending import Pending
from sunshower.runtime.tracking.reports import Reports
from sunshower.runtime.transport.output_streams import NotSent


class SpoutHost(WatermarkHost, Protocol):
    """The same spout task, with what sends records."""

    instrument: Instrument
    limit: PendingLimit
    watermarks: WatermarkSender

    def failed(self, roots: U64, why: Mapping[int, Failure], now: float) -> None: ...
    def note_untracked(self, failure: Failure) -> None: ...


class MessageRecords:
    """Records of one stream in the order in which they leave, and the message of each."""

    def __init__(self) -> None:
        self.records: list[Any] = []
        self.messages: list[int] = []  # indices

    def add(self, message: int, record: Any) -> None:
        """Add a record of the message with this index."""
        self.records.append(record)
        self.messages.append(message)


class SpoutOutput:
    """Sends for a source: by `send`, or the source sends by itself between `take` and `start`."""

    def __init__(
        self, owner: SpoutHost, pending: Pending, reports: Reports, config: Config
    ) -> None:
        self._owner = owner
        self._streams = owner.output_streams
        self._pending = pending
        self._reports = reports
        self._timeout_s = config.message_timeout_s
        self._choice = TraceChoice(config.trace_share) if config.trace_share else None

    def schema(self, stream: str) -> Schema:
        """The schema of an output stream."""
        return self._streams.output_stream(stream).spec.schema

    def values(self, stream: str, record: Any) -> dict[str, Any]:
        """A record as field → value."""
        schema = self.schema(stream)
        (values,) = schema.rows([record])
        return dict(zip(schema.fields, values, strict=True))

    def send(
        self,
        stream: str,
        records: Any,
        payloads: Sequence[Any],
        numbers: Sequence[int] | I64,
        attempts: Any,
        now: float,
    ) -> None:
        """Emit `records`; `payloads`: what `Pending` keeps of each until it is acked."""
        if not self._reports.tracked:
            try:
                self._streams.send(stream, records, None)
            except NotSent as refused:
                for error in refused.errors.values():
                    self._owner.note_untracked(no_way(self._owner.task, error))
            return
        marks = self._owner.watermarks
        times = marks.times(stream, records, self.schema(stream)) if marks.on else None
        roots = self.take(payloads, numbers, attempts, now, times=times)
        errors: dict[int, BaseException] = {}
        try:
            made = self._streams.send(stream, records, Anchors(roots))
        except NotSent as refused:
            made, errors = refused.made, refused.errors
        assert made is not None
        self.start(roots, made, errors, now)

    def send_messages(
        self,
        streams: Mapping[str, MessageRecords],
        payloads: Sequence[Any],
        numbers: Sequence[int] | I64,
        attempts: Any,
        now: float,
    ) -> None:
        """Emit messages of any number of records, each message as one tree; `streams`: the records
        by stream. Otherwise as `send`."""
        roots, made = None, np.zeros(len(payloads), np.uint64)
        if self._reports.tracked:
            times = self.lowest_times(streams, len(payloads))
            roots = self.take(payloads, numbers, attempts, now, times=times)
        errors: dict[int, BaseException] = {}
        for stream, own in streams.items():
            messages = np.array(own.messages, np.int64)
            anchors = None if roots is None else Anchors(roots[messages])
            try:
                edges = self._streams.send(stream, own.records, anchors)
            except NotSent as refused:
                edges = refused.made
                errors |= {own.messages[at]: error for at, error in refused.errors.items()}
                if roots is None:
                    for error in refused.errors.values():
                        self._owner.note_untracked(no_way(self._owner.task, error))
            if edges is not None:
                np.bitwise_xor.at(made, messages, edges)
        if roots is not None:
            self.start(roots, made, errors, now)

    def lowest_times(
        self, streams: Mapping[str, MessageRecords], count: int
    ) -> MessageTimes | None:
        """The event times of messages; None: nobody asks for them."""
        marks = self._owner.watermarks
        if not marks.on:
            return None
        message_times = MessageTimes([inf] * count)
        for stream, own in streams.items():
            times = marks.times(stream, own.records, self.schema(stream))
            message_times.add(own.messages, times)
        return message_times

    def take(
        self,
        payloads: Sequence[Any],
        numbers: Sequence[int] | I64,
        attempts: Any,
        now: float,
        message_ids: list[Any] | None = None,
        times: MessageTimes | None = None,
    ) -> U64:
        """Draw roots for records to send; `message_ids`: if they differ from the numbers; `times`:
        see `lowest_times`."""
        self._owner.limit.opened(now)
        traced = self._choice.positions(len(payloads), attempts, now) if self._choice else ()
        roots = self._pending.take(payloads, numbers, attempts, now, self._timeout_s, traced)
        if times is not None:
            self._owner.watermarks.emitted(roots, numbers, times, now)
        self._owner.instrument.emitted(roots, numbers, attempts, message_ids)
        for at in traced:
            attempt = attempts if isinstance(attempts, int) else int(attempts[at])
            message = Replay(int(numbers[at]), payloads[at], attempt)
            is_letter = message.number < LETTERS_END
            source = self._owner.source
            name = message.payload.message_id if is_letter else source.message_id(message)
            self._owner.instrument.traced(int(roots[at]), message.number, attempt, name)
        return roots

    def start(self, roots: U64, made: U64, errors: dict[int, BaseException], now: float) -> None:
        """Report the starts to the ackers, except of records that a grouping raised for (`errors`,
        by index): those were not sent, and fail at once."""
        if not errors:
            self._reports.start(roots, made)
            return
        bad = list(errors)
        self._reports.start(np.delete(roots, bad), np.delete(made, bad))
        why = {int(roots[at]): no_way(self._owner.task, errors[at]) for at in bad}
        self._owner.failed(roots[bad], why, now)
