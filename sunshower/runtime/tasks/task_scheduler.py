"""Schedules a worker's tasks; separate because the order of work is an algorithm of its own.

It runs slice by slice, and handles the errors of user code.

A task is ready if it has work, its receivers have credit, and it is not paused. Seven of eight
slices go to the ready task furthest downstream, readers of dead letters first: this keeps queues
short and recent records in the cache. Every eighth slice goes round robin: no ready task waits
longer than eight slices for each task of the worker. A bolt that calls an async function for its
inputs at the same time comes last, until it has as many inputs as it may have calls. Calls without
order go on after each slice, and the worker waits for them if no task is ready. A bolt that stores
totals comes last for a bounded time: it takes the batches that have come meanwhile as one, and
writes them at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from math import floor, inf
from typing import TYPE_CHECKING, Any

import numpy as np

from sunshower.clock import Clock
from sunshower.config import Config
from sunshower.errors import TopologyFailed, user_errors
from sunshower.runtime.events.health import TaskError
from sunshower.runtime.plan import Plan
from sunshower.runtime.tasks.bolts.bolt_task import BoltTask
from sunshower.runtime.tasks.bolts.manual_bolt import ManualBoltTask
from sunshower.runtime.tasks.report_router import ReportRouter
from sunshower.runtime.tasks.spouts.next_tuple_source import NextTupleSource
from sunshower.runtime.tasks.spouts.spout_task import SpoutTask
from sunshower.runtime.tasks.task_transfer import TaskTransfer
from sunshower.runtime.tasks.user_code import Raised, context
from sunshower.runtime.tasks.user_code_calls import UserCodeCalls
from sunshower.runtime.tracking.batch import Batch
from sunshower.runtime.transport.channels import Entry, Inbox
from sunshower.runtime.transport.output_streams import OutputStreams
from sunshower.runtime.transport.peer_link import PeerLink
from sunshower.runtime.value_copies import picture
from sunshower.topologies.components import BatchBolt, Bolt, Context

if TYPE_CHECKING:
    from sunshower.runtime.tasks.wiring import Wired

# One of this many slices goes round robin. (With 4, rows of the word count were 4 % slower.)
_FAIR_SLICE = 8
_CALLS_S = 0.002  # how often calls in progress go on, and for how long an idle worker waits for one


# ---- mutation check ------------------------------------------------------------------------------
# `check_mutation`: ends the topology, naming the bolt, if a bolt changes an input record.
#
# Within a worker, records are passed by reference: a list in a record, or a dataclass that is not
# frozen, is one object for every bolt that receives it and for the spout that may replay it. So a
# bolt must not change its input. With `check_mutation` off (the default) nothing detects it: other
# tasks of the worker, and a replay, see the changed record; tasks in other workers see the
# original.
#
# The check pickles every record before and after, several µs each: it is for tests. It does not
# cover records that cannot be pickled, calls of an async function that go on after the slice, nor
# a tuple that a manual bolt has kept from an earlier batch. Arrow tables are immutable.


def process_unchanged(bolt: BoltTask, batch: Batch) -> Batch | None:
    """Like `bolt.process`; raises TopologyFailed, naming bolt and record, for a changed record."""
    if batch.is_table:
        return bolt.process(batch)
    before = [_picture(record) for record in batch.records]
    said = [f"{record!r:.200}" for record in batch.records]
    rest = bolt.process(batch)
    for record, earlier, was in zip(batch.records, before, said, strict=True):
        if _picture(record) != earlier:
            raise TopologyFailed(
                f"{bolt.task.name} changed a record that it was handed, "
                f"{was}, to {record!r:.200}. Others hold the same object: make a new one "
                "(check_mutation is on)"
            )
    return rest


def _picture(record: Any) -> bytes | None:
    try:
        return picture(record)
    except user_errors():  # of __reduce__ and __getstate__ of a class that is no record
        return None


# ---- bolt renewal --------------------------------------------------------------------------------

# Replaces the object of a paused bolt if its own connection does not recover after an outage.
#
# A bolt that opened a connection in prepare() may hold a dead one when the dependency is available
# again. Storm restarts the whole worker then. Here a new object is tried, beside the old one:
#
#     paused, third try and every second one after it ──▶ a new object is prepared, gets one input
#         it fails    ──▶ the new object is closed; the old one continues
#         it succeeds ──▶ the old object gets the next input
#                             it succeeds ──▶ the old object stays, with its memory
#                             it fails    ──▶ the old object is closed; the new one stays
#
# So a bolt that reconnects by itself loses nothing. The input that the new object processed is
# replayed and charged no attempt. If the class has snapshot() and restore(), the new object starts
# with the old one's snapshot.

_FIRST_TRY = 3  # of a pause: shorter outages need no new object


class _Phase(Enum):
    NEW = "the new object has the next input"
    OLD = "the new object has succeeded; the old one has the next input"


@dataclass(slots=True)
class _Trial:
    other: Any  # the object that the task does not use now
    phase: _Phase = _Phase.NEW


class BoltRenewals:
    """The trials of one worker's bolts. `call` runs user code, as UserCodeCalls does."""

    def __init__(self, call: Callable[..., Any], context_of: Callable[[BoltTask], Context]) -> None:
        self._call = call
        self._context_of = context_of
        self._trials: dict[int, _Trial] = {}  # bolt task → its trial

    def begin(self, bolt: BoltTask) -> bool:
        """Called before a slice of a paused bolt. Returns whether it may process an input now."""
        care = bolt.supervision
        if bolt.task.id in self._trials:
            return True
        due = care.tries >= _FIRST_TRY and (care.tries - _FIRST_TRY) % 2 == 0
        if not due or not _has_prepare(bolt.bolt):
            return True
        old = bolt.bolt
        try:
            state = self._call(bolt.task, "snapshot", old.snapshot) if _keeps_state(old) else None
            self._call(bolt.task, "prepare", partial(bolt.prepare, self._context_of(bolt)))
            if _keeps_state(old):
                self._call(bolt.task, "restore", partial(bolt.bolt.restore, state))
        except Raised as raised:
            bolt.adopt(old)
            if care.wait is not None:
                care.pause(care.kind_of(raised), raised.error)
            return False
        self._trials[bolt.task.id] = _Trial(old)
        bolt.on_trial = True
        return True

    def end(self, bolt: BoltTask) -> None:
        """Called after a slice of a bolt: evaluate the trial, if one is under way."""
        trial = self._trials.get(bolt.task.id)
        if trial is None or bolt.unfinished is not None:
            return
        bolt.on_trial = False
        if trial.phase is _Phase.NEW and not bolt.last_failed:
            self._swap(bolt, trial)
            trial.phase = _Phase.OLD
            return
        del self._trials[bolt.task.id]
        if bolt.last_failed:
            self._swap(bolt, trial)
        self._close(bolt, trial.other)
        if trial.phase is _Phase.OLD and bolt.last_failed:
            self._tell(bolt)

    def is_on(self, bolt: BoltTask) -> bool:
        """Whether a trial is under way; the bolt then processes one input at a time."""
        return bolt.task.id in self._trials

    def _swap(self, bolt: BoltTask, trial: _Trial) -> None:
        current = bolt.bolt
        bolt.adopt(trial.other)
        trial.other = current

    def _close(self, bolt: BoltTask, other: Any) -> None:
        if hasattr(other, "cleanup"):
            bolt.notify("cleanup", other.cleanup)

    def _tell(self, bolt: BoltTask) -> None:
        memory = (
            "its snapshot was restored"
            if _keeps_state(bolt.bolt)
            else "what it held in memory is lost"
        )
        task = bolt.task
        text = (
            f"{task.name} was created again: the connections of the old object did "
            f"not come back after an outage; {memory}"
        )
        bolt.supervision.note(Raised(TaskError(task.component, task.index, task.worker, text)))


