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
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, cast

from sunshower.config import Config
from sunshower.errors import user_errors
from sunshower.failures import Cause, Failure
from sunshower.runtime.events.health import TaskError
from sunshower.runtime.events.instrument import Instrument
from sunshower.runtime.events.metrics import Counts, Latencies, LatencyKind, TaskStats
from sunshower.runtime.tasks.letter_replays import LetterReplays
from sunshower.runtime.tasks.spouts.replays import Replays
from sunshower.runtime.tasks.spouts.retry_queue import LETTERS_END, RetryQueue
from sunshower.runtime.tasks.spouts.source import SpoutSource
from sunshower.runtime.tasks.spouts.spout_output import SpoutOutput
from sunshower.runtime.tasks.spouts.watermark_sender import WATERMARK, WatermarkSender
from sunshower.runtime.tasks.supervision import Supervised, Supervision
from sunshower.runtime.tasks.task_transfer import TaskTransfer
from sunshower.runtime.tasks.user_code import as_raised, guard
from sunshower.runtime.tracking.congestion_control import PendingLimit
from sunshower.runtime.tracking.ids import U64
from sunshower.runtime.tracking.pending import F64, Deadlines, Pending, Released
from sunshower.runtime.tracking.reports import Reports
from sunshower.runtime.transport.channels import ServiceTime
from sunshower.runtime.transport.output_streams import OutputStreams
from sunshower.topologies.components import Context, Spout

_NO_LIMIT = 1 << 62
_SAY_WAITS_S = 60.0


# ---- poll backoff --------------------------------------------------------------------------------

_SHARE = 1 / 16  # the next record waits at most this share of the gap before it
_SHORTEST_S = 0.001


