"""One spout task: it emits while there is room, and answers for every record until it is acked.

    source ──▶ emitted ──complete──▶ acked
                 ▲   └──failed, expired, swept──▶ failed ──▶ in line to be replayed ─┐
                 └───────────────────────────────────────────────────────────────────┘

Storm: org.apache.storm.executor.spout.SpoutExecutor. There a failed tuple is the spout's own
matter; here the framework keeps the record and emits it again, unless `replay` is False.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np

from sunshower.config import Config
from sunshower.errors import TopologyFailed
from sunshower.failures import Cause, Failure
from sunshower.runtime.batch import Anchors
from sunshower.runtime.credits import ServiceTime
from sunshower.runtime.ids import I64, U64, slots_of
from sunshower.runtime.luggage import Luggage
from sunshower.runtime.metrics import Counts, Latencies, TaskStats
from sunshower.runtime.outlets import Outlets
from sunshower.runtime.pending import Pending, Released
from sunshower.runtime.plan import Task
from sunshower.runtime.reports import Reports
from sunshower.topologies.components import DEFAULT, Context, Spout

_FIRST_REST_S = 0.001
_END = object()


@dataclass(frozen=True, slots=True)
class Replay:
    """A record in line to be emitted again."""

    payload: Any
    number: int
    attempt: int


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
    ) -> None:
        self.task = task
        self.spout = spout
        self.pending = pending
        self.outlets = outlets
        self.exhausted = False
        self.active = True  # whether it may emit at all
        self.latencies = Latencies()
        self.service = ServiceTime(config)
        self._reports = reports
        self._config = config
        self._replays: deque[Replay] = deque()
        self._blamed: dict[int, int] = {}  # number → attempts that user code has failed
        self._sweeps: list[Sweep] = []
        self._acked = self._failed = self._replayed = 0
        self._first_replay_s: float | None = None
        self._done_s: float | None = None
        self.resting_until_s = 0.0  # the source had nothing: when to ask again
        self._rest_s = _FIRST_REST_S
        self._position = 0  # records taken from the source, or emitted by next_tuple
        self._hears_ack = type(spout).ack is not Spout.ack
        self._hears_fail = type(spout).fail is not Spout.fail

    def open(self, context: Context) -> None:
        """Get ready; called once, before the first emit."""
        self.spout.open(context)

    @property
    def committed(self) -> int:
        """The lowest number that is not settled: everything below it is acked, or given up."""
        waiting = min((replay.number for replay in self._replays), default=self._position)
        return self.pending.lowest_number(waiting)

    def resume(self, position: int) -> None:
        """Leave out the first `position` records of the source. Called before `open`."""
        self._position = position

    def pack(self, *, stays: bool) -> Luggage:
        """What goes along into the next life. What is pending is in line to be emitted again."""
        reason = "tasks changed places before it was processed"
        self.failed(self.pending.all_roots(), Failure(Cause.REBALANCED, reason=reason))
        waiting = list(self._replays)
        if stays:
            return Luggage(self._position, waiting, [], self.exhausted, None, self.spout)
        return Luggage(self.committed)

    def unpack(self, luggage: Luggage, context: Context) -> None:
        """Go on with `luggage`, instead of `open`."""
        self.resume(luggage.position)
        if luggage.instance is None:
            self.open(context)
        self.exhausted |= luggage.exhausted
        self._replays.extend(luggage.waiting)

    def activate(self) -> None:
        """Emit from now on. Storm: ISpout.activate."""
        self.active = True
        self.wake()
        self.spout.activate()

    def deactivate(self) -> None:
        """Emit nothing from now on, no replays either: in Storm both come from nextTuple."""
        self.active = False
        self.spout.deactivate()

    def emit(self, now: float, limit: int) -> int:
        """Emit up to `limit` records, replays first. Returns how many."""
        raise NotImplementedError

    def rest(self, now: float) -> None:
        """The source had nothing: ask less and less often, every `idle_poll_s` in the end."""
        self.resting_until_s = now + self._rest_s
        self._rest_s = min(2 * self._rest_s, self._config.idle_poll_s)

    def wake(self) -> None:
        """There was something, or there is something to replay."""
        self.resting_until_s, self._rest_s = 0.0, _FIRST_REST_S

    @property
    def done(self) -> bool:
        """Nothing left to emit, nothing pending."""
        return self.exhausted and not len(self.pending) and not self._replays

    @property
    def next_look_s(self) -> float:
        """The time of the next deadline or sweep."""
        return min([self.pending.next_deadline_s, *(sweep.due_s for sweep in self._sweeps)])

    def look(self, now: float) -> None:
        """Fail what is overdue, and what a death has touched and nobody has completed."""
        due = self.pending.expired(now)
        if len(due):
            reason = f"no verdict within {self._config.message_timeout_s:g} s"
            self.failed(due, Failure(Cause.TIMEOUT, reason=reason))
        if self._sweeps and self.next_look_s <= now:
            ripe = [sweep for sweep in self._sweeps if sweep.due_s <= now]
            self._sweeps = [sweep for sweep in self._sweeps if sweep.due_s > now]
            for sweep in ripe:
                self.failed(sweep.roots, sweep.failure)

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
        if self._replayed and self._first_replay_s is None and (released.attempts > 1).any():
            self._first_replay_s = now
        if self._blamed:
            for number in released.numbers.tolist():
                self._blamed.pop(number, None)
        if self._hears_ack:
            for message_id in self._message_ids(released):
                self.spout.ack(message_id)

    def failed(self, roots: U64, why: Failure | Mapping[int, Failure]) -> None:
        """These trees failed; those still pending are put in line to be emitted again.

        `why`: the failure of all of them, or root → its own.
        """
        released = self.pending.release(roots)
        self._failed += len(released.roots)
        for root, payload, number, attempt, message_id in zip(
            released.roots.tolist(),
            released.payloads,
            released.numbers.tolist(),
            released.attempts.tolist(),
            self._message_ids(released),
            strict=True,
        ):
            failure = why if isinstance(why, Failure) else why[root]
            if failure.blames_tuple:
                self._blame(number, message_id, failure)
            if self._replays_failed:
                self.wake()
                self._replays.append(Replay(payload, number, attempt + 1))
            if self._hears_fail:
                self.spout.fail(message_id, replace(failure, attempt=attempt))

    def postpone(self, roots: U64, now: float) -> None:
        """A bolt asked for more time. Storm: OutputCollector.resetTimeout."""
        self.pending.postpone(roots, now + self._config.message_timeout_s)

    def drain(self) -> None:
        """Emit nothing fresh from now on; what fails is emitted again."""
        self.exhausted = self.active = True

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
            replayed=self._replayed,
            pending=len(self.pending),
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
            unsettled=len(self.pending) + len(self._replays),
        )

    @property
    def _replays_failed(self) -> bool:
        return self.spout.replay

    def _message_ids(self, released: Released) -> list[Any]:
        raise NotImplementedError

    def _take_replays(self, limit: int) -> list[Replay]:
        count = min(limit, len(self._replays), self.pending.room)
        self._replayed += count
        return [self._replays.popleft() for _ in range(count)]

    def _blame(self, number: int, message_id: Any, failure: Failure) -> None:
        """User code has failed the record again; deaths and timeouts do not count against it."""
        times = self._blamed[number] = self._blamed.get(number, 0) + 1
        if times >= self._config.attempts_max:
            tail = f"\n{failure.traceback.rstrip()}" if failure.traceback else ""
            raise TopologyFailed(
                f"message {message_id!r} of spout {self.task.component!r} failed {times} times, "
                f"the last time {failure}. Mend the bolt or the record, or raise "
                f"attempts_max.{tail}"
            )


class RecordsSpoutTask(SpoutTask):
    """The simple level: records() is drained in bulk; message ids are positions in it."""

    _records: Iterator[Any]  # what is left of the source
    _source: Iterator[Any]  # the same; it notes the end

    def open(self, context: Context) -> None:
        super().open(context)
        self._records = iter(self._all_records())
        if self._position:
            self._records = self._without(self._records, self._position)
        self._source = self._watched()

    def pack(self, *, stays: bool) -> Luggage:
        luggage = super().pack(stays=stays)
        luggage.source = self._records if stays else None
        return luggage

    def unpack(self, luggage: Luggage, context: Context) -> None:
        if luggage.source is not None:
            self._records, self._source = luggage.source, self._watched()
        super().unpack(luggage, context)

    def _watched(self) -> Iterator[Any]:
        yield from self._records
        self.exhausted = True

    def _all_records(self) -> Iterator[Any]:
        return self.spout.records()

    def _without(self, records: Iterator[Any], count: int) -> Iterator[Any]:
        """What comes after the first `count` records; a None, "nothing now", is not counted."""
        while count and (record := next(records, _END)) is not _END:
            if record is None:
                yield None
            else:
                count -= 1
        yield from records

    @property
    def _replays_failed(self) -> bool:
        return True

    def emit(self, now: float, limit: int) -> int:
        if self._reports.tracked:
            limit = min(limit, self.pending.room)
        replays = self._take_replays(limit)
        fresh = [] if self.exhausted else self._draw(limit - len(replays))
        first, self._position = self._position, self._position + len(fresh)
        numbers: I64 = np.arange(first, self._position)
        if replays:
            records = [replay.payload for replay in replays] + fresh
            numbers = np.concatenate(([replay.number for replay in replays], numbers))
            attempts: Any = [replay.attempt for replay in replays] + [1] * len(fresh)
        else:
            records, attempts = fresh, 1
        if records:
            self._send(records, records, numbers, attempts, now)
        return len(records)

    def _draw(self, count: int) -> list[Any]:
        """Up to `count` records that are there now."""
        there_now = iter(self._source.__next__, None)  # stops at a None, without a Python loop
        fresh = list(islice(there_now, count))
        bad = self.outlets.check(DEFAULT, fresh)
        if bad is not None:
            raise self.outlets.misfit_error(DEFAULT, fresh[bad])
        return fresh

    def _send(
        self, records: Any, payloads: list[Any], numbers: I64, attempts: Any, now: float
    ) -> None:
        """Emit `records`; `payloads` is what to keep of each until it is acked."""
        if not self._reports.tracked:
            self.outlets.send(DEFAULT, records, None)
            return
        timeout_s = self._config.message_timeout_s
        roots = self.pending.take(payloads, numbers, attempts, now, timeout_s)
        made = self.outlets.send(DEFAULT, records, Anchors(roots))
        assert made is not None
        self._reports.start(roots, made)

    def _message_ids(self, released: Released) -> list[Any]:
        ids: list[Any] = released.numbers.tolist()
        return ids