def _keeps_state(bolt: Any) -> bool:
    snapshot = getattr(type(bolt), "snapshot", None)
    return snapshot is not None and snapshot not in (Bolt.snapshot, BatchBolt.snapshot)


def _has_prepare(bolt: Any) -> bool:
    prepare = getattr(type(bolt), "prepare", None)
    return prepare is not None and prepare not in (Bolt.prepare, BatchBolt.prepare)


# ---- ticks ---------------------------------------------------------------------------------------
# Schedules ticks: calls of user code at fixed intervals, independent of records.
#
# Ticks are due at start + n × tick_s, exactly: a late tick does not delay the next one, and missed
# ticks are skipped, never repeated in a burst. A tick whose receivers have no credit waits for it
# until the next tick would be due; then it is called anyway. So a blocked receiver does not stop
# the ticks of a bolt. A bolt misses ticks only while a receiver has `window_records_max` records
# waiting, which bounds the outputs of ticks in memory. Storm: org.apache.storm.executor.Executor
# (setupTicks), topology.tick.tuple.freq.secs: whole seconds, by a tuple that waits in the bolt's
# queue behind all others.


@dataclass(slots=True)
class Ticker:
    """The ticks of one task, from `start_s` on."""

    task: BoltTask | SpoutTask
    output_streams: OutputStreams | None  # None for a spout, whose tick emits nothing
    every_s: float
    start_s: float
    number: int = 1  # of the next tick

    @property
    def due_s(self) -> float:
        """When the next tick is due."""
        return self.start_s + self.number * self.every_s

    def look_s(self, now: float) -> float:
        """When to check again; before that time only new credit can make the tick due."""
        return self.due_s if now < self.due_s else self.due_s + self.every_s

    def take(self, now: float) -> bool:
        """Whether to tick now; if so, the next tick is the first one due after `now`."""
        if now < self.due_s:
            return False
        output_streams = self.output_streams
        if output_streams is not None and output_streams.full and now < self.due_s + self.every_s:
            return False
        self.number = max(self.number + 1, floor((now - self.start_s) / self.every_s))
        while self.due_s <= now:
            self.number += 1
        return output_streams is None or not output_streams.overfull