class PollBackoff:
    """The poll back-off of one spout task: up to `longest_s` (`idle_poll_s`)."""

    def __init__(self, longest_s: float) -> None:
        self.until_s = 0.0
        self._shortest_s = _SHORTEST_S
        self._since_s: float | None = None  # the first poll without a record
        self._longest_s = longest_s

    def share_worker(self, spouts: int) -> None:
        """Poll so much less often that all spout tasks of a worker together poll 1,000 times a
        second at most: a poll that finds nothing costs up to 0.1 ms."""
        self._shortest_s = _SHORTEST_S * spouts

    def begin(self, now: float) -> None:
        """The source had nothing: wait for a share of the time since it first had nothing."""
        if self._since_s is None:
            self._since_s = now
        idle_s = now - self._since_s
        self.until_s = now + min(max(self._shortest_s, _SHARE * idle_s), self._longest_s)

    def end(self) -> None:
        """The source had records: poll again at once."""
        self.until_s, self._since_s = 0.0, None


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
        self.exhausted = self.is_open = False
        self.active = True  # whether it may emit at all
        self.latencies = Latencies()
        self.service = ServiceTime(config)
        self.is_tracked = reports.tracked
        self.watermarks = WatermarkSender(self, pending, reports, retries, config)
        self.output = SpoutOutput(self, pending, reports, config)
        self.config, self._reports = config, reports
        self.deadlines = Deadlines(config, pending, reports)
        self._acked = self._failed = 0
        self._first_replay_s = self._last_ack_s = cast("float | None", None)
        self.rest = PollBackoff(config.idle_poll_s)  # of the source
        self.limit = PendingLimit(config, pending)
        self.tells = True  # whether the user's spout gets calls of `ack` and `fail`
        self._hears_ack = self._hears_fail = False
        self.source = make_source(self)
        self.awaits: frozenset[str] = frozenset()  # the spouts that fill its tables, as long as
        # these are not filled: it draws no record
        self._say_waits_s = math.inf  # when to log that it still waits
        self._filling: set[int] | None = None  # messages of the first reading that are not settled
        self.letters = LetterReplays(self, pending, retries)
        self.replays = Replays(self.task, retries, config, self.source, self.letters, instrument)

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
        self.watermarks.function, self.watermarks.wall = spout.event_time, context.clock.wall
        self.replays.keeps = spout.replay
        if not spout.replay:
            self.limit.lift()
        self._hears_ack = self.tells and self.source.listens(spout)
        self._hears_fail = self.tells and type(spout).fail is not Spout.fail

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
        if not (source.has_read_first or self.exhausted):
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
        return self.source.committed

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
        reason = "tasks changed places before it was processed"
        self.failed(self.pending.all_roots(), Failure(Cause.REBALANCED, reason=reason), now)
        self.letters.forget()
        stays = stays and self.source.may_stay
        line, drawn = self.replays.line, self.source.drawn
        transfer = TaskTransfer(self.committed, drawn, charges=line.charges)
        transfer.event_times = self.watermarks.queued
        transfer.times_ahead = self.watermarks.queued_ahead
        if stays or not self.source.repeats_numbers:  # else these are read again
            transfer.waiting, transfer.exhausted = line.waiting, self.exhausted
        if stays:
            transfer.instance = self.spout
        self.source.pack(transfer, stays=stays)
        return transfer

    def unpack(self, transfer: TaskTransfer, context: Context) -> None:
        """Continue from `transfer`, instead of `open`. If this raises, all of it is done again."""
        if transfer.instance is not None:
            guard(self.task, "prepare of a custom grouping", self.output_streams.prepare)
            self._adopt(transfer.instance, context)
        elif self.source.repeats_numbers:
            self.source.begin_after(transfer)
            self.replays.inherit(transfer.charges)
            self.open(context)
            return
        else:
            self.open(context)
        self.source.unpack(transfer)
        self.exhausted |= transfer.exhausted
        self.replays.line.adopt(transfer.waiting, transfer.charges)
        self.watermarks.queued |= transfer.event_times
        # Savepoints of earlier releases do not have it.
        self.watermarks.queued_ahead.update(getattr(transfer, "times_ahead", ()))

    def activate(self) -> None:
        """Emit from now on. Storm: ISpout.activate."""
        self.active = True
        self.rest.end()
        if self.spout is not None:
            self.notify("activate", self.spout.activate)

    def deactivate(self) -> None:
        """Emit nothing from now on, not even replays: in Storm both come from nextTuple."""
        self.active = False
        if self.spout is not None:
            self.notify("deactivate", self.spout.deactivate)

    def emit(self, now: float, limit: int) -> int:
        """Emit up to `limit` records, replays first. Returns how many.

        Raises Raised if the source raised, after emitting the records it had returned before.
        """
        source, line = self.source, self.replays.line
        if self.is_tracked and source.tracks_all:
            limit = min(limit, self.pending.room)
        if line.absent:
            source.read_again(now)
        room = self.fresh_room
        replays, wanted = self.replays.share_out(now, limit, room)
        if room > 0 and not source.tracks_all:
            wanted = limit - replays  # untracked records need no room
        drawn = source.draw(wanted, now)
        if not drawn.count and not line and source.error is None:
            return 0
        if drawn.count < wanted and not drawn.has_more:
            replays = limit - drawn.count
        if self.is_tracked:
            replays = min(replays, self.pending.room - len(drawn.numbers))
        attempts: Any = 1
        if self.replays.remembers_attempts:
            emit, attempts = self.replays.recognise(drawn.numbers, drawn.payloads)
            drawn, attempts = drawn.only(emit), attempts[emit]
        again = self.replays.take(replays, len(drawn.records))
        if again:
            self.replays.send(again, self.output_streams, now)
        if len(drawn.records):
            source.send(drawn, attempts, now)
        if source.error is not None:
            error, source.error = source.error, None
            if len(drawn.records):
                self.supervision.went_well(now, progress=True)
            raise error
        return len(again) + drawn.count

    @property
    def next_emit_s(self) -> float:
        """When to call `emit` next: a replay is due, or there is room and the source may be polled;
        ∞ if that depends on acks. Called several times in each slice."""
        line, asks = self.replays.line, not self.awaits
        if self.is_tracked and asks:
            if not self.pending.room:
                return math.inf
            asks = self.pending.free > len(line) or self.source.behind > 0 or bool(line.absent)
        return min(self.rest.until_s if asks else math.inf, line.next_s)

    @property
    def done(self) -> bool:
        """Whether nothing is left to emit, and nothing is pending."""
        is_emitted = self.exhausted and self.source.is_empty
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
            self.source.look(now)
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
        released = self.watermarks.completed(self.pending.release(roots), now)
        self._acked += len(released.roots)
        self.instrument.completed(released)
        self.latencies.add(latencies_s := now - released.emitted_s)
        self.limit.completed(now, latencies_s, reached=reached)
        self._last_ack_s = now
        if self.replays.replayed and self._first_replay_s is None and (released.attempts > 1).any():
            self._first_replay_s = now
        if self.replays.line.remembers:
            self.replays.settle(released.numbers[released.attempts > 1].tolist())
        released = self.letters.completed(released)
        if self._hears_ack:
            self.source.tell_completed(released)

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
        self.exhausted = True
        self.watermarks.stops = True
        self.source.abandon()

    def drain(self) -> None:
        """Emit no new records from now on; failed ones are still replayed."""
        self.active = True
        self.watermarks.stops = True
        self.source.drain()

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
            failures=self.replays.samples.newest(),
            event_time=self.watermarks.event_time,
            awaits=tuple(sorted(self.awaits)),
            has_filled=self.has_filled(),
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
        waits = self.output_streams.full or (not self.exhausted and self.fresh_room <= 0)
        return waits and self.active and not self.done

    @property
    def fresh_room(self) -> int:
        """How many new records may be emitted. A queued message keeps its slot, but does not count
        against an adaptive limit: one message that keeps failing must not block the others."""
        if self.source.behind or self.watermarks.lags or self.awaits:
            return 0
        if not self.is_tracked:
            return _NO_LIMIT
        return min(self.pending.room, self.pending.free - len(self.replays.line))

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
        released = self.watermarks.failed(released, why, now, held=held)
        self._failed += len(released.roots)
        failures = [why if isinstance(why, Failure) else why[r] for r in released.roots.tolist()]
        self.instrument.failed(released, failures)
        message_ids = self.letters.named(released, self.source.message_ids(released))
        self.replays.fail(released, message_ids, failures, now, accused=accused, held=held)
        if self.replays.keeps and len(released.roots):
            self._reports.failed.append(released.roots)
        if self._hears_fail:
            for index in (released.numbers >= LETTERS_END).nonzero()[0].tolist():
                heard = replace(failures[index], attempt=int(released.attempts[index]))
                self.notify("fail", partial(self.spout.fail, message_ids[index], heard))
