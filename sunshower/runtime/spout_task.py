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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np

from sunshower.config import Config
from sunshower.failures import Cause, Failure
from sunshower.runtime.batch import Anchors
from sunshower.runtime.credits import ServiceTime
from sunshower.runtime.ids import I64, U64, slots_of
from sunshower.runtime.metrics import Counts, Latencies, TaskStats
from sunshower.runtime.outlets import Outlets
from sunshower.runtime.pending import Pending, Released
from sunshower.runtime.plan import Task
from sunshower.runtime.replays import Replays
from sunshower.runtime.reports import Reports
from sunshower.runtime.retries import Replay, Retries
from sunshower.topologies.components import DEFAULT, Context, Spout
from sunshower.topologies.retry import DEAD_LETTERS, DeadLetter

_FIRST_REST_S = 0.001
_NO_LIMIT = 1 << 62


@dataclass(frozen=True, slots=True)
class Sweep:
    """Roots that a death may have touched: those still pending at `due_s` have failed."""

    due_s: float
    roots: U64
    failure: Failure


class SpoutTask:
    """What all spouts share; the two levels below it only differ in how they emit."""

    def __init__(
        self,
        task: Task,
        spout: Spout[Any],
        pending: Pending,
        outlets: Outlets,
        reports: Reports,
        config: Config,
        retries: Retries,
    ) -> None:
        self.task = task
        self.spout = spout
        self.pending = pending
        self.outlets = outlets
        self.exhausted = False
        self.latencies = Latencies()
        self.service = ServiceTime(config)
        self.replays = Replays(task, retries, config.replay_share, self, keeps=spout.replay)
        self._reports = reports
        self._config = config
        self._sweeps: list[Sweep] = []
        self._acked = self._failed = 0
        self._first_replay_s: float | None = None
        self._done_s: float | None = None
        self.resting_until_s = 0.0  # the source had nothing: when to ask again
        self._rest_s = _FIRST_REST_S
        self._hears_ack = type(spout).ack is not Spout.ack
        self._hears_fail = type(spout).fail is not Spout.fail

    def open(self, context: Context) -> None:
        """Get ready; called once, before the first emit."""
        self.spout.open(context)

    def emit(self, now: float, limit: int) -> int:
        """Emit up to `limit` records, replays first. Returns how many."""
        raise NotImplementedError

    def rest(self, now: float) -> None:
        """The source had nothing: ask less and less often, every `idle_poll_s` in the end."""
        self.resting_until_s = now + self._rest_s
        self._rest_s = min(2 * self._rest_s, self._config.idle_poll_s)

    def wake(self) -> None:
        """There was something."""
        self.resting_until_s, self._rest_s = 0.0, _FIRST_REST_S

    @property
    def next_emit_s(self) -> float:
        """When to call `emit` next: a replay is due, or there is room and the source may be asked;
        ∞ if that depends on others."""
        if self._reports.tracked and not self.pending.room:
            return math.inf
        source_s = self.resting_until_s if self._fresh_room > 0 else math.inf
        return min(source_s, self.replays.line.next_s)

    @property
    def done(self) -> bool:
        """Nothing left to emit, nothing pending."""
        return self.exhausted and not len(self.pending) and not len(self.replays.line)

    @property
    def next_look_s(self) -> float:
        """The time of the next deadline or sweep."""
        return min([self.pending.next_deadline_s, *(sweep.due_s for sweep in self._sweeps)])

    def look(self, now: float) -> None:
        """Fail what is overdue, and what a death has touched and nobody has completed."""
        due = self.pending.expired(now)
        if len(due):
            reason = f"no verdict within {self._config.message_timeout_s:g} s"
            self.failed(due, Failure(Cause.TIMEOUT, reason=reason), now)
        if self._sweeps and self.next_look_s <= now:
            ripe = [sweep for sweep in self._sweeps if sweep.due_s <= now]
            self._sweeps = [sweep for sweep in self._sweeps if sweep.due_s > now]
            for sweep in ripe:
                self.failed(sweep.roots, sweep.failure, now)

    def sweep(self, now: float, failure: Failure, residues: set[int] | None, stride: int) -> None:
        """Somebody died who may have held a part of these trees: wait a grace, then fail them.

        `residues`: only slots with slot % stride in it (a dead acker shard's); None: all.
        """
        roots = self.pending.all_roots()
        if residues is not None:
            roots = roots[np.isin(slots_of(roots) % stride, sorted(residues))]
        if len(roots):
            self._sweeps.append(Sweep(now + self._config.sweep_grace_s, roots, failure))

    def complete(self, roots: U64, now: float) -> None:
        """The ackers say that these trees are done."""
        released = self.pending.release(roots)
        self._acked += len(released.roots)
        self.latencies.add(now - released.emitted_s)
        self._done_s = now if self.done else None
        if self.replays.replayed and self._first_replay_s is None and (released.attempts > 1).any():
            self._first_replay_s = now
        if self.replays.line.remembers:
            self.replays.settle(released.numbers.tolist())
        if self._hears_ack:
            for message_id in self._message_ids(released):
                self.spout.ack(message_id)

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

    def postpone(self, roots: U64, now: float) -> None:
        """A bolt asked for more time. Storm: OutputCollector.resetTimeout."""
        self.pending.postpone(roots, now + self._config.message_timeout_s)

    def drain(self) -> None:
        """Emit nothing new from now on."""
        self.exhausted = True

    def close(self) -> None:
        """The topology stops."""
        self.spout.close()

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
        latencies = Latencies(self.latencies.counts.copy())
        return TaskStats(
            self.task.id,
            self.task.component,
            counts,
            latencies,
            self.done,
            self._first_replay_s,
            self._done_s,
        )

    def message_id(self, replay: Replay) -> Any:
        """The message id of a message in line."""
        raise NotImplementedError

    def values(self, replay: Replay) -> dict[str, Any]:
        """Its record, which is no dead letter yet, as field → value."""
        raise NotImplementedError

    def letter_payload(self, replay: Replay, letter: DeadLetter) -> Any:
        """What to keep of a message from now on: its dead letter."""
        return letter

    @property
    def _fresh_room(self) -> int:
        """How many fresh records may be taken in: what is in line keeps its place."""
        if not self._reports.tracked:
            return _NO_LIMIT
        return self.pending.room - len(self.replays.line)

    def _message_ids(self, released: Released) -> list[Any]:
        raise NotImplementedError

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
        message_ids = self._message_ids(released)
        self.replays.fail(released, message_ids, failures, now, accused=accused)
        if self._hears_fail:
            attempts = released.attempts.tolist()
            for message_id, attempt, failure in zip(message_ids, attempts, failures, strict=True):
                self.spout.fail(message_id, replace(failure, attempt=attempt))


