"""Routes reports to acker tasks and verdicts to spout tasks, and detects packets that were lost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from sunshower.clock import Clock
from sunshower.errors import Unserialisable
from sunshower.failures import Cause, Failure
from sunshower.runtime.plan import ACKER, Plan, Task
from sunshower.runtime.tasks.flight_recorder import CrashReport
from sunshower.runtime.tasks.user_code import UserCodeCalls, untracked
from sunshower.runtime.tracking.batch import Batch
from sunshower.runtime.tracking.ids import U64, by_incarnation
from sunshower.runtime.tracking.ledger import Verdicts
from sunshower.runtime.tracking.reports import ShardReport
from sunshower.runtime.transport.channels import RemoteChannel
from sunshower.runtime.transport.packets import Frame
from sunshower.runtime.transport.peer_link import Lost, PeerLink
from sunshower.texts import describe

if TYPE_CHECKING:
    from sunshower.runtime.tasks.spouts.spout_task import SpoutTask
    from sunshower.runtime.tasks.wiring import Wired


class ReportRouter:
    """Calls tasks of this worker directly; adds to packets for tasks of other workers."""

    def __init__(
        self,
        plan: Plan,
        wired: Wired,
        peer_links: Mapping[int, PeerLink],
        call: UserCodeCalls,
        clock: Clock,
    ) -> None:
        self._plan = plan
        self._wired = wired
        self._peer_links = peer_links
        self._call = call
        self._clock = clock
        self._link_to = {
            task.id: peer_links[task.worker] for task in plan.tasks if task.worker in peer_links
        }

    def dispatch(self) -> None:
        """Announce the trees that have failed, and apply what the tasks of this worker have
        reported to its ackers, since the last call."""
        if self._wired.reports.failed:
            self._tell_failed(np.concatenate(self._wired.reports.failed))
        if self._wired.reports.waiting:
            for task, report in self._wired.reports.take().items():
                self.report(task, report)

    def report(self, task: int, report: ShardReport) -> None:
        """Apply a report at an acker task of this worker."""
        acker = self._wired.ackers[task]
        if acker.slow_s:
            self._clock.sleep(acker.slow_s)
        for spout, verdicts in acker.apply(report, self._clock.now()).items():
            owner = self._plan.spouts[spout].id
            if owner in self._wired.spouts:
                self.verdicts(owner, verdicts)
            else:
                waiting = self._link_to[owner].content.verdicts[owner]
                waiting.complete += verdicts.complete
                if verdicts.failed:
                    waiting.failed.add(verdicts.failed)
                waiting.ages += verdicts.ages

    def verdicts(self, task: int, verdicts: Verdicts) -> None:
        """Apply verdicts at a spout task of this worker."""
        spout, now = self._wired.spouts[task], self._clock.now()
        if verdicts.complete:
            done = verdicts.complete
            roots = done[0] if len(done) == 1 else np.concatenate(done)
            self._call(spout.task, "ack", partial(spout.complete, roots, now))
        if verdicts.failed:
            why = dict(verdicts.failed)
            failed = np.array(list(why), np.uint64)
            self._call(spout.task, "fail", partial(spout.failed, failed, why, now))
        for roots, ages_s in verdicts.ages:
            self._call(spout.task, "fail", partial(spout.heard_of, roots, ages_s, now))

    def postpone(self, roots: U64) -> None:
        """Give these trees more time, as a bolt requested of their spouts."""
        for incarnation, same in by_incarnation(roots):
            owner = self._plan.spouts[incarnation % len(self._plan.spouts)].id
            mine = roots[same]
            if owner in self._wired.spouts:
                self._wired.spouts[owner].postpone(mine, self._clock.now())
            else:
                self._link_to[owner].content.postponed += mine.tolist()

    def _tell_failed(self, roots: U64) -> None:
        """Announce failed trees to all workers, which drop their tuples from queues."""
        self._wired.reports.failed = []
        self._wired.failed_trees.note(roots)
        for peer_link in self._peer_links.values():
            peer_link.content.failed.append(roots)


# ---- loss detector -------------------------------------------------------------------------------
# Fails the tuple trees that a crashed worker or a lost packet has affected.
#
# - At once: trees of frames and reports that were sent and not answered (`peer_died`, `lost`).
# - After a grace period: trees of which the crashed worker may have held or sent a part (`sweep`).
# - Trees that neither of these finds fail at their deadline (pending.py).


class LossDetector:
    """Reports the losses of one worker to the ackers, or to the spouts of this worker."""

    def __init__(self, plan: Plan, wired: Wired) -> None:
        self.count = 0  # anchors of records in frames that did not arrive
        self.untracked: str | None = None  # the first loss of an untracked record
        self._plan = plan
        self._wired = wired
        self._place = {task.id: task for task in plan.tasks}

    def spouts_began(self, peer: int, life: int) -> None:
        """Spout tasks of a worker start a new life: reports of their previous ones are late."""
        for spout in self._plan.spouts:
            if spout.worker == peer:
                for acker in self._wired.ackers.values():
                    acker.ledger.begin(self._plan.incarnation(spout, life))

    def peer_died(self, peer: int) -> None:
        """Fail the trees of frames sent to a worker and not known to be processed."""
        for channel in self._wired.channels.values():
            if isinstance(channel, RemoteChannel) and self._place[channel.target].worker == peer:
                self._fail_frames(channel, channel.lose(), Cause.ACTOR_DIED)

    def sweep(self, peer: int, now: float) -> None:
        """Start a grace period for the trees of which a crashed worker may have held a part."""
        for spout in self._wired.spouts.values():
            self._sweep(spout, self._plan.tasks_on(peer), now)

    def lost(self, lost: Lost, peer: int, cause: Cause, now: float) -> None:
        """Fail the trees of a packet to `peer` that did not arrive, or may not have arrived."""
        for channel, seqs in lost.frames:
            self._fail_frames(channel, channel.lose(seqs), cause)
        failure = Failure(cause, ACKER, reason="a report was lost", worker=peer)
        for report in lost.reports:
            for roots, _ in report.starts:  # the acker may never get them
                self._fail_here(roots, failure, now)
            for roots, _ in report.acks:
                self._wired.reports.fail(roots, failure)
            for root, reason in report.fails:
                self._wired.reports.fail(np.array([root], np.uint64), reason)

    def suspect(self, crash_report: CrashReport, now: float) -> None:
        """Charge the tuples that a crashed process was executing with one attempt."""
        for spout in self._wired.spouts.values():  # each spout ignores roots that are not its own
            spout.suspect(crash_report.suspects, crash_report.failure(self._plan), now)

    def cannot_travel(self, channel: RemoteChannel, bad: Batch, error: Unserialisable) -> None:
        """Fail the trees of a record that cannot be sent to another process."""
        reason = f"{error} (the record: {describe(bad.records[0], 200)})"
        failure = self._at_source(channel.source, reason, type(error).__name__)
        self._fail_or_note(bad.roots, bad.blamed(failure))

    def overloaded(self) -> None:
        """Fail the trees of records that a cycle emitted beyond its limit."""
        turned_away, self._wired.overload = self._wired.overload, []
        for target, batch in turned_away:
            reason = (
                f"the cycle through it already holds {self._plan.graph.config.window_records_max} "
                "records (window_records_max): it makes more than it takes in"
            )
            failure = self._at(self._place[target], Cause.OVERLOAD, reason)
            if batch.offsets is None and batch.tracked:
                self._wired.reports.fail(batch.roots, batch.blamed(failure))
            else:
                for index in range(len(batch)):
                    self._fail_or_note(batch.only(index).roots, failure)

    def cannot_be_rebuilt(self, frame: Frame) -> None:
        """Fail the trees of a frame whose records arrived but cannot be rebuilt."""
        name = self._plan.streams[frame.batch.stream].spec.schema.name
        reason = f"a record {name} arrived, but cannot be made again: {frame.error}"
        kind = str(frame.error).split(":", 1)[0]
        failure = frame.batch.blamed(self._at_source(frame.batch.source, reason, kind))
        self._fail_or_note(frame.batch.roots, failure)

    def _sweep(self, spout: SpoutTask, dead: list[Task], now: float) -> None:
        reached = self._plan.graph.downstream(spout.task.component)
        bolts = [task for task in dead if task.component in reached]
        shards = self._plan.shards[self._plan.spouts.index(spout.task)]
        residues = {index for index, acker in enumerate(shards) if acker in dead}
        if bolts or residues:
            first = bolts[0] if bolts else shards[min(residues)]
            failure = self._at(first, Cause.ACTOR_DIED, "its worker died and was started again")
            spout.sweep(now, failure, None if bolts else residues, len(shards))

    def _fail_here(self, roots: U64, failure: Failure, now: float) -> None:
        for spout in self._wired.spouts.values():  # each spout ignores roots that are not its own
            spout.failed(roots, failure, now)

    def _fail_frames(self, channel: RemoteChannel, roots: U64, cause: Cause) -> None:
        self.count += len(roots)
        reason = "frames on their way to it were lost"
        self._wired.reports.fail(roots, self._at(self._place[channel.target], cause, reason))

    def _fail_or_note(self, roots: U64, failure: Failure) -> None:
        """Fail these trees; an untracked loss is reported at the end of the run."""
        if not len(roots):
            self.untracked = self.untracked or untracked(failure)
        self._wired.reports.fail(roots, failure)

    def _at_source(self, source: int, reason: str, exception: str) -> Failure:
        return replace(self._at(self._place[source], Cause.EXCEPTION, reason), exception=exception)

    def _at(self, task: Task, cause: Cause, reason: str) -> Failure:
        return Failure(cause, task.component, task.index, reason, worker=task.worker)
