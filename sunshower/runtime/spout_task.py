"""One spout task: it emits while there is room, and answers for every record until it is acked.

    source ──▶ emitted ──complete──▶ acked
                 ▲   └──failed, expired, swept──▶ failed ──▶ in line to be replayed ─┐
                 ├───────────────────── waited its back-off ─────────────────────────┤
                 └── as a dead letter ── attempts used up, or else the run halts ────┘

What is pending and what is in line share the places of `spout_pending`. So whatever leaves the line
finds a place: nobody waits for anybody.
Storm: org.apache.storm.executor.spout.SpoutExecutor. There a failed tuple is the spout's own
matter; here the framework keeps the record and emits it again, unless `replay` is False.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from sunshower.config import Config
from sunshower.failures import Cause, Failure
from sunshower.runtime import chronicle
from sunshower.runtime.bolt_task import untracked
from sunshower.runtime.credits import ServiceTime
from sunshower.runtime.deadlines import Deadlines
from sunshower.runtime.ids import I64, U64
from sunshower.runtime.luggage import Luggage
from sunshower.runtime.metrics import Counts, Latencies, TaskStats
from sunshower.runtime.outlets import Outlets
from sunshower.runtime.pending import F64, Pending, Released
from sunshower.runtime.pending_limit import PendingLimit
from sunshower.runtime.replays import Replays
from sunshower.runtime.reports import Reports
from sunshower.runtime.resting import Rest
from sunshower.runtime.retries import Replay, Retries
from sunshower.runtime.supervision import Supervised, Supervision
from sunshower.runtime.usercode import RAISED, TaskError, blame, guard, no_way
from sunshower.topologies.components import Context, Spout
from sunshower.topologies.retry import DeadLetter

_NO_LIMIT = 1 << 62


class SpoutTask(Supervised):
    """What all spouts share; the levels below it only differ in how they emit."""

    def __init__(
        self,
        supervision: Supervision,
        make: Callable[[], Spout[Any]],
        pending: Pending,
        outlets: Outlets,
        reports: Reports,
        config: Config,
        retries: Retries,
    ) -> None:
        super().__init__(supervision)
        self.spout: Any = None  # until it is open
        self._make = make
        self.pending = pending
        self.outlets = outlets
        self.exhausted = False
        self.active = True  # whether it may emit at all
        self.latencies = Latencies()
        self.service = ServiceTime(config)
        self.replays = Replays(self.task, retries, config.replay_share, self)
        self._reports = reports
        self._config = config
        self.deadlines = Deadlines(config, pending, reports)
        self._acked = self._failed = 0
        self._first_replay_s: float | None = None
        self._done_s: float | None = None
        self.rest = Rest(config.idle_poll_s)  # of the source
        self.limit = PendingLimit(config, pending)
        self._hears_ack = self._hears_fail = False

    def open(self, context: Context) -> None:
        """Make the spout and get it ready, before the first emit. Raises Raised; then it may be
        called again, and a new spout is made."""
        spout = guard(self.task, "the constructor", self._make)
        guard(self.task, "prepare of a custom grouping", self.outlets.prepare)
        guard(self.task, "open", partial(spout.open, context))
        self._adopt(spout)

    def _adopt(self, spout: Spout[Any]) -> None:
        self.spout = spout
        self.replays.keeps = spout.replay
        if not spout.replay:
            self.limit.lift()
        self._hears_ack = type(spout).ack is not Spout.ack
        self._hears_fail = type(spout).fail is not Spout.fail

    def begin_at(self, position: int, drawn: int = 0, owed: int | None = None) -> None:
        """Go on after the first `position` records, which are settled; a former life had drawn the
        first `drawn`, and none from `owed` on (None: nobody knows). Called before `open`. Where
        `next_tuple` begins is the spout's own matter."""

    @property
    def committed(self) -> int:
        """The lowest message number that is not settled: pending, in line, or not drawn."""
        return 0

    @property
    def drawn(self) -> int:
        """The number of the record that is drawn next."""
        return 0

    @property
    def behind(self) -> int:
        """Records that the source is still going to repeat, and that are skipped."""
        return 0

    def resume(self, context: Context) -> None:
        if self.spout is None:
            self.open(context)

    def skip(self) -> int:
        """Pass over some of what is settled. Returns how many records: 0 if none is there now."""
        raise NotImplementedError

    def pack(self, *, stays: bool, now: float) -> Luggage:
        """What goes along into the next life. What is pending is in line to be emitted again."""
        reason = "tasks changed places before it was processed"
        self.failed(self.pending.all_roots(), Failure(Cause.REBALANCED, reason=reason), now)
        luggage = Luggage(self.committed, self.drawn, blames=self.replays.line.blames)
        if stays:
            luggage.waiting, luggage.instance = self.replays.line.waiting, self.spout
            luggage.exhausted = self.exhausted
        return luggage

    def unpack(self, luggage: Luggage, context: Context) -> None:
        """Go on with `luggage`, instead of `open`."""
        if luggage.instance is None:
            self.open(context)
            self._restore(luggage.state)  # may raise: then all of this is done again
        else:
            guard(self.task, "prepare of a custom grouping", self.outlets.prepare)
            self._adopt(luggage.instance)
        self.exhausted |= luggage.exhausted
        self.replays.line.adopt(luggage.waiting, luggage.blames)

    def _restore(self, state: Any) -> None:
        """Give a new spout what its `snapshot` had returned elsewhere."""

    def activate(self) -> None:
        """Emit from now on. Storm: ISpout.activate."""
        self.active = True
        self.rest.end()
        if self.spout is not None:
            self.hear("activate", self.spout.activate)

    def deactivate(self) -> None:
        """Emit nothing from now on, no replays either: in Storm both come from nextTuple."""
        self.active = False
        if self.spout is not None:
            self.hear("deactivate", self.spout.deactivate)

    def emit(self, now: float, limit: int) -> int:
        """Emit up to `limit` records, replays first. Returns how many.

        Raises Raised when the source has raised; what it had given before is emitted.
        """
        raise NotImplementedError

    @property
    def next_emit_s(self) -> float:
        """When to call `emit` next: a replay is due, or there is room and the source may be asked;
        ∞ if that depends on others. Looked at several times in each slice."""
        asks = True
        if self._reports.tracked:
            if not self.pending.room:
                return math.inf
            asks = self.pending.free > len(self.replays.line) or self.behind > 0
        return min(self.rest.until_s if asks else math.inf, self.replays.line.next_s)

    @property
    def done(self) -> bool:
        """Nothing left to emit, nothing pending."""
        return self.exhausted and not len(self.pending) and not len(self.replays.line)

    @property
    def next_look_s(self) -> float:
        """The time of the next deadline or sweep, or when to look whether the limit is too low."""
        return min(self.deadlines.next_s, self.limit.stalls_s(is_blocked=self.outlets.full))

    def look(self, now: float) -> None:
        """Fail what is overdue, and what a death has touched and nobody has completed."""
        self.limit.look(now, is_blocked=self.outlets.full)
        self._time_out(self.deadlines.overdue(now), now)
        for sweep in self.deadlines.ripe(now):
            self.failed(sweep.roots, sweep.failure, now)

    def heard_of(self, roots: U64, ages_s: F64, now: float) -> None:
        """An acker's answer: how long ago each was last heard of. See progress.py."""
        self._time_out(self.deadlines.heard_of(roots, ages_s, now), now)

    def expire(self, now: float) -> None:
        """An experiment wants all that is pending to have timed out."""
        failure = Failure(Cause.TIMEOUT, reason="an experiment let all deadlines pass")
        self._time_out(self.pending.all_roots(), now, failure)

    def sweep(self, now: float, failure: Failure, residues: set[int] | None, stride: int) -> None:
        """Somebody died who may have held a part of these trees: wait a grace, then fail them.

        `residues`: only slots with slot % stride in it (a dead acker shard's); None: all.
        """
        self.deadlines.sweep(now, failure, residues, stride)

    def complete(self, roots: U64, now: float) -> None:
        """The ackers say that these trees are done."""
        reached = self.limit.adapts and self._fresh_room <= 0
        released = self.pending.release(roots)
        self._acked += len(released.roots)
        if self.scribe is not None and len(released.roots):
            chronicle.completed(self.scribe, self.task.id, released)
        latencies_s = now - released.emitted_s
        self.latencies.add(latencies_s)
        self.limit.completed(now, latencies_s, reached=reached)
        self._done_s = now if self.done else None
        if self.replays.replayed and self._first_replay_s is None and (released.attempts > 1).any():
            self._first_replay_s = now
        if self.replays.line.remembers:
            self.replays.settle(released.numbers[released.attempts > 1].tolist())
        if self._hears_ack:
            self._tell_completed(released)

    def failed(self, roots: U64, why: Failure | Mapping[int, Failure], now: float) -> None:
        """These trees failed; those still pending are put in line to be emitted again.

        `why`: the failure of all of them, or root → its own.
        """
        self._fail(self.pending.release(roots), why, now)

    def suspect(self, roots: U64, failure: Failure, now: float) -> None:
        """A process died while it was executing these: whatever the cause, an attempt of each.

        Those still pending fail. Of those that the machinery has failed a moment ago, by the sweep
        or for a lost frame, the blame comes after; it shows when they leave the line.
        """
        self._fail(self.pending.release(roots), failure, now, accused=True)
        self.replays.accuse(roots, failure)

    def accuse(self, times: Mapping[int, int], failure: Failure) -> None:
        """Message number → how often this task's own process died while executing its record;
        called before `open`, when no record is there yet."""
        self.replays.remember(times, failure)

    def postpone(self, roots: U64, now: float) -> None:
        """A bolt asked for more time. Storm: OutputCollector.resetTimeout."""
        self.deadlines.postpone(roots, now)

    def tick(self) -> None:
        """Call the spout's tick. Nothing can be emitted there, so nothing waits for room."""
        self.spout.tick()

    def abandon(self) -> None:
        """Its source is not asked any more, whatever it still has."""
        self.exhausted = True

    def drain(self) -> None:
        """Emit nothing fresh from now on; what fails is emitted again."""
        self.exhausted = self.active = True

    def close(self) -> TaskError | None:
        return None if self.spout is None else self.hear("close", self.spout.close)

    def stats(self) -> TaskStats:
        """The task at this moment."""
        counts = Counts(
            emitted=self.outlets.emitted,
            transferred=self.outlets.transferred,
            acked=self._acked,
            failed=self._failed,
            replayed=self.replays.replayed,
            pending=len(self.pending),
            dead=self.replays.dead,
            causes={cause.value: count for cause, count in self.replays.causes.items()},
        )
        return TaskStats(
            self.task.id,
            self.task.component,
            counts,
            Latencies(self.latencies.counts.copy()),
            self.done,
            self._first_replay_s,
            self._done_s,
            self.supervision.health,
            self.committed,
            self.drawn,
            unsettled=len(self.pending) + len(self.replays.line),
            figures=self.figures_of(self.spout),
        )

    def pulse(self) -> tuple[object, ...]:
        sent = (self.outlets.emitted, self.outlets.transferred, self.replays.replayed)
        ended = (self._acked, self._failed, self.replays.dead, len(self.pending), self.done)
        return *sent, *ended, *self.supervision.pulse

    def message_id(self, replay: Replay) -> Any:
        raise NotImplementedError

    def values(self, replay: Replay) -> dict[str, Any]:
        raise NotImplementedError

    def letter_payload(self, replay: Replay, letter: DeadLetter) -> Any:
        """What to keep of a message from now on: its dead letter."""
        return letter

    @property
    def _fresh_room(self) -> int:
        """How many fresh records may be taken in. What is in line keeps its slot, but does not
        count to a limit that adapts: one message that keeps failing must not hold up the others."""
        if not self._reports.tracked:
            return _NO_LIMIT
        return min(self.pending.room, self.pending.free - len(self.replays.line))

    def _message_ids(self, released: Released) -> list[Any]:
        raise NotImplementedError

    def _tell_completed(self, released: Released) -> None:
        self._tell_acked(self._message_ids(released))

    def _tell_acked(self, message_ids: list[Any]) -> None:
        """Each stays acked, whatever the spout says to it."""
        waiting = iter(message_ids)
        while True:
            try:
                for message_id in waiting:
                    self.spout.ack(message_id)
                return
            except RAISED as error:
                self.supervision.note(blame(self.task, "ack", error))

    def _take(
        self,
        payloads: Sequence[Any],
        numbers: Sequence[int] | I64,
        attempts: Any,
        now: float,
        message_ids: list[Any] | None = None,
    ) -> U64:
        """Roots for what is about to be sent; `message_ids`: if they are not the numbers."""
        self.limit.opened(now)
        roots = self.pending.take(payloads, numbers, attempts, now, self._config.message_timeout_s)
        if self.scribe is not None and len(roots):
            chronicle.emitted(self.scribe, self.task.id, roots, numbers, attempts, message_ids)
        return roots

    def _start(self, roots: U64, made: U64, errors: dict[int, BaseException], now: float) -> None:
        """Tell the ackers; but not of the records that groupings raised for (`errors`, by index):
        nothing of those was sent, and they fail at once."""
        if not errors:
            self._reports.start(roots, made)
            return
        bad = list(errors)
        self._reports.start(np.delete(roots, bad), np.delete(made, bad))
        why = {int(roots[index]): no_way(self.task, errors[index]) for index in bad}
        self.failed(roots[bad], why, now)

    def _note_untracked(self, errors: Iterable[BaseException]) -> None:
        """Records without a way that nobody follows: the first one is told at the end."""
        for error in errors:
            self.untracked = self.untracked or untracked(no_way(self.task, error))

    def _time_out(self, roots: U64, now: float, failure: Failure | None = None) -> None:
        if len(roots):
            self.limit.timed_out(now)
            self.failed(roots, failure or self.deadlines.missed, now)

    def _fail(
        self,
        released: Released,
        why: Failure | Mapping[int, Failure],
        now: float,
        *,
        accused: bool = False,
    ) -> None:
        count = len(released.roots)
        self._failed += count
        failures = (
            [why] * count
            if isinstance(why, Failure)
            else [why[root] for root in released.roots.tolist()]
        )
        if self.scribe is not None and count:
            chronicle.failed(self.scribe, self.task.id, released, failures)
        message_ids = self._message_ids(released)
        held = self.deadlines.held
        self.replays.fail(released, message_ids, failures, now, accused=accused, held=held)
        if self.replays.keeps and count:
            self._reports.failed.append(released.roots)
        if self._hears_fail:
            attempts = released.attempts.tolist()
            for message_id, attempt, failure in zip(message_ids, attempts, failures, strict=True):
                heard = replace(failure, attempt=attempt)
                self.hear("fail", partial(self.spout.fail, message_id, heard))