class RecordsSpoutTask(SpoutTask):
    """The simple level: records() is drained in bulk; message ids are positions in it."""

    _source: Iterator[Any]
    _position = 0

    def open(self, context: Context) -> None:
        super().open(context)
        self._source = self._watched()

    def _watched(self) -> Iterator[Any]:
        yield from self._records()
        self.exhausted = True

    def _records(self) -> Iterator[Any]:
        return self.spout.records()

    def emit(self, now: float, limit: int) -> int:
        if self._reports.tracked:
            limit = min(limit, self.pending.room)
        replays, wanted = self.replays.share_out(now, limit, self._fresh_room)
        fresh = [] if self.exhausted else self._draw(wanted)
        if len(fresh) < wanted:  # the source has nothing now
            replays = limit - len(fresh)
        again, letters = self.replays.take(replays, len(fresh))
        first, self._position = self._position, self._position + len(fresh)
        numbers: I64 = np.arange(first, self._position)
        records = fresh
        attempts: Any = 1
        if again:
            records = [replay.payload for replay in again] + fresh
            numbers = np.concatenate(([replay.number for replay in again], numbers))
            attempts = [replay.attempt for replay in again] + [1] * len(fresh)
        if records:
            self._send(DEFAULT, records, records, numbers, attempts, now)
        self._send_letters(letters, now)
        return len(records) + len(letters)

    def _draw(self, count: int) -> list[Any]:
        """Up to `count` records that are there now."""
        there_now = iter(self._source.__next__, None)  # stops at a None, without a Python loop
        fresh = list(islice(there_now, count))
        bad = self.outlets.check(DEFAULT, fresh)
        if bad is not None:
            raise self.outlets.misfit_error(DEFAULT, fresh[bad])
        return fresh

    def _send(
        self,
        stream: str,
        records: Any,
        payloads: Sequence[Any],
        numbers: Sequence[int] | I64,
        attempts: Any,
        now: float,
    ) -> None:
        """Emit `records`; `payloads` is what to keep of each until it is acked."""
        if not self._reports.tracked:
            self.outlets.send(stream, records, None)
            return
        timeout_s = self._config.message_timeout_s
        roots = self.pending.take(payloads, numbers, attempts, now, timeout_s)
        made = self.outlets.send(stream, records, Anchors(roots))
        assert made is not None
        self._reports.start(roots, made)

    def _send_letters(self, letters: list[Replay], now: float) -> None:
        if letters:
            numbers, records, attempts = zip(*letters, strict=True)
            self._send(DEAD_LETTERS, list(records), records, numbers, attempts, now)

    def message_id(self, replay: Replay) -> Any:
        return replay.number

    def values(self, replay: Replay) -> dict[str, Any]:
        schema = self.outlets.outlet(DEFAULT).spec.schema
        (values,) = schema.rows([replay.payload])
        return dict(zip(schema.fields, values, strict=True))

    def _message_ids(self, released: Released) -> list[Any]:
        ids: list[Any] = released.numbers.tolist()
        return ids
