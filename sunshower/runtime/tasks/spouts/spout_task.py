"""Runs a spout: emits the records of its source, tracks their trees, replays failed messages.

    source ──▶ emitted ──complete──▶ acked
                 ▲   └──failed, timed out, swept──▶ failed ──▶ queued for replay ────┐
                 ├──────────────────────── after its back-off ───────────────────────┤
                 └── as a dead letter ── attempts used up, or else the run halts ────┘

Pending trees and messages that wait for a replay share the `spout_pending` limit.
Storm: org.apache.storm.executor.spout.SpoutExecutor. There the spout itself must replay a failed
tuple; here the framework keeps the record and emits it again, unless `replay` is False.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, cast

import numpy as np

from sunshower.config import Config
from sunshower.errors import user_errors
from sunshower.failures import Cause, Failure
from sunshower.runtime.events.health import TaskError
from sunshower.runtime.events.instrument import Instrument, TraceChoice
from sunshower.runtime.events.metrics import Counts, Latencies, LatencyKind, TaskStats
from sunshower.runtime.tasks.bolts.anchoring import Anchor, AnchoredSender
from sunshower.runtime.tasks.letter_replays import LetterReplays
from sunshower.runtime.tasks.spouts.replays import Replays
from sunshower.runtime.tasks.spouts.retry_queue import LETTERS_END, Replay, RetryQueue
from sunshower.runtime.tasks.spouts.source import Drawn, Emission, MessageRecords, SpoutSource
from sunshower.runtime.tasks.spouts.watermark_sender import WATERMARK, MessageTimes, WatermarkSender
from sunshower.runtime.tasks.supervision import Supervised, Supervision
from sunshower.runtime.tasks.task_transfer import TaskTransfer
from sunshower.runtime.tasks.user_code import Raised, as_raised, guard, no_way
from sunshower.runtime.tracking.batch import Anchors
from sunshower.runtime.tracking.ids import I64, U64
from sunshower.runtime.tracking.pending import F64, Deadlines, Pending, PendingLimit, Released
from sunshower.runtime.tracking.reports import Reports
from sunshower.runtime.transport.channels import ServiceTime
from sunshower.runtime.transport.output_streams import NotSent, OutputStreams
from sunshower.topologies.components import Context, Spout

_NO_LIMIT = 1 << 62
_SAY_WAITS_S = 60.0
_GONE = "its part of the log has changed hands"


# ---- poll backoff --------------------------------------------------------------------------------

_SHARE = 1 / 16  # the next record waits at most this share of the gap before it
_SHORTEST_S = 0.001


class PollBackoff:
    """When to ask the source of one spout task next: after a back-off of up to `longest_s`
    (`idle_poll_s`), or sooner if the spout wakes it."""

    def __init__(self, longest_s: float) -> None:
        self.until_s = 0.0
        self.since_s: float | None = None  # the first poll without a record
        self.is_woken = False  # since a poll began: its caller resets this before
        # Ends the wait of the worker's loop, from any thread; None: time is virtual.
        self.wake_worker: Callable[[], None] | None = None
        self._shortest_s = _SHORTEST_S
        self._longest_s = longest_s
        self._latest_s = math.inf  # for the next poll, as the spout has said during this one

    def share_worker(self, spouts: int) -> None:
        """Poll so much less often that all spout tasks of a worker together poll 1,000 times a
        second at most: a poll that finds nothing costs up to 0.1 ms."""
        self._shortest_s = _SHORTEST_S * spouts

    def wake(self, at_s: float = -math.inf) -> None:
        """Ask the source again at once, from any thread; or at that time, unless sooner: called
        during a poll."""
        if at_s > -math.inf:
            self._latest_s = min(self._latest_s, at_s)
            return
        if self.is_woken and not self.until_s:  # the next poll follows, and comes after this call
            return
        self.is_woken = True  # before the next line: see `begin`
        self.until_s = 0.0
        if self.wake_worker is not None:
            self.wake_worker()

    def begin(self, now: float) -> None:
        """The source had nothing: wait for a share of the time since it first had nothing."""
        if self.since_s is None:
            self.since_s = now
        idle_s = now - self.since_s
        wait_s = min(max(self._shortest_s, _SHARE * idle_s), self._longest_s)
        self.until_s, self._latest_s = min(now + wait_s, self._latest_s), math.inf
        if self.is_woken:  # meanwhile
            self.until_s = 0.0

    def end(self) -> None:
        """The source had records: poll again at once."""
        self.until_s, self.since_s = 0.0, None


# ---- spout task ----------------------------------------------------------------------------------


class SpoutTask(Supervised):
    """One task of a spout. `make_source`: of the kind that the user's spout is; see source.py."""

    def __init__(
        self,
        supervision: Supervision,
        instrument: Instrument,
        make: Callable[[], Spout[Any]],
        make_source: Callable[[SpoutTask], SpoutSource],
        pending: Pending,
        output_streams: OutputStreams,
        reports: Reports,
        config: Config,
        retries: RetryQueue,
    ) -> None:
        super().__init__(supervision, instrument)
        self.spout: Any = None  # None until it is open
        self._make, self.pending = make, pending
        self.output_streams = output_streams
        self.is_open = False
        self.active = True  # whether it may emit at all
        self.settles = False  # it is deactivated once what it has begun is complete
        self.latencies = Latencies()
        self.service = ServiceTime(config)
        self.is_tracked = reports.tracked
        self.watermarks = WatermarkSender(self, pending, reports, retries, config)
        self._traces = TraceChoice(config.trace_share) if config.trace_share else None
        self.config, self._reports = config, reports
        self.deadlines = Deadlines(config, pending, reports)
        self._acked = self._failed = 0
        self._first_replay_s = self._last_ack_s = cast("float | None", None)
        self.rest = PollBackoff(config.internals.idle_poll_s)  # of the source
        self.limit = PendingLimit(config, pending)
        self.tells = True  # whether the user's spout gets calls of `ack` and `fail`
        self._hears_ack = self._hears_fail = False
        self.source = make_source(self)
        self.source.wake = self.rest.wake
        self._anchored = AnchoredSender(output_streams)  # of emissions
        self._drained: Any = None  # the spout object whose `drain` was called
        self.awaits: frozenset[str] = frozenset()  # the spouts that fill its tables, as long as
        # these are not filled: it draws no record
        self._say_waits_s = math.inf  # when to log that it still waits
        self._filling: set[int] | None = None  # messages of the first reading that are not settled
        self.letters = LetterReplays(self, pending, retries)
        sources = (self.source, self.letters, self.letters.forms)
        self.replays = Replays(self.task, retries, config, *sources, instrument)

    def open(self, context: Context) -> None:
        """Create and open the spout, before the first emit. Raises Raised if user code does; a
        further call creates a new spout."""
        spout = guard(self.task, "the constructor", self._make)
        guard(self.task, "prepare of a custom grouping", self.output_streams.prepare)
        guard(self.task, "open", partial(spout.open, context))
        self._adopt(spout, context)
        if self.awaits:
            self._say_waits_s = context.clock.now() + _SAY_WAITS_S
        self.source.begin()

    def _adopt(self, spout: Spout[Any], context: Context) -> None:
        self.spout, self.is_open = spout, True
        self.letters.clock = context.clock
        self.source.adopt(spout)
        self.watermarks.method, self.watermarks.wall = spout.event_time, context.clock.wall
        self.replays.keeps, self.replays.wall = spout.replay, context.clock.wall
        if not spout.replay:
            self.limit.lift()
        self._hears_ack = self.tells and self.source.listens(spout)
        self._hears_fail = self.tells and type(spout).fail is not Spout.fail
        if (log := self.source.log) is not None:
            log.set_queue(lambda: [n for n in self.replays.line.numbers if n >= LETTERS_END])
            self.watermarks.follow(log)
        if self.source.exhausted:  # a drain was requested before
            self._tell_drain()

    def wait_for(self, spouts: Collection[str], filled: Collection[str]) -> None:
        """Draw no record before these spouts have `filled` the tables that its records are joined
        with."""
        self.awaits = frozenset(spouts) - frozenset(filled)
        self.source.notes_first_end &= self.task.component not in filled
        if not self.awaits:
            self._say_waits_s = math.inf

    def has_filled(self) -> bool:
        """Whether all that its source had when the task began to read it is in the tables: acked,
        or a dead letter. False if no other spout waits for that, or no longer."""
        source = self.source
        if not source.notes_first_end or not self.is_open:
            return False
        if not (source.has_read_first or source.exhausted):
            self._filling = None
            return False
        if self._filling or self._filling is None:
            open_numbers = {*self.pending.numbers().tolist(), *self.replays.line.numbers}
            unsettled = {n for n in open_numbers if n >= LETTERS_END and n != WATERMARK}
            self._filling = unsettled if self._filling is None else self._filling & unsettled
        return not self._filling and source.is_empty

    @property
    def committed(self) -> int:
        """The lowest message number that is not settled: pending, queued, or not drawn."""
        drawn = self.source.drawn
        if not drawn:
            return 0
        return int(min(self.pending.lowest_number(drawn), self.replays.line.lowest))

    def resume(self, context: Context) -> None:
        """Open the spout, or let it go on after an error. A source whose iterator ended when it
        raised gets a new spout object, and continues at the old position."""
        if self.spout is not None and self.source.reopens:
            self.close()
            self.spout = None
        if self.spout is None:
            self.open(context)

    def pack(self, *, stays: bool, now: float) -> TaskTransfer:
        """The state to move in a rebalance. Pending messages are queued for replay."""
        if self.settles:  # the wait is over, and `fail` must not begin anything
            self.deactivate()
        reason = "tasks changed places before it was processed"
        self.failed(self.pending.all_roots(), Failure(Cause.REBALANCED, reason=reason), now)
        self.letters.forget()
        stays = stays and self.source.may_stay
        line, drawn = self.replays.line, self.source.drawn
        transfer = TaskTransfer(self.committed, drawn, charges=line.charges)
        transfer.event_times = self.watermarks.queued
        transfer.times_ahead = self.watermarks.queued_ahead
        if stays or not self.source.repeats_numbers:  # else these are read again
            transfer.waiting, transfer.exhausted = line.waiting, self.source.exhausted
        if stays:  # the spout has kept its Context, and with it what wakes the task
            transfer.instance, transfer.rest = self.spout, self.rest
        self.source.pack(transfer, stays=stays)
        if not stays and callable(getattr(self.spout, "settle", None)):
            transfer.ahead = []  # the next object continues with what is in its store
        return transfer

    def unpack(self, transfer: TaskTransfer, context: Context) -> None:
        """Continue from `transfer`, instead of `open`. If this raises, all of it is done again."""
        if transfer.instance is not None:
            guard(self.task, "prepare of a custom grouping", self.output_streams.prepare)
            transfer.rest.wake_worker, self.rest = self.rest.wake_worker, transfer.rest
            self.source.wake = self.rest.wake
            self._adopt(transfer.instance, context)
        elif self.source.repeats_numbers:
            self.source.begin_after(transfer)
            self.replays.inherit(transfer.charges)
            self.open(context)
            return
        else:
            self.open(context)
        self.source.unpack(transfer)
        self.source.exhausted |= transfer.exhausted
        self.replays.line.adopt(transfer.waiting, transfer.charges)
        self.watermarks.queued |= transfer.event_times
        # Savepoints of earlier releases do not have it.
        self.watermarks.queued_ahead.update(getattr(transfer, "times_ahead", ()))

    def activate(self) -> None:
        """Emit from now on. Storm: ISpout.activate."""
        self.active, self.settles = True, False
        self.rest.end()
        if self.spout is not None:
            self.notify("activate", self.spout.activate)

    def deactivate(self) -> None:
        """Emit nothing from now on, not even replays: in Storm both come from nextTuple."""
        self.active = self.settles = False
        if self.spout is not None:
            self.notify("deactivate", self.spout.deactivate)

    def settle(self) -> None:
        """Emit nothing from now on; but a spout that has `settle` first completes what it has
        begun, such as the batches of an exactly-once program."""
        settle = getattr(self.spout, "settle", None)
        if not (self.active and callable(settle)):
            self.deactivate()
            return
        self.settles = True
        self.notify("settle", settle)

    def end_settling(self) -> None:
        """Deactivate it if what it had begun is complete."""
        if self.done or (self.spout.is_settled and self.source.is_empty):
            self.deactivate()

    def emit(self, now: float, limit: int) -> int:
        """Emit up to `limit` records, replays first. Returns how many.

        Raises Raised if the source raised, after emitting the records it had returned before.
        """
        source, line = self.source, self.replays.line
        if self.is_tracked and source.tracks_all:
            limit = min(limit, self.pending.room)
        if line.absent:
            self._read_again(now)
        room = self.fresh_room
        replays, wanted = self.replays.share_out(now, limit, room)
        if room > 0 and not source.tracks_all:
            wanted = limit - replays  # untracked records need no room
        drawn = source.draw(wanted, now, room)
        if drawn.gone or drawn.unreadable:
            self._drop(drawn.gone, now)
            self.replays.set_aside(drawn.unreadable, now)
        attempts: Any = 1
        again = 0
        if line.in_use or self.replays.former:
            if drawn.count < wanted and not drawn.has_more:
                replays = limit - drawn.count
            drawn, attempts, again = self._replay(drawn, replays, now)
        else:
            self.replays.fresh += len(drawn.records)
        if len(drawn.records):
            source.send(drawn, attempts, now, self)
        if source.error is not None:
            error, source.error = source.error, None
            if len(drawn.records):
                self.supervision.went_well(now, progress=True)
            raise error
        return again + drawn.count

    def _replay(self, drawn: Drawn, replays: int, now: float) -> tuple[Drawn, Any, int]:
        """Emit up to `replays` failed messages again. Returns which of the new records to emit now,
        the attempt of each, and how many messages were emitted again."""
        attempts: Any = 1
        if self.is_tracked:
            replays = min(replays, self.pending.room - len(drawn.numbers))
        if self.replays.former:
            emit, attempts = self.replays.recognise(drawn.numbers, drawn.payloads)
            drawn, attempts = drawn.only(emit), attempts[emit]
        again = self.replays.take(replays, len(drawn.records))
        if again:
            self.replays.send(again, self.output_streams, now, self)
        return drawn, attempts, len(again)

    def _read_again(self, now: float) -> None:
        if not self.is_open:  # the new owner of the partitions reads them
            self.replays.line.absent.clear()
            return
        try:
            self.replays.read_again(now)
        except Raised as raised:
            self.source.error = raised

    def _drop(self, gone: Iterable[tuple[int, int]], now: float) -> None:
        """Drop the open messages with these numbers: another member of the group owns them now."""
        for first, end in gone:
            released = self.pending.release(self.pending.within(first, end))
            self.watermarks.dropped(released, first, end, now)
            failures = [Failure(Cause.REBALANCED, reason=_GONE)] * len(released.roots)
            self.instrument.failed(released, failures)
            self.replays.forget(first, end)

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
        if not self.is_tracked:
            try:
                self.output_streams.send(stream, records, None)
            except NotSent as refused:
                for error in refused.errors.values():
                    self.note_untracked(no_way(self.task, error))
            self._end_untracked(numbers)
            return
        marks = self.watermarks
        times = None
        if marks.on:
            times = marks.times(stream, records, self.output_streams.schema(stream))
        roots = self.open_trees(payloads, numbers, attempts, now, times=times)
        errors: dict[int, BaseException] = {}
        try:
            edges = self.output_streams.send(stream, records, Anchors(roots))
        except NotSent as refused:
            edges, errors = refused.made, refused.errors
        assert edges is not None
        self.start_trees(roots, edges, errors, now)

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
        roots, made_edges = None, np.zeros(len(payloads), np.uint64)
        if self.is_tracked:
            times = self.lowest_times(streams, len(payloads))
            roots = self.open_trees(payloads, numbers, attempts, now, times=times)
        errors: dict[int, BaseException] = {}
        for stream, of_stream in streams.items():
            messages = np.array(of_stream.messages, np.int64)
            anchors = None if roots is None else Anchors(roots[messages])
            try:
                edges = self.output_streams.send(stream, of_stream.records, anchors)
            except NotSent as refused:
                edges = refused.made
                errors |= {of_stream.messages[at]: error for at, error in refused.errors.items()}
                if roots is None:
                    for error in refused.errors.values():
                        self.note_untracked(no_way(self.task, error))
            if edges is not None:
                np.bitwise_xor.at(made_edges, messages, edges)
        if roots is None:
            self._end_untracked(numbers)
        else:
            self.start_trees(roots, made_edges, errors, now)

    def send_emissions(self, emissions: Sequence[Emission], now: float) -> None:
        """Emit what a spout has emitted by itself; those without a message id are untracked."""
        tracked = [
            emission
            for emission in emissions
            if self.is_tracked and emission.message_id is not None
        ]
        attempts = [emission.attempt for emission in tracked]
        numbers = [emission.number for emission in tracked]
        ids = [emission.message_id for emission in tracked]
        records: dict[str, MessageRecords] = defaultdict(MessageRecords)
        for index, emission in enumerate(tracked):
            records[emission.stream].add(index, emission.record)
        times = self.lowest_times(records, len(tracked))
        roots = self.open_trees(tracked, numbers, attempts, now, ids, times)
        anchors = [Anchor([root]) for root in roots.tolist()]
        unused = iter(anchors)
        for emission in emissions:
            is_tracked = self.is_tracked and emission.message_id is not None
            parents = [next(unused)] if is_tracked else []
            self._anchored.add(emission.stream, emission.record, parents, emission.task)
        unsent = self._anchored.flush()
        edges = np.array([anchor.made for anchor in anchors], np.uint64)
        errors = {anchors.index(a): record.error for record in unsent for a in record.anchors}
        self.start_trees(roots, edges, errors, now)
        for record in unsent:
            if not record.anchors:
                self.note_untracked(no_way(self.task, record.error))
        if not self.is_tracked:  # as in Storm without ackers: acked once sent
            ids = [emission.message_id for emission in emissions]
            self.tell_acked([id for id in ids if id is not None])

    def _end_untracked(self, numbers: Sequence[int] | I64) -> None:
        """Without ackers, messages of a log are settled once they are sent, as in Storm."""
        if self.source.log is not None:
            self.replays.pass_over(np.asarray(numbers, np.int64))

    def lowest_times(
        self, streams: Mapping[str, MessageRecords], count: int
    ) -> MessageTimes | None:
        """The event times of messages; None: nobody asks for them."""
        marks = self.watermarks
        if not marks.on:
            return None
        message_times = MessageTimes([math.inf] * count)
        for stream, of_stream in streams.items():
            schema = self.output_streams.schema(stream)
            times = marks.times(stream, of_stream.records, schema)
            message_times.add(of_stream.messages, times)
        return message_times

    def open_trees(
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
        self.limit.moved_s = now
        traced = self._traces.positions(len(payloads), attempts, now) if self._traces else ()
        roots = self.pending.take(
            payloads, numbers, attempts, now, self.config.message_timeout_s, traced
        )
        if times is not None:
            self.watermarks.emitted(roots, numbers, times, now)
        self.instrument.emitted(roots, numbers, attempts, message_ids)
        for at in traced:
            attempt = attempts if isinstance(attempts, int) else int(attempts[at])
            message = Replay(int(numbers[at]), payloads[at], attempt)
            is_letter = message.number < LETTERS_END
            source = self.source
            name = message.payload.message_id if is_letter else source.message_id(message)
            self.instrument.traced(int(roots[at]), message.number, attempt, name)
        return roots

    def start_trees(
        self, roots: U64, xors: U64, errors: dict[int, BaseException], now: float
    ) -> None:
        """Report the starts to the ackers, except of records that a grouping raised for (`errors`,
        by index): those were not sent, and fail at once."""
        if not errors:
            self._reports.start(roots, xors)
            return
        bad = list(errors)
        self._reports.start(np.delete(roots, bad), np.delete(xors, bad))
        why = {int(roots[at]): no_way(self.task, errors[at]) for at in bad}
        self.failed(roots[bad], why, now)

    @property
    def next_emit_s(self) -> float:
        """When to call `emit` next: a replay is due, or there is room and the source may be polled;
        ∞ if that depends on acks. Called several times in each slice."""
        line, asks = self.replays.line, not self.awaits
        if self.is_tracked and asks:
            if not self.pending.room:
                return math.inf
            if line.in_use:
                asks = self.pending.free > len(line) or self.source.behind > 0 or bool(line.absent)
        poll_s = self.rest.until_s if asks else math.inf
        return min(poll_s, line.next_s) if line.in_use else poll_s

    @property
    def done(self) -> bool:
        """Whether nothing is left to emit, and nothing is pending."""
        is_emitted = self.source.exhausted and self.source.is_empty
        is_settled = not self.watermarks.pending_records and not len(self.replays.line)
        return is_emitted and is_settled and self.watermarks.done

    @property
    def next_look_s(self) -> float:
        """When the next deadline, sweep, check of the pending limit or poll is due."""
        limit_s = self.limit.stalls_s(is_blocked=self.output_streams.full)
        poll_s = self.source.next_poll_s if self.is_open else math.inf
        waits_s = self._say_waits_s
        return min(self.deadlines.next_s, limit_s, poll_s, self.watermarks.next_s, waits_s)

    def look(self, now: float) -> None:
        """Fail trees that are overdue, and those that a crash affected and that are incomplete."""
        self.limit.look(now, is_blocked=self.output_streams.full)
        self._time_out(self.deadlines.overdue(now), now, self.deadlines.missed("verdict"))
        for sweep in self.deadlines.ripe(now):
            self.failed(sweep.roots, sweep.failure, now)
        if self.is_open and now >= self.source.next_poll_s:
            try:
                self._drop(self.source.look(now), now)
            except Raised as raised:
                self.supervision.note(raised)
        if now >= self.watermarks.next_s:
            self.watermarks.send(now)
        if now >= self._say_waits_s:
            self._say_waits_s = math.inf
            names = " and ".join(map(repr, sorted(self.awaits)))
            self.replays.notices.say(
                f"spout {self.task.component!r} has waited for {_SAY_WAITS_S:g} s until the tables "
                f"of its joins have the records of {names}. If that source has no end, let its "
                "records() yield None when it has nothing, or declare table(wait=False)"
            )

    def heard_of(self, roots: U64, ages_s: F64, now: float) -> None:
        """An acker's answer: how long ago each tree made progress. See pending.py."""
        roots = self.deadlines.heard_of(roots, ages_s, now)
        self._time_out(roots, now, self.deadlines.missed("progress"))

    def expire(self, now: float) -> None:
        """Time out all pending trees, for an experiment."""
        failure = Failure(Cause.TIMEOUT, reason="an experiment let all deadlines pass")
        self._time_out(self.pending.all_roots(), now, failure)

    def sweep(self, now: float, failure: Failure, residues: set[int] | None, stride: int) -> None:
        """A process that may have held a part of these trees died: fail them after a grace period.

        `residues`: only slots with slot % stride in it (a dead acker shard's); None: all.
        """
        self.deadlines.sweep(now, failure, residues, stride)

    def complete(self, roots: U64, now: float) -> None:
        """Handle the ackers' report that these trees are complete."""
        reached = self.limit.adapts and self.fresh_room <= 0
        released = self.pending.release(roots)
        if self.watermarks.on:
            released = self.watermarks.completed(released, now)
        self._acked += len(released.roots)
        self.instrument.completed(released)
        self.latencies.add(latencies_s := now - released.emitted_s)
        if self.limit.adapts:
            self.limit.completed(now, latencies_s, reached=reached)
        self._last_ack_s = now
        if self.replays.replayed and self._first_replay_s is None and (released.attempts > 1).any():
            self._first_replay_s = now
        if self.replays.line.in_use:
            self.replays.settle(released.numbers[released.attempts > 1].tolist())
        if self.letters.senders:
            released = self.letters.completed(released)
        if self._hears_ack:
            self.tell_acked(self.source.settled(released))

    def failed(self, roots: U64, why: Failure | Mapping[int, Failure], now: float) -> None:
        """Fail these trees; those still pending are queued for replay.

        `why`: the failure of all of them, or root → its own.
        """
        self._fail(self.pending.release(roots), why, now)

    def suspect(self, roots: U64, failure: Failure, now: float) -> None:
        """A process died while it was executing these: charge an attempt of each.

        Trees still pending fail. Messages that the runtime failed a moment ago, by a sweep or for a
        lost frame, are charged afterwards; this takes effect when they leave the retry queue.
        """
        self._fail(self.pending.release(roots), failure, now, accused=True)
        self.replays.accuse(roots, failure)

    def accuse(self, times: Mapping[int, int], failure: Failure) -> None:
        """Charge messages, number → how often their process died in them. Called before `open`."""
        if self.source.repeats_numbers:
            self.replays.remember({n: times[n] for n in times if n != WATERMARK}, failure)

    def postpone(self, roots: U64, now: float) -> None:
        """Reset the timeout of these trees. Storm: OutputCollector.resetTimeout."""
        self.deadlines.postpone(roots, now)

    def tick(self) -> None:
        """Call the spout's tick. It cannot emit, so it does not wait for credit."""
        self.spout.tick()

    def abandon(self) -> None:
        """Stop reading the source, whatever it still has."""
        self.source.exhausted = True
        self.watermarks.stops = True
        self.source.abandon()
        if self.source.log is not None:  # other members of its group take over its partitions
            self.close()

    def drain(self) -> None:
        """Emit no new records from now on; failed ones are still replayed."""
        self.active = True
        self.watermarks.stops = True
        self.source.drain()
        self._tell_drain()

    def _tell_drain(self) -> None:
        if self.source.tells_drain and self.is_open and self.spout is not self._drained:
            self._drained = self.spout
            self.notify("drain", self.spout.drain)

    def close(self) -> TaskError | None:
        if not self.is_open:
            return None
        self.is_open = self._hears_ack = self._hears_fail = False
        try:
            return self.notify("close", self.spout.close)
        finally:
            self.source.close()

    def stats(self) -> TaskStats:
        """The task's current statistics."""
        counts = Counts(
            **self.output_streams.counts_at(self.supervision.now_s),
            acked=self._acked,
            failed=self._failed,
            replayed=self.replays.replayed,
            pending=self.watermarks.pending_records,
            dead=self.replays.dead,
            ahead=self.watermarks.ahead,
            busy_s=self.service.busy_s,
            causes=self.replays.causes,
            places=dict(self.replays.places),
        )
        times = (self.done, self._first_replay_s, self._last_ack_s if self.done else None)
        return TaskStats(
            self.task.id,
            self.task.component,
            counts,
            {LatencyKind.COMPLETE: self.latencies.copy()},
            *times,
            self.supervision.health,
            self.committed,
            self.source.drawn,
            self.source.owed,
            unsettled=self.watermarks.pending_records + len(self.replays.line),
            figures=self.figures_of(self.spout),
            failures=self.replays.groups.newest(self.replays.wall()),
            event_time=self.watermarks.event_time,
            awaits=tuple(sorted(self.awaits)),
            has_filled=self.has_filled(),
            limit=self.pending.limit if self.is_tracked else None,
            oldest_s=self.pending.oldest_s(self.supervision.now_s),
        )

    def pulse(self) -> tuple[object, ...]:
        sent = (self.output_streams.emitted, self.output_streams.transferred, self.replays.replayed)
        pending = self.watermarks.pending_records
        ended = (self._acked, self._failed, self.replays.dead, pending, self.done, self.awaits)
        return *sent, *ended, self.has_filled(), *self.supervision.pulse

    @property
    def is_held(self) -> bool:
        """Whether it emits nothing new because receivers have no credit, or as many trees are open
        as are allowed."""
        waits = self.output_streams.full or (not self.source.exhausted and self.fresh_room <= 0)
        return waits and self.active and not self.done

    @property
    def fresh_room(self) -> int:
        """How many new records may be emitted. A queued message keeps its slot, but does not count
        against an adaptive limit: one message that keeps failing must not block the others."""
        if self.source.behind or self.watermarks.lags or self.awaits:
            return 0
        if not self.is_tracked:
            return _NO_LIMIT
        room = self.pending.room
        if self.replays.line.in_use:
            room = min(room, self.pending.free - len(self.replays.line))
        return room

    def tell_acked(self, message_ids: Iterable[Any]) -> None:
        """Call the spout's `ack` for each; an error of it is only recorded."""
        waiting = iter(message_ids)
        while True:
            try:
                for message_id in waiting:
                    self.spout.ack(message_id)
                return
            except user_errors() as error:
                self.supervision.note(as_raised(self.task, "ack", error))

    def _time_out(self, roots: U64, now: float, failure: Failure) -> None:
        if len(roots):
            self.limit.timed_out(now)
            self.failed(roots, failure, now)

    def _fail(
        self,
        released: Released,
        why: Failure | Mapping[int, Failure],
        now: float,
        *,
        accused: bool = False,
    ) -> None:
        held = self.deadlines.held
        if self.watermarks.on:
            released = self.watermarks.failed(released, why, now, held=held)
        self._failed += len(released.roots)
        reported = [why if isinstance(why, Failure) else why[r] for r in released.roots.tolist()]
        self.instrument.failed(released, reported)
        failures = self.source.judged(released, reported)
        message_ids = self.source.message_ids(released)
        if self.letters.senders:
            message_ids = self.letters.named(released, message_ids)
        self.replays.fail(released, message_ids, failures, now, accused=accused, held=held)
        if self.replays.keeps and len(released.roots):
            self._reports.failed.append(released.roots)
        if self._hears_fail:
            for index in (released.numbers >= LETTERS_END).nonzero()[0].tolist():
                heard = replace(failures[index], attempt=int(released.attempts[index]))
                self.notify("fail", partial(self.spout.fail, message_ids[index], heard))
