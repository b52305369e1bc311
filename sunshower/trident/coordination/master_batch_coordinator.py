"""The spout that emits `$batch`, `$commit` and `$success`; separate because Storm has it by name.

    next_tuple, ack, fail ──▶ BatchScheduler ──▶ a step: first the store, then the tuple
                              coordinators   ──▶ what a batch consists of, for each spout
    $batch    tracked by its attempt; acked when all tasks have processed the batch
    $commit   tracked by its attempt; acked when all tasks have written their states
    $success  untracked; emitted when the next txid is stored as the current one

Storm: org.apache.storm.trident.topology.MasterBatchCoordinator
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from traceback import format_exc
from typing import Any

from sunshower.errors import (
    FailedBatch,
    ReportedFailedBatch,
    SunshowerError,
    TopologyFailed,
    Unavailable,
    user_errors,
)
from sunshower.failures import Cause, Failure
from sunshower.outages import is_unavailable
from sunshower.state.tree import Tree
from sunshower.texts import describe_error
from sunshower.topologies.components import Context, Spout, SpoutCollector, Stateless
from sunshower.topologies.operators.port import Attempt
from sunshower.topologies.operators.state_shapes import shape_of
from sunshower.trident.coordination.attempts import BATCH, COMMIT, SUCCESS, BatchCommand
from sunshower.trident.coordination.batch_scheduler import (
    Advance,
    BatchScheduler,
    Begin,
    Commit,
    Status,
    Step,
)
from sunshower.trident.coordination.transactional_log import (
    StoredProgress,
    TransactionalLog,
    coordinator_path,
    meta_path,
    packed_failure,
)
from sunshower.trident.spouts.port import Coordinator, SpoutKind, TridentSpout
from sunshower.trident.stages.plan import Skip
from sunshower.trident.tasks.emitter_runner import IdleBackoff

_LOG = logging.getLogger("sunshower")
_REPORT_EVERY_S = 6.0  # interval between reports that batches fail because of an outage


# ---- sources of batches --------------------------------------------------------------------------

_ENDED = "$ended"


class BatchSource:
    """The coordinator of a spout, and the log of the metadata that it has decided. They are stored
    before they are sent; with windows of time, or states that expire, downstream together with
    whether the source has rows after the batch, and when it has begun:
    {"$ended": true, "begun": 1.7e9, "metadata": …}. In Storm it is a bolt of its own:
    org.apache.storm.trident.spout.TridentSpoutCoordinator."""

    def __init__(
        self, spout: TridentSpout, tree: Tree, path: str, context: Context, *, ends_windows: bool
    ) -> None:
        """`path`: see `coordinator_path`. `ends_windows`: windows of time are downstream, which the
        end of the source may end. Raises Unavailable during an outage of store or source."""
        self._clock = context.clock
        self._spout, self._ends_windows = spout, ends_windows
        self._log = TransactionalLog(tree, meta_path(path))
        self._coordinator: Coordinator = spout.coordinator(tree, path, context)
        self.is_ready, self.close = self._coordinator.is_ready, self._coordinator.close

    def begin(self, txid: int, current: int) -> list[Any]:
        """[the metadata of a batch, whether the source has no rows after it, when it has begun].
        The latter two are decided once for a transactional batch: all attempts end the same
        windows, and states expire alike. An opaque batch has those of its last attempt. The batches
        before `current` are committed. Raises FailedBatch if the batch before it has no metadata,
        from which its own are made."""
        log, known = self._log, txid in self._log
        if txid > current and txid - 1 not in log:
            raise FailedBatch(f"the batch before batch {txid} has not begun")
        previous, _, before_s = _parts(log.previous(txid))
        stored, ended, begun_s = _parts(log.get(txid))
        metadata = self._coordinator.initialize(txid, previous, stored)
        if self._ends_windows:
            if not (known and self._spout.kind is SpoutKind.TRANSACTIONAL):
                has_ended = getattr(self._coordinator, "has_ended", None)
                is_last = self._coordinator.is_last
                ended = has_ended(metadata, current) if has_ended else is_last(metadata)
                begun_s = 0.0
            begun_s = begun_s or max(before_s, self._clock.wall())
            metadata = {_ENDED: ended, "begun": begun_s, "metadata": metadata}
        log.override(txid, metadata)
        return [*_parts(log.get(txid))]

    def committed(self, txid: int) -> None:
        """Remove metadata from before this batch; its own are needed for the next one. After an
        outage the next batch removes them."""
        with suppress(Unavailable):
            self._log.cleanup_before(txid)
        self._coordinator.success(txid)

    def was_last(self, txid: int) -> bool:
        return txid in self._log and self._coordinator.is_last(_parts(self._log.get(txid))[0])

    def has_told(self, txid: int) -> bool:
        """Whether windows downstream know from this batch that it is the last."""
        return not self._ends_windows or _parts(self._log.get(txid))[1]


def _parts(stored: Any) -> tuple[Any, bool, float]:
    """The metadata of a batch as stored, whether it is known that the source has no rows after it,
    and when it has begun; 0: that is not known."""
    if isinstance(stored, dict) and _ENDED in stored:
        return stored["metadata"], stored[_ENDED], stored.get("begun", 0.0)
    return stored, False, 0.0


# ---- timing --------------------------------------------------------------------------------------


_ENDED_MAX = 12  # committed batches whose times are among the figures


@dataclass
class _Times:
    begun_s: float
    processed_s: float | None = None


class Timing:
    """Times of the active batches, and sums over the finished ones. `noted` is Context.noted: each
    change of an attempt is recorded in the event log."""

    def __init__(self, noted: Callable[..., None]) -> None:
        self._noted = noted
        self._active: dict[int, _Times] = {}
        self._committed = self._skipped = self._failed = 0
        self._unavailable_since_s: float | None = None  # no batch has been committed since
        self._process_s = self._commit_s = self._busy_s = 0.0  # of the last batch; of all
        # the last ones: txid, when it has begun, and the seconds of processing and commit
        self._ended: deque[tuple[int, float, float, float]] = deque(maxlen=_ENDED_MAX)

    def begun(self, id: Attempt, now: float, *, skip: bool) -> None:
        self._active[id.txid] = _Times(now)
        self._note("batch begun", id, skip=skip)

    def acked(self, id: Attempt, now: float) -> None:
        times = self._active[id.txid]
        if times.processed_s is None:
            times.processed_s = now
            self._note("batch processed", id)

    def failed(self, id: Attempt, failure: Failure, now: float) -> None:
        """Record that the active attempt has failed; later batches are given up with it."""
        self._failed += 1
        if failure.cause is Cause.UNAVAILABLE and self._unavailable_since_s is None:
            self._unavailable_since_s = now
        self._note("batch failed", id, cause=str(failure.cause), why=str(failure))

    def committed(self, id: Attempt, now: float, *, skipped: bool) -> None:
        times = self._active.pop(id.txid)
        processed_s = now if times.processed_s is None else times.processed_s
        self._process_s, self._commit_s = processed_s - times.begun_s, now - processed_s
        self._busy_s += now - times.begun_s
        self._ended.append((id.txid, times.begun_s, self._process_s, self._commit_s))
        self._committed += 1
        self._unavailable_since_s = None
        self._skipped += skipped
        self._note("batch committed", id, skipped=skipped)

    def _note(self, event: str, id: Attempt, **facts: Any) -> None:
        self._noted(event, **id._asdict(), **facts)

    def figures(self, machine: BatchScheduler, now: float) -> dict[str, float]:
        """Figures by name. Names with a slash belong to one active batch: attempt, phase (0
        processing, 1 processed, 2 committing, 3 committed), age, and seconds until it was
        processed."""
        figures: dict[str, float] = {
            "txid": machine.current,
            "batches active": len(machine.active),
            "batches committed": self._committed,
            "attempts failed": self._failed,
            "batches skipped": self._skipped,
            "process seconds": self._process_s,
            "commit seconds": self._commit_s,
            "mean seconds": self._busy_s / self._committed if self._committed else 0.0,
        }
        if self._unavailable_since_s is not None:
            figures["seconds unavailable"] = now - self._unavailable_since_s
        for txid, active in machine.active.items():
            figures[f"batch {txid}/attempt"] = active.attempt
            figures[f"batch {txid}/phase"] = list(Status).index(active.status)
            times = self._active[txid]
            figures[f"batch {txid}/age seconds"] = now - times.begun_s
            if times.processed_s is not None:
                figures[f"batch {txid}/process seconds"] = times.processed_s - times.begun_s
        for txid, begun_s, process_s, commit_s in self._ended:
            figures[f"ended {txid}/age seconds"] = now - begun_s
            figures[f"ended {txid}/process seconds"] = process_s
            figures[f"ended {txid}/commit seconds"] = commit_s
        return figures


# ---- master batch coordinator --------------------------------------------------------------------


def is_to_blame(failure: Failure, own_bolts: Collection[str]) -> bool:
    """Whether a failure counts as an attempt of the batch, as it would for a tuple (failures.py).
    Tuples that the group's `own_bolts` fail without an exception do not count: they are late, or
    incomplete after a crash. Outages do not count either."""
    if failure.cause is Cause.FAILED and (not failure.component or failure.component in own_bolts):
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

    __sunshower_batches__ = True  # the tasks of its group change together

    streams = {BATCH: BatchCommand, COMMIT: BatchCommand, SUCCESS: BatchCommand}  # noqa: RUF012
    replay = False

    def __init__(self, plan: GroupPlan) -> None:
        self._plan = plan
        self._out: SpoutCollector[Any] | None = None
        self._settles = False  # no new batch begins: tasks will change
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
            self._sources = {
                id: BatchSource(
                    *(spout, self._tree, coordinator_path(plan.root, id), context),
                    ends_windows=id in plan.ends_windows,
                )
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

    def activate(self) -> None:
        self._settles = False

    def settle(self) -> None:
        """Begin no new batch. Those that have begun are committed before tasks change."""
        self._settles = True

    @property
    def is_settled(self) -> bool:
        """Whether every batch that has begun is committed, or none will be any more."""
        scheduler = self._scheduler
        return not scheduler.attempts or scheduler.finished or scheduler.gave_up

    def deactivate(self) -> None:
        self._out = None  # after a rebalance there is another collector

    def figures(self) -> Mapping[str, float]:
        figures = self._timing.figures(self._scheduler, self._clock.now())
        return figures | {
            f"spout {id}/tasks": len(self._context.tasks[id]) for id in self._plan.spouts
        }

    def refuses(self, tasks: int) -> str | None:
        """Why it cannot have so many tasks."""
        return None if tasks == 1 else "one task coordinates the batches"

    def differences(self, other: Any) -> list[str]:
        """What hinders the coordinator of new code from continuing with these batches."""
        ours, theirs = self._plan, other._plan
        lines = []
        if shape_of([ours.store, ours.root]) != shape_of([theirs.store, theirs.root]):
            lines.append(f"the store of the batches of {ours.group!r} differs")
        for id, spout in ours.spouts.items():
            new = theirs.spouts.get(id)
            if new is None:
                lines.append(f"the position of the batches of {id!r} would be left without it")
            elif (old_kind := _kind_of(spout)) != (new_kind := _kind_of(new)):
                lines.append(
                    f"the batches of {id!r} are read by {new_kind} instead of {old_kind}, which "
                    "need not find their position"
                )
        return lines

    def close(self) -> None:
        for source in self._sources.values():
            source.close()
        self._tree.close()

    def _may_report(self) -> bool:
        """Whether the interval since the last report of an outage has passed."""
        now = self._clock.now()
        if now < self._quiet_until_s:
            return False
        self._quiet_until_s = now + _REPORT_EVERY_S
        return True

    def _is_ready(self, txid: int) -> bool:
        if self._settles:
            return False
        return self._windows_wait or any(source.is_ready(txid) for source in self._sources.values())

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
                command = BatchCommand(*id, skip, why, scheduler.current, self._begin_of(txid))
                scheduler.confirm(step, now)
                self._timing.begun(id, now, skip=skip)
                out.emit(command, id, stream=BATCH)
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
                self._tell_committed(txid)

    def _begin_of(self, txid: int) -> dict[str, Any]:
        """What a batch consists of, by spout; the text of an error with which the emitters of that
        spout fail the batch. Raises what an outage raises: then the batch begins later."""
        begun: dict[str, Any] = {}
        for id, source in self._sources.items():
            try:
                begun[id] = source.begin(txid, self._scheduler.current)
            except user_errors() as error:
                if is_unavailable(error):
                    raise
                trace = "" if isinstance(error, SunshowerError) else f"\n{format_exc().rstrip()}"
                begun[id] = f"the coordinator of spout {id!r} raised {describe_error(error)}{trace}"
        return begun

    def _tell_committed(self, txid: int) -> None:
        """Tell all coordinators. What one of them raises is only logged: the batch is committed,
        and the next ones do not depend on it."""
        for id, source in self._sources.items():
            try:
                source.committed(txid)
            except user_errors():
                _LOG.exception("success of batch %d: the coordinator of spout %r raised", txid, id)

    def _was_last(self, txid: int) -> bool:
        """Whether no spout will have rows after a committed batch, and all windows know it."""
        self._windows_wait, sources = False, self._sources.values()
        if not all(source.was_last(txid) for source in sources):
            return False
        self._windows_wait = not all(source.has_told(txid) for source in sources)
        return not self._windows_wait

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


def _kind_of(spout: TridentSpout) -> str:
    """What reads the batches, by name: code by value has another class in each version."""
    inner = getattr(spout, "_spout", spout)
    return f"{type(inner).__qualname__} ({spout.kind.value})"