def tickers(
    plan: Plan, task: BoltTask | SpoutTask, there: Iterable[Ticker], now: float
) -> list[Ticker]:
    """The Ticker of a task just opened, if it has a `tick_s` and none in `there` yet."""
    every_s = plan.component(task.task).tick_s
    if every_s is None or any(ticker.task is task for ticker in there):
        return []
    output_streams = task.output_streams if isinstance(task, BoltTask) else None
    return [Ticker(task, output_streams, every_s, now)]


# ---- task opening --------------------------------------------------------------------------------


class TaskOpening:
    """Opens each task at the time that its supervision decides; see supervision.py."""

    def __init__(
        self,
        plan: Plan,
        call: UserCodeCalls,
        clock: Clock,
        tasks: Iterable[BoltTask | SpoutTask],
        transfer: Mapping[int, TaskTransfer],
    ) -> None:
        self.waiting = list(tasks)
        self.active = True  # whether spouts are activated once they are open
        self.is_code_new = False  # whether the code may still be rolled back
        self._tickers = list[Ticker]()  # of open tasks that have a tick
        self._plan = plan
        self._call = call
        self._clock = clock
        # Of tasks that are not open yet; the next rebalance moves it again.
        self.transfer_left = dict(transfer)

    @property
    def tickers(self) -> Sequence[Ticker]:
        """Those of open tasks that have a tick."""
        return () if self.is_code_new else self._tickers

    def wait_for(self, task: BoltTask | SpoutTask, raised: Raised) -> None:
        """Try a task again later, because its user code raised. A task that was in doubt for too
        long, or has raised too often, is quarantined."""
        care, now = task.supervision, self._clock.now()
        if isinstance(task, BoltTask) or not care.doubted(raised, now):
            care.raised(raised, now)
        if task not in self.waiting:
            self.waiting.append(task)

    def look(self, now: float) -> None:
        """Open the tasks that are due."""
        for task in self.waiting:
            if task.supervision.retry_s <= now:
                try:
                    self._open(task)
                except Raised as raised:
                    self.wait_for(task, raised)
            if isinstance(task, SpoutTask) and task.supervision.is_quarantined:
                task.abandon()
        self.waiting = [task for task in self.waiting if _is_tried_again(task)]

    def context_of(self, task: BoltTask | SpoutTask) -> Context:
        """The Context passed to the user code of a task."""
        committed = getattr(task, "committed", 0)
        return context(self._plan, task.task, committed, self._clock, task.instrument)

    def _open(self, task: BoltTask | SpoutTask) -> None:
        where = self.context_of(task)
        transfer = self.transfer_left.get(task.task.id)
        begin = partial(task.unpack, transfer) if transfer else task.resume
        before = getattr(task, "spout", None)
        self._call(task.task, "the opening", partial(begin, where))
        task.supervision.tried()
        if isinstance(task, BoltTask):
            task.supervision.end_wait()
        self.transfer_left.pop(task.task.id, None)
        if isinstance(task, SpoutTask) and self.active and task.spout is not before:
            self._call(task.task, "activate", task.activate)
        self._tickers += tickers(self._plan, task, self._tickers, self._clock.now())


