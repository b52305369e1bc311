"""The spout that controls a batch group: emits `$batch`, `$commit` and `$success`.

    next_tuple, ack, fail ──▶ BatchScheduler ──▶ a step: first the store, then the tuple
    $batch    tracked by its attempt; acked when all tasks have processed the batch
    $commit   tracked by its attempt; acked when all tasks have written their states
    $success  untracked; emitted when the next txid is stored as the current one

Storm: org.apache.storm.trident.topology.MasterBatchCoordinator
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from sunshower.errors import ReportedFailedBatch, TopologyFailed, Unavailable
from sunshower.failures import Cause, Failure
from sunshower.state.tree import Tree
from sunshower.topologies.components import Context, Spout, SpoutCollector, Stateless
from sunshower.topologies.operators.port import Attempt
from sunshower.trident.coordination.attempts import BATCH, COMMIT, SUCCESS, BatchCommand
from sunshower.trident.coordination.batch_scheduler import (
    Advance,
    BatchScheduler,
    Begin,
    Commit,
    Step,
)
from sunshower.trident.coordination.spout_coordinator import ended_of
from sunshower.trident.coordination.stored_progress import (
    StoredProgress,
    coordinator_path,
    meta_path,
)
from sunshower.trident.coordination.timing import Timing
from sunshower.trident.coordination.transactional_log import JsonNode
from sunshower.trident.spouts.port import Coordinator, TridentSpout
from sunshower.trident.stages.plan import Skip
from sunshower.trident.tasks.batch_letters import packed_failure
from sunshower.trident.tasks.idle_backoff import IdleBackoff

_REPORT_EVERY_S = 6.0  # interval between reports that batches fail because of an outage


def is_to_blame(failure: Failure, own: Collection[str]) -> bool:
    """Whether a failure counts as an attempt of the batch, as it would for a tuple (failures.py).
    Tuples that the group's `own` bolts fail without an exception do not count: they are late, or
    incomplete after a crash. Outages do not count either."""
    if failure.cause is Cause.FAILED and (not failure.component or failure.component in own):
        return False
    return failure.is_charged


@dataclass(frozen=True)
class GroupPlan:
    """The batch group as its coordinator needs it."""

    group: str
    spouts: Mapping[str, TridentSpout]
    store: Callable[[], Tree]
    root: str
    max_batches: int
    interval_s: float
    skip: Skip
    bolts: frozenset[str]  # its own; the tree of a batch may contain others
    ends_windows: frozenset[str] = frozenset()  # spouts whose end may end windows


class MasterBatchCoordinator(Stateless, Spout[Any]):
    """Emits the steps of a BatchScheduler. `ack` and `fail` emit too, but only `next_tuple`
    begins new batches."""

    __sunshower_batches__ = True  # its tasks cannot change while they run

    streams = {BATCH: BatchCommand, COMMIT: BatchCommand, SUCCESS: BatchCommand}  # noqa: RUF012
    replay = False

    def __init__(self, plan: GroupPlan) -> None:
        self._plan = plan
        self._out: SpoutCollector[Any] | None = None
        self._causes: dict[int, Failure] = {}  # txid → the last failure that counted
        self._quiet_until_s = 0.0
        self._windows_wait = False  # there are no more rows, and windows do not know it yet

    @property
    def continues(self) -> bool:
        """Whether a former run may have stored progress, from which this one goes on."""
        return bool(getattr(self._plan.store, "continues", True))

    def open(self, context: Context) -> None:
        """Open the stores and start a new epoch. Raises Unavailable during an outage."""
        plan, self._context, self._clock = self._plan, context, context.clock
        self._tree = plan.store()
        try:
            spouts = list(plan.spouts)
            self._progress = StoredProgress(self._tree, plan.root, spouts, context.topology)
            self._coordinators: dict[str, Coordinator] = {
                id: spout.coordinator(self._tree, coordinator_path(plan.root, id), context)
                for id, spout in plan.spouts.items()
            }
        except BaseException:
            self._tree.close()
            raise
        self._scheduler = BatchScheduler(
            self._progress.current,
            self._progress.attempts,
            max_batches=plan.max_batches,
            interval_s=plan.interval_s,
            attempts_max=plan.skip.attempts,
            can_skip=plan.skip.dead_letters is not None,
            skipped=self._progress.skipped,
            failures=self._progress.failures,
        )
        self._idle = IdleBackoff(
            self._tree, plan.root, {id: len(context.tasks[id]) for id in plan.spouts}
        )
        self._timing = Timing(context.noted)

    def next_tuple(self, out: SpoutCollector[Any]) -> None:
        self._out = out
        self._run_steps(out, self._is_ready)

    def ack(self, message_id: Any) -> None:
        attempt: Attempt = message_id
        if attempt.epoch == self._progress.epoch and self._scheduler.acked(*attempt[:2]):
            self._timing.acked(attempt, self._clock.now())
            self._run_begun()

    def fail(self, message_id: Any, failure: Failure) -> None:
        attempt: Attempt = message_id
        counts = is_to_blame(failure, self._plan.bolts)
        if attempt.epoch != self._progress.epoch or not self._scheduler.failed(
            *attempt[:2], self._clock.now(), counts=counts
        ):
            return
        self._timing.failed(attempt, failure, self._clock.now())
        scheduler = self._scheduler
        if counts:
            self._causes[attempt.txid] = failure
            # After an outage, the next attempt stores it; giving up raises anyway.
            with suppress(Exception if scheduler.gave_up else Unavailable):
                self._keep_failures(attempt.txid)
        if scheduler.gave_up:
            raise TopologyFailed(self._halt_message(attempt, failure))
        self._run_begun()
        reported = failure.exception == ReportedFailedBatch.__name__
        is_outage = failure.cause is Cause.UNAVAILABLE
        if reported or (is_outage and self._may_report()):  # recorded as an error of this task
            raise ReportedFailedBatch(f"batch {attempt.txid}, attempt {attempt.attempt}: {failure}")

    def deactivate(self) -> None:
        self._out = None  # after a rebalance there is another collector

    def figures(self) -> Mapping[str, float]:
        found = self._timing.figures(self._scheduler, self._clock.now())
        return found | {
            f"spout {id}/tasks": len(self._context.tasks[id]) for id in self._plan.spouts
        }

    def close(self) -> None:
        for coordinator in self._coordinators.values():
            coordinator.close()
        self._tree.close()

    def _may_report(self) -> bool:
        """Whether the interval since the last report of an outage has passed."""
        now = self._clock.now()
        if now < self._quiet_until_s:
            return False
        self._quiet_until_s = now + _REPORT_EVERY_S
        return True

    def _is_ready(self, txid: int) -> bool:
        return self._windows_wait or any(one.is_ready(txid) for one in self._coordinators.values())

    def _run_begun(self) -> None:
        """Emit what follows from an ack or a failure at once. `next_tuple`, which is not called
        during a drain, begins new batches and retries steps whose store was unavailable."""
        if self._out is None:
            return
        try:
            self._run_steps(self._out, lambda _: False)
        except Unavailable:
            return  # next_tuple retries

    def _run_steps(self, out: SpoutCollector[Any], may_begin: Callable[[int], bool]) -> None:
        now = self._clock.now()
        while (step := self._scheduler.next_step(now, may_begin)) is not None:
            self._carry_out(step, out)

    def _carry_out(self, step: Step, out: SpoutCollector[Any]) -> None:
        scheduler, now = self._scheduler, self._clock.now()
        id = Attempt(step.txid, step.attempt, self._progress.epoch)
        match step:
            case Begin(txid, attempt, skip):
                why = self._skip_reason(txid) if skip else None
                self._progress.begin({**scheduler.attempts, txid: attempt}, scheduler.failures)
                scheduler.confirm(step, now)
                self._timing.begun(id, now, skip=skip)
                out.emit(BatchCommand(*id, skip, why, scheduler.current), id, stream=BATCH)
            case Commit():
                scheduler.confirm(step, now)
                out.emit(BatchCommand(*id, scheduler.active[step.txid].skip), id, stream=COMMIT)
            case Advance(txid, _):
                skipped = scheduler.active[txid].skip
                self._progress.committed(txid)
                now = self._clock.now()  # the write took time
                scheduler.confirm(step, now)
                self._causes.pop(txid, None)
                self._timing.committed(id, now, skipped=skipped)
                out.emit(BatchCommand(*id, skipped), stream=SUCCESS)
                if self._was_last(txid):
                    scheduler.finish()
                    out.finish()
                else:
                    scheduler.delay_begin(self._idle.seconds(), now)

    def _was_last(self, txid: int) -> bool:
        """Whether no spout will have rows after a committed batch, and all windows know it."""
        self._windows_wait, has_told = False, True
        for id, coordinator in self._coordinators.items():
            node = JsonNode(self._tree, meta_path(self._plan.root, id, txid))
            if not node.read():
                return False
            metadata, ended = ended_of(node.value)
            if not coordinator.is_last(metadata):
                return False
            has_told = has_told and (ended or id not in self._plan.ends_windows)
        self._windows_wait = not has_told
        return has_told

    def _keep_failures(self, txid: int) -> None:
        """Store the failures for a later life of this task. After giving up, none are stored, so
        that a new run has all attempts again."""
        scheduler = self._scheduler
        if scheduler.skips(txid):
            self._skip_reason(txid)
        self._progress.begin(scheduler.attempts, {} if scheduler.gave_up else scheduler.failures)

    def _skip_reason(self, txid: int) -> list[Any]:
        """Why a batch is skipped; stored before it is sent."""
        if txid not in self._progress.skipped:
            self._progress.skip(txid, packed_failure(self._causes[txid], self._plan.skip.attempts))
        return self._progress.skipped[txid]

    def _halt_message(self, attempt: Attempt, failure: Failure) -> str:
        times, skip = self._plan.skip.attempts, self._plan.skip.dead_letters
        advice = (
            "Correct what raises, allow more attempts (Skip(attempts=…)), or skip such batches: "
            'skip=Skip(dead_letters="dead.jsonl")'
            if skip is None
            else "Writing its rows as dead letters failed as well: correct the cause of that"
        )
        trace = f"\n{failure.traceback.rstrip()}" if failure.traceback else ""
        return (
            f"batch {attempt.txid} of group {self._plan.group!r} failed {times} times, the last "
            f"time, in attempt {attempt.attempt}, {failure}. {advice}.{trace}"
        )
