"""Schedules a worker's tasks; separate because the order of work is an algorithm of its own.

It runs slice by slice, and handles the errors of user code.

A task is ready if it has work, its receivers have credit, and it is not paused. Seven of eight
slices go to the ready task furthest downstream, readers of dead letters first: this keeps queues
short and recent records in the cache. Every eighth slice goes round robin: no ready task waits
longer than eight slices for each task of the worker. A bolt that calls an async function for its
inputs at the same time comes last, until it has as many inputs as it may have calls. Calls without
order go on after each slice, and the worker waits for them if no task is ready. A bolt that stores
totals or keeps windows comes last for a bounded time: it takes the batches that have come meanwhile
as one, and writes them at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import floor, inf
from typing import TYPE_CHECKING, Any

import numpy as np

from sunshower.clock import Clock
from sunshower.config import Config
from sunshower.runtime.events.injected_faults import NO_FAULTS
from sunshower.runtime.plan import Plan
from sunshower.runtime.tasks.bolts.bolt_task import BoltTask
from sunshower.runtime.tasks.bolts.manual_bolt import ManualBoltTask
from sunshower.runtime.tasks.bolts.slow_path import SlowPath
from sunshower.runtime.tasks.report_router import ReportRouter
from sunshower.runtime.tasks.spouts.next_tuple_source import NextTupleSource
from sunshower.runtime.tasks.spouts.spout_task import SpoutTask
from sunshower.runtime.tasks.task_transfer import TaskTransfer
from sunshower.runtime.tasks.user_code import Raised, UserCodeCalls, context
from sunshower.runtime.transport.channels import Taken
from sunshower.runtime.transport.output_streams import OutputStreams
from sunshower.runtime.transport.peer_link import PeerLink
from sunshower.topologies.components import Context

if TYPE_CHECKING:
    from sunshower.runtime.tasks.wiring import Wired

# One of this many slices goes round robin. (With 4, rows of the word count were 4 % slower.)
_FAIR_SLICE = 8
# Tracked messages that a spout emits at once. With all that may be open in one batch, workers would
# wait for each other: keyed windows on two workers process a quarter more with four batches.
_EMIT_MAX = 8_192
_CALLS_S = 0.002  # how often calls in progress go on, and for how long an idle worker waits for one


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
    plan: Plan, task: BoltTask | SpoutTask, present: Iterable[Ticker], now: float
) -> list[Ticker]:
    """The Ticker of a task just opened, if it has a `tick_s` and none in `there` yet."""
    every_s = plan.component(task.task).tick_s
    if every_s is None or any(ticker.task is task for ticker in present):
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
        self._tickers = list[Ticker]()  # of open tasks that have a tick
        self.tickers: Sequence[Ticker] = self._tickers  # those whose ticks are called
        self._plan = plan
        self._call = call
        self._clock = clock
        # Of tasks that are not open yet; the next rebalance moves it again.
        self.transfer_left = dict(transfer)

    def hold_ticks(self, is_code_new: bool) -> None:
        """Call no ticks while the code may still be rolled back."""
        self.tickers = () if is_code_new else self._tickers

    def wait_for(self, task: BoltTask | SpoutTask, raised: Raised) -> None:
        """Try a task again later, because its user code raised. A task that was in doubt for too
        long, or has raised too often, is quarantined."""
        care, now = task.supervision, self._clock.now()
        if isinstance(task, BoltTask) or not care.doubted(raised, now):
            care.raised(raised, now)
        if task not in self.waiting:
            self.waiting.append(task)

    def look(self, now: float) -> bool:
        """Open the tasks that are due. Returns whether any was opened."""
        has_opened = False
        for task in self.waiting:
            if task.supervision.retry_s <= now:
                try:
                    self._open(task)
                    has_opened = True
                except Raised as raised:
                    self.wait_for(task, raised)
            if isinstance(task, SpoutTask) and task.supervision.is_quarantined:
                task.abandon()
        self.waiting = [task for task in self.waiting if _is_tried_again(task)]
        return has_opened

    def context_of(self, task: BoltTask | SpoutTask) -> Context:
        """The Context passed to the user code of a task."""
        place = (self._plan, task.task, getattr(task, "committed", 0), self._clock)
        ask = task.rest.wake if isinstance(task, SpoutTask) else None
        return context(*place, task.instrument, ask)

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


# ---- bolt run ------------------------------------------------------------------------------------


class BoltRun:
    """Runs one bolt, a slice at a time: the ordinary path; slow_path.py has the other one."""

    def __init__(
        self,
        bolt: BoltTask,
        wired: Wired,
        call: UserCodeCalls,
        clock: Clock,
        context_of: Callable[[BoltTask], Context],
        relay: ReportRouter,
    ) -> None:
        self.bolt = bolt
        self.inbox = wired.inboxes[bolt.task.id]
        self._failed_trees = wired.failed_trees
        self.waits_since_s: float | None = None  # since when its inputs have waited
        self._relay = relay
        functions = (self.take, self.finish)
        self.slow_path = SlowPath(bolt, wired.failed_trees, call, clock, context_of, *functions)
        self._call = call.of(bolt.task)
        self._clock = clock

    @property
    def has_work(self) -> bool:
        """Whether it has an input to begin or to continue."""
        return bool(self.inbox.entries) or self.bolt.rare.unfinished is not None

    def run(self) -> bool:
        """Run one slice of the bolt, if it is ready. Returns whether it was."""
        bolt, output_streams = self.bolt, self.bolt.output_streams
        if not self.inbox.entries and bolt.rare.unfinished is None:
            return False
        ordinary = bolt.is_ordinary
        if not (ordinary or self.slow_path.may_run()):
            return False
        before = self._clock.now()
        since_s = before if self.waits_since_s is None else self.waits_since_s
        self.waits_since_s = since_s
        full = output_streams.full and (
            bolt.rare.unfinished is not None or not bolt.may_take(self.inbox)
        )
        output_streams.note_blocked(before, is_blocked=full)
        if full or before < bolt.supervision.resumes_s:
            return False
        self._failed_trees.turn(before)
        bolt.flush_s = 0.0
        if ordinary:
            taken = self.take(bolt.inputs_max)
            if len(batch := taken.batch):
                try:
                    process = partial(bolt.process, batch)
                    rest = self._call(bolt.task, "the processing", process, batch.roots)
                    taken.left += [] if rest is None else [rest]
                except Raised as raised:
                    bolt.fail_all(batch, raised)
            inputs = self.finish(taken)
        else:
            inputs = self.slow_path.slice()
        now = self._clock.now()
        seconds, waited_s = max(0.0, now - before - bolt.flush_s), before - since_s
        if ordinary and bolt.supervision.wait is None and bolt.rare.unfinished is None:
            bolt.measure(inputs, seconds, waited_s)
        else:
            self.slow_path.end_slice(inputs, seconds, waited_s, now)
        is_waiting = self.inbox.entries or bolt.rare.unfinished is not None
        self.waits_since_s = now if is_waiting else None
        if bolt.postponed:
            _pass_on_postponed(bolt, self._relay)
        return True

    def take(self, limit: int, *, refuses: bool = False) -> Taken:
        """Take the next inputs, up to `limit`; `refuses`: they will not be processed.

        Inputs of failed trees are dropped, as many as come first: a paused bolt tries one input at
        a time, and would need a probe for each of them.
        """
        bolt, inbox, now, dropped = self.bolt, self.inbox, self._clock.now(), 0
        while True:
            entries = bolt.next_inputs(inbox, limit)
            sizes = [len(batch) for batch, _, _ in entries]
            parts = [self._failed_trees.without_failed(batch) for batch, _, _ in entries]
            living = parts[0]
            if len(parts) > 1:
                living = bolt.join([part for part in parts if len(part)] or parts[:1])
            taken = Taken(living, entries, parts, sizes, now, dropped)
            if len(living) or not inbox.entries:
                break
            dropped = self.finish(taken)
        if not refuses and len(living):
            if bolt.instrument.records:
                bolt.instrument.delivered(living)
            if len(living) > limit:
                taken.batch, *taken.left = bolt.divide(living, limit)
        return taken

    def finish(self, taken: Taken) -> int:
        """Put the inputs that were not started back, and grant the others. Returns how many were
        taken, with those that were dropped."""
        bolt, left = self.bolt, sum(map(len, taken.left))
        started = sum(map(len, taken.parts)) - left
        for rest in taken.left:
            rest.is_recorded = True
            taken.put_back(self.inbox, rest)
        bolt.expired += sum(taken.sizes) - started
        credit = bolt.service.credit
        for (batch, origin, seq), size in zip(taken.entries, taken.sizes, strict=True):
            bolt.queue_latencies.add_one(taken.at_s - batch.arrived_s, size)
            origin.processed(size, seq, credit)
        return taken.dropped + sum(taken.sizes)


# ---- task scheduler ------------------------------------------------------------------------------


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
        bolts = _order(wired)
        equipment = (wired, call, clock, opening.context_of, relay)
        runs = [BoltRun(bolt, *equipment) for bolt in bolts]
        self._order: list[BoltRun | None] = [*runs, None]  # None: all spouts
        names = [bolt.task.component for bolt in bolts]
        self._siblings = {  # component of several tasks here → their range in the order
            name: (names.index(name), names.index(name) + names.count(name))
            for name in names
            if names.count(name) > 1
        }
        self.has_slack = False  # whether a source had less, in this step, than it may emit
        self._slices = 0  # since the last round-robin slice
        self._turn = 0  # the position to start from in the round
        self._calls_next_s = 0.0  # when calls in progress go on, however much else there is to do
        self._spouts = list(wired.spouts.values())
        for spout in self._spouts:
            spout.rest.share_worker(len(self._spouts))
            spout.rest.wake_worker = wake
        self._call = call
        self._clock = clock
        self._manual = [bolt for bolt in wired.bolts.values() if isinstance(bolt, ManualBoltTask)]
        for manual in self._manual:
            manual.collector.wake = wake
        for spout in self._spouts:
            if isinstance(spout.source, NextTupleSource) and wake is not None:
                spout.source.collector.wake = spout.rest.wake
        for bolt in wired.bolts.values():
            bolt.clock = clock
            bolt.rare = bolt.rare._replace(checks_mutation=config.check_mutation)
        for inbox in wired.inboxes.values():
            inbox.clock = clock
        self._opening = opening
        self._peer_links = peer_links
        self._relay = relay
        self._peers_are_known = False  # whether all other workers have said hello once

    def watch(self, bolt: BoltTask, seconds: float) -> None:
        """See SlowPath.watch."""
        next(run for run in self._order if run is not None and run.bolt is bolt).slow_path.watch(
            seconds
        )

    def tick(self, now: float) -> None:
        """Call the ticks that are due."""
        for ticker in self._opening.tickers:
            task = ticker.task
            if ticker.take(now) and task.supervision.runs:
                self._call(task.task, "tick", partial(task.notify, "tick", task.tick))
                _pass_on_postponed(task, self._relay)

    def run_one(self, now: float) -> bool:
        """Run the next ready task: one bolt, or each spout that may emit; carry out calls of other
        threads; and let calls go on that are in progress. Returns whether any work was done."""
        self.has_slack = False
        settled = bool(self._manual) and self._settle_calls(now)
        worked = self._run_ready(now) or settled
        calling = [run for run in self._order if run is not None and run.bolt.rare.in_progress]
        if calling and (not worked or now >= self._calls_next_s):
            for run in calling:
                run.slow_path.end_calls(0.0 if worked else _CALLS_S / len(calling))
            self._calls_next_s = self._clock.now() + _CALLS_S
        return worked or bool(calling)

    def _settle_calls(self, now: float) -> bool:
        """Carry out what other threads have called. Returns whether there was anything."""
        worked = False
        for bolt in self._manual:
            if bolt.collector.calls and bolt.settles_at_s() <= now:
                settle = partial(bolt.notify, "the calls of its threads", bolt.settle_calls)
                self._call(bolt.task, "the calls of its threads", settle)
                _pass_on_postponed(bolt, self._relay)
                if bolt.supervision.begin_pause(now) != -inf:
                    bolt.supervision.check_doubt(now)
                worked = True
        return worked

    def _run_ready(self, now: float) -> bool:
        order = self._order
        self._slices += 1
        if self._slices >= _FAIR_SLICE:
            self._slices = 0
            self._turn = (self._turn + 1) % len(order)
            order = [*order[self._turn :], *order[: self._turn]]
        last = []
        for run in order:
            if run is None:
                if self._run_spouts(now):
                    return True
            elif self._slices and self._waits_for_more(run, now):
                last.append(run)
            elif run.run():
                if run.bolt.task.component in self._siblings:
                    self._rotate_siblings(run)
                return True
        return any(run.run() for run in last)

    def _waits_for_more(self, run: BoltRun, now: float) -> bool:
        """Whether a bolt had better get more inputs before its next slice."""
        bolt, intake = run.bolt, run.bolt.intake
        if intake.at_once:
            return bolt.rare.in_progress is None and len(run.inbox) < intake.at_once
        if not intake.joins_shared or not run.inbox.entries:
            return False
        if run.waits_since_s is None:
            run.waits_since_s = now
        return now - run.waits_since_s < bolt.service.patience_s

    def _rotate_siblings(self, run: BoltRun) -> None:
        """Move the task behind the other tasks of its component."""
        order, start, end = self._order, *self._siblings[run.bolt.task.component]
        order[start:end] = [*(other for other in order[start:end] if other is not run), run]

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
        runs = (run for run in self._order if run is not None)
        paused = (run for run in runs if run.bolt.supervision.wait is not None)
        ready = (
            run.bolt
            for run in paused
            if run.has_work and not (run.bolt.supervision.waits or run.bolt.output_streams.full)
        )
        return min(
            *(bolt.supervision.resumes_s for bolt in ready),
            *(bolt.settles_at_s() for bolt in self._manual),
            inf,
            inf,
        )

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
        if spout.is_tracked:
            limit = min(limit, _EMIT_MAX)
        replayed = spout.replays.replayed
        if spout.rest.is_woken:
            spout.rest.is_woken = False
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
            self.has_slack = emitted < limit
            spout.supervision.proven = True
            spout.service.measure(emitted, self._clock.now() - now)
            if spout.rest.until_s or spout.rest.since_s is not None:
                spout.rest.end()
        else:
            spout.rest.begin(now)
        return emitted > 0


def _pass_on_postponed(task: Any, relay: ReportRouter) -> None:
    """Give trees more time, as the bolt has requested."""
    if roots := getattr(task, "postponed", None):
        relay.postpone(np.array(roots, np.uint64))
        task.postponed = []


def _order(wired: Wired) -> list[BoltTask]:
    """Readers of dead letters, then the other bolts, downstream first."""
    readers = wired.letter_readers
    letters = [bolt for id, bolt in wired.bolts.items() if id in readers]
    others = [bolt for id, bolt in reversed(wired.bolts.items()) if id not in readers]
    return [*letters, *others]


def _emit(spout: SpoutTask, now: float, limit: int) -> int:
    emitted = spout.emit(now, limit)
    if spout.instrument.faults is not NO_FAULTS:
        spout.instrument.faults.slow_down(emitted)
    return emitted