def _is_tried_again(task: BoltTask | SpoutTask) -> bool:
    """Whether to try it again: if it waits, or is a quarantined bolt (spouts are given up)."""
    care = task.supervision
    return care.waits or (care.is_quarantined and isinstance(task, BoltTask))


# ---- task scheduler ------------------------------------------------------------------------------


@dataclass(slots=True)
class _Work:
    """The time that some inputs have cost a bolt so far, in one or several slices."""

    inputs: int = 0
    seconds: float = 0.0
    waited_s: float = 0.0

    def add(self, inputs: int, seconds: float, waited_s: float) -> None:
        self.inputs += inputs
        self.seconds += seconds
        self.waited_s += waited_s


class TaskScheduler:
    """Runs the tasks of one worker, a slice at a time."""

    def __init__(
        self,
        wired: Wired,
        config: Config,
        call: UserCodeCalls,
        clock: Clock,
        opening: TaskOpening,
        peer_links: Mapping[int, PeerLink],
        relay: ReportRouter,
        wake: Callable[[], None] | None,
    ) -> None:
        """`wake`: see Equipment."""
        self._inboxes = wired.inboxes
        self._failed_trees = wired.failed_trees
        self._renewals = BoltRenewals(call, opening.context_of)
        self._order = _order(wired)
        names = [None if bolt is None else bolt.task.component for bolt in self._order]
        self._places = {  # component → its tasks' range in the order
            name: (names.index(name), names.index(name) + names.count(name)) for name in names
        }
        self._slices = 0  # since the last round-robin slice
        self._turn = 0  # the position to start from in the round
        self._calls_next_s = 0.0  # when calls in progress go on, however much else there is to do
        self._work: dict[int, _Work] = {}  # bolt task → the cost of its unfinished input
        self._waits_since: dict[int, float] = {}  # bolt task → since when its inputs have waited
        self._spouts = list(wired.spouts.values())
        for spout in self._spouts:
            spout.rest.share_worker(len(self._spouts))
        self._config = config
        self._call = call
        self._clock = clock
        self._manual = [bolt for bolt in wired.bolts.values() if isinstance(bolt, ManualBoltTask)]
        sources = (spout.source for spout in self._spouts)
        self._manual_sources = [s for s in sources if isinstance(s, NextTupleSource)]
        for manual in self._manual:
            manual.collector.wake = wake
        for source in self._manual_sources:
            source.collector.wake = wake
        for bolt in wired.bolts.values():
            bolt.clock = clock
        for inbox in wired.inboxes.values():
            inbox.clock = clock
        self._opening = opening
        self._peer_links = peer_links
        self._relay = relay
        self._peers_are_known = False  # whether all other workers have said hello once

    def tick(self, now: float) -> None:
        """Call the ticks that are due."""
        for ticker in self._opening.tickers:
            task = ticker.task
            if ticker.take(now) and task.supervision.runs:
                self._call(task.task, "tick", partial(task.notify, "tick", task.tick))
                self._pass_on_postponed(task)

    def run_one(self, now: float) -> bool:
        """Run the next ready task: one bolt, or each spout that may emit; carry out calls of other
        threads; and let calls go on that are in progress. Returns whether any work was done."""
        settled = self._settle_calls(now)
        worked = self._run_ready(now) or settled
        calling = [bolt for bolt in self._order if bolt is not None and bolt.in_progress]
        if calling and (not worked or now >= self._calls_next_s):
            for bolt in calling:
                self._end_calls(bolt, 0.0 if worked else _CALLS_S / len(calling))
            self._calls_next_s = self._clock.now() + _CALLS_S
        return worked or bool(calling)

    def _settle_calls(self, now: float) -> bool:
        """Carry out what other threads have called. Returns whether there was anything."""
        worked = False
        for bolt in self._manual:
            if bolt.collector.calls and bolt.settles_at_s() <= now:
                settle = partial(bolt.notify, "the calls of its threads", bolt.settle_calls)
                self._call(bolt.task, "the calls of its threads", settle)
                self._pass_on_postponed(bolt)
                if bolt.supervision.begin_pause(now) != -inf:
                    bolt.supervision.check_doubt(now)
                worked = True
        for source in self._manual_sources:
            source.look_at_calls()
        return worked

    def _run_ready(self, now: float) -> bool:
        order = self._order
        self._slices += 1
        if self._slices >= _FAIR_SLICE:
            self._slices = 0
            self._turn = (self._turn + 1) % len(order)
            order = [*order[self._turn :], *order[: self._turn]]
        last = []
        for bolt in order:
            if bolt is None:
                if self._run_spouts(now):
                    return True
            elif self._slices and self._waits_for_more(bolt, now):
                last.append(bolt)
            elif self._run_bolt(bolt):
                self._rotate_siblings(bolt)
                return True
        return any(map(self._run_bolt, last))

    def _waits_for_more(self, bolt: BoltTask, now: float) -> bool:
        """Whether a bolt had better get more inputs before its next slice."""
        inbox = self._inboxes[bolt.task.id]
        if bolt.at_once:
            return bolt.in_progress is None and len(inbox) < bolt.at_once
        if not bolt.patience_s or not inbox.entries:
            return False
        return now - self._waits_since.setdefault(bolt.task.id, now) < bolt.patience_s

    def _rotate_siblings(self, bolt: BoltTask) -> None:
        """Move the task behind the other tasks of its component."""
        order, start, end = self._order, *self._places[bolt.task.component]
        if end - start > 1:
            order[start:end] = [
                *(sibling for sibling in order[start:end] if sibling is not bolt),
                bolt,
            ]

    def may_emit(self, spout: SpoutTask) -> bool:
        """Whether it may emit: it is active, receivers have credit, all peers have said hello."""
        if not self._peers_are_known:
            self._peers_are_known = all(
                peer_link.peer_life is not None for peer_link in self._peer_links.values()
            )
        if spout.settles:
            spout.end_settling()
        may = self._peers_are_known and spout.active and not spout.supervision.waits
        return may and not spout.done and not spout.output_streams.full

    def next_probe_s(self) -> float:
        """When the next paused bolt with inputs, or with calls of other threads, tries one of them;
        ∞ if there is none."""
        bolts = (b for b in self._order if b is not None and b.supervision.wait is not None)
        paused = (b for b in bolts if not b.supervision.waits and self._has_work(b))
        return min(
            *(b.supervision.resumes_s for b in paused if not b.output_streams.full),
            *(bolt.settles_at_s() for bolt in self._manual),
            inf,
            inf,
        )

    def _has_work(self, bolt: BoltTask) -> bool:
        return bool(self._inboxes[bolt.task.id].entries) or bolt.unfinished is not None

    def _run_bolt(self, bolt: BoltTask) -> bool:
        """Run one slice of a bolt, if it is ready. Returns whether it was."""
        care = bolt.supervision
        if not self._has_work(bolt) or care.waits:
            return False
        if bolt.in_progress and not (bolt.may_overlap and bolt.inputs_max > 0):
            return False
        before = self._clock.now()
        taken, bolt.flush_s = 0, 0.0
        since_s = self._waits_since.setdefault(bolt.task.id, before)
        inbox = self._inboxes[bolt.task.id]
        full = bolt.output_streams.full and (
            bolt.unfinished is not None or not bolt.may_take(inbox)
        )
        bolt.output_streams.note_blocked(before, is_blocked=full)
        if full or before < care.resumes_s:
            return False
        self._failed_trees.turn(before)
        if bolt.unfinished is not None:
            taken = self._go_on(bolt)
        elif care.wait is None or self._renewals.begin(bolt):
            taken = self._take(bolt)
            if not bolt.in_progress:
                self._renewals.end(bolt)
        now = self._clock.now()
        work = self._work.setdefault(bolt.task.id, _Work())
        work.add(taken, max(0.0, now - before - bolt.flush_s), before - since_s)
        if care.begin_pause(now) != -inf:
            care.check_doubt(now)
            del self._work[bolt.task.id]
        elif bolt.unfinished is None:
            if not bolt.in_progress:
                bolt.measure(work.inputs, work.seconds, work.waited_s)
            del self._work[bolt.task.id]
        if self._has_work(bolt):
            self._waits_since[bolt.task.id] = now
        else:
            del self._waits_since[bolt.task.id]
        self._pass_on_postponed(bolt)
        return True

    def _take(self, bolt: BoltTask) -> int:
        """Process the next inputs, and return how many were taken.

        Inputs of failed trees are dropped, as many as come first: a paused bolt tries one input at
        a time, and would need a probe for each of them.
        """
        inbox = self._inboxes[bolt.task.id]
        limit = 1 if self._renewals.is_on(bolt) else self._call.limit(bolt)
        taken, now = 0, self._clock.now()
        while True:
            entries = self._next_entries(bolt, inbox, limit)
            sizes = [len(batch) for batch, _, _ in entries]
            parts = [self._failed_trees.without_failed(batch) for batch, _, _ in entries]
            living = bolt.join([part for part in parts if len(part)] or parts[:1])
            left = self._process(bolt, living, limit) if len(living) else []
            for rest in left:
                rest.is_recorded = True
                _put_back(inbox, rest, entries, parts, sizes)
            bolt.expired += sum(sizes) - len(living) + sum(map(len, left))
            for (batch, origin, seq), size in zip(entries, sizes, strict=True):
                bolt.queue_latencies.add_one(now - batch.arrived_s, size)
                origin.processed(size, seq, bolt.service.credit)
            taken += sum(sizes)
            if len(living) or not inbox.entries:
                return taken

    def _next_entries(self, bolt: BoltTask, inbox: Inbox, limit: int) -> list[Entry]:
        if bolt.joins:
            return inbox.take_several(limit)
        if bolt.joins_shared and bolt.note is None and inbox.entries[0][0].shared:
            most = min(bolt.service.window, bolt.shared_max(limit))
            return inbox.take_several(most, shared=True)
        return inbox.take_small(limit, one_source=bolt.tells_source)

    def _end_calls(self, bolt: BoltTask, wait_s: float) -> None:
        """Let the calls of a bolt go on for `wait_s`, or until one has ended, and settle the inputs
        whose calls have."""
        calls, care, count = bolt.in_progress, bolt.supervision, 0
        assert calls is not None
        ended = self._call(
            bolt.task, "the calls in progress", lambda: [*calls.ended(wait_s)], calls.roots
        )
        for batch, outcomes in ended:
            self._guard(bolt, partial(bolt.end_calls, batch, outcomes), batch)
            count += len(batch)
        now = self._clock.now()
        if count:
            bolt.measure(count, calls.seconds(now))
        if not calls:
            self._renewals.end(bolt)
            if care.begin_pause(now) != -inf:
                care.check_doubt(now)

    def _go_on(self, bolt: BoltTask) -> int:
        """Send the next piece of the unfinished input, or drop the input if its tree has failed.
        Returns 0: the input was counted before."""
        batch = bolt.unfinished
        assert batch is not None
        if not len(self._failed_trees.without_failed(batch)):
            bolt.expired += 1
            bolt.drop_unfinished()
        else:
            self._guard(bolt, bolt.go_on, batch)
        return 0

    def _process(self, bolt: BoltTask, batch: Batch, limit: int) -> list[Batch]:
        """Process a batch; a shared one is cut. Returns the inputs not started,
        the last ones first."""
        if bolt.supervision.is_quarantined:
            bolt.supervision.check_opening()
            bolt.refuse(batch, bolt.supervision.failure)
            return []
        bolt.instrument.delivered(batch)
        left: list[Batch | None] = []
        if batch.shared and len(batch) > (most := bolt.shared_max(limit)):
            batch, rest = bolt.divide(batch, most)
            left.append(rest)
        process = partial(process_unchanged, bolt) if self._config.check_mutation else bolt.process
        left.append(self._guard(bolt, partial(process, batch), batch))
        return [rest for rest in left if rest is not None]

    def _guard(
        self, bolt: BoltTask, call: Callable[[], Batch | None], batch: Batch
    ) -> Batch | None:
        try:
            return self._call(bolt.task, "the processing", call, batch.roots)
        except Raised as raised:  # no single input caused it: all of them fail
            bolt.supervision.note(raised)
            bolt.refuse(batch, bolt.failure(raised.__cause__ or raised))
            return None

    def _run_spouts(self, now: float) -> bool:
        worked = False
        for spout in self._spouts:
            spout.output_streams.note_blocked(now, is_blocked=spout.is_held)
            if self.may_emit(spout) and self._run_spout(spout, now):
                worked = True
        return worked

    def _run_spout(self, spout: SpoutTask, now: float) -> bool:
        if spout.next_emit_s > now:
            return False
        limit = min(spout.service.slice_records, spout.output_streams.spread)
        replayed = spout.replays.replayed
        try:
            if spout.source.behind and self._call(
                spout.task, "records or tables", spout.source.skip
            ):
                spout.rest.end()
                return True
            emitted: int = self._call(spout.task, "the emitting", partial(_emit, spout, now, limit))
        except Raised as raised:
            self._opening.wait_for(spout, raised)
            return True
        if spout.supervision.in_a_row or spout.supervision.wait is not None:
            fresh = emitted - (spout.replays.replayed - replayed)
            if fresh or not emitted:  # replays alone say nothing about the source
                spout.supervision.went_well(now, progress=fresh > 0)
        if emitted:
            spout.supervision.proven = True
            spout.service.measure(emitted, self._clock.now() - now)
            spout.rest.end()
        else:
            spout.rest.begin(now)
        return emitted > 0

    def _pass_on_postponed(self, bolt: Any) -> None:
        if roots := getattr(bolt, "postponed", None):
            self._relay.postpone(np.array(roots, np.uint64))
            bolt.postponed = []


def _order(wired: Wired) -> list[BoltTask | None]:
    """Readers of dead letters, then the other bolts, downstream first; None: all spouts."""
    readers = wired.letter_readers
    letters = [bolt for id, bolt in wired.bolts.items() if id in readers]
    others = [bolt for id, bolt in reversed(wired.bolts.items()) if id not in readers]
    return [*letters, *others, None]


def _put_back(
    inbox: Inbox, rest: Batch, entries: list[Entry], parts: list[Batch], sizes: list[int]
) -> None:
    """Put inputs that were not started back into the inbox, each with its own origin.

    `rest` is the end of the joined `parts`: of each entry, the inputs whose trees have not failed.
    An entry of which nothing was started goes back whole, with the inputs of failed trees, so that
    frames are granted in their order. An entry that was started in part keeps what was started, and
    the rest goes back with the frame's number. `sizes` counts the inputs that stay taken.
    """
    left = len(rest)
    while left:
        index = len(entries) - 1
        (batch, origin, seq), part = entries[index], parts[index]
        if len(part) <= left and index:
            batch.is_recorded = rest.is_recorded
            inbox.put_back(batch, origin, seq)
            left -= len(part)
            del entries[index], parts[index], sizes[index]
            continue
        piece = rest if left == len(rest) else rest.split(left)[0]
        piece.source, piece.arrived_s = part.source, part.arrived_s
        inbox.put_back(piece, origin, seq)
        entries[index] = (part, origin, None)
        sizes[index] -= left
        return


def _emit(spout: SpoutTask, now: float, limit: int) -> int:
    emitted = spout.emit(now, limit)
    spout.instrument.faults.slow_down(emitted)
    return emitted
