"""What a death, or a packet that did not arrive, has cost: which trees fail, and with what cause.

Three depths: frames and reports that were lost fail at once; what a dead worker held or had only
half sent is swept a grace later; the deadline is the last resort (spout_task.py).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from sunshower.errors import Unserialisable
from sunshower.failures import Cause, Failure
from sunshower.runtime.batch import Batch
from sunshower.runtime.bolt_task import untracked
from sunshower.runtime.channels import RemoteChannel
from sunshower.runtime.frames import Frame
from sunshower.runtime.ids import U64
from sunshower.runtime.lanes import NOTHING, Lost
from sunshower.runtime.obituary import Obituary
from sunshower.runtime.plan import ACKER, Plan, Task
from sunshower.runtime.spout_task import SpoutTask
from sunshower.runtime.wiring import Wired


class Losses:
    """The losses of one worker, reported to the ackers, or to the spouts beside it."""

    def __init__(self, plan: Plan, wired: Wired) -> None:
        self.count = 0  # anchors of records in frames that did not arrive
        self.untracked: str | None = None  # the first loss that nobody follows
        self._plan = plan
        self._wired = wired
        self._place = {task.id: task for task in plan.tasks}

    def spouts_began(self, peer: int, life: int) -> None:
        """The spout tasks of a worker begin a life: reports of their former ones are late."""
        for spout in self._plan.spouts:
            if spout.worker == peer:
                for acker in self._wired.ackers.values():
                    acker.ledger.begin(self._plan.incarnation(spout, life))

    def peer_died(self, peer: int) -> None:
        """What was sent to a worker and is not known to be processed has failed."""
        for channel in self._wired.channels.values():
            if isinstance(channel, RemoteChannel) and self._place[channel.target].worker == peer:
                self._fail_frames(channel, channel.lose(), Cause.ACTOR_DIED)

    def sweep(self, peer: int, now: float) -> None:
        """What a dead worker may have held fails after a grace, if it is pending then."""
        for spout in self._wired.spouts.values():
            self._sweep(spout, self._plan.tasks_on(peer), now)

    def lost(self, lost: Lost, peer: int, cause: Cause, now: float) -> None:
        """A packet to `peer` did not arrive, or nobody knows whether it did."""
        if lost is NOTHING:  # as nearly always
            return
        for channel, seqs in lost.frames:
            self._fail_frames(channel, channel.lose(seqs), cause)
        failure = Failure(cause, ACKER, reason="a report was lost", worker=peer)
        for report in lost.reports:
            for roots, _ in report.starts:  # its acker may never hear of these; their spouts do
                self._fail_here(roots, failure, now)
            for roots, _ in report.acks:
                self._wired.reports.fail(roots, failure)
            for root, reason in report.fails:
                self._wired.reports.fail(np.array([root], np.uint64), reason)

    def suspect(self, obituary: Obituary, now: float) -> None:
        """What a process was executing when it died is to blame, until it is known better."""
        for spout in self._wired.spouts.values():  # each knows its own
            spout.suspect(obituary.suspects, obituary.failure(self._plan), now)

    def cannot_travel(self, channel: RemoteChannel, bad: Batch, error: Unserialisable) -> None:
        """A record that cannot be sent to another process."""
        reason = f"{error} (the record: {bad.records[0]!r:.200})"
        failure = self._at_source(channel.source, reason, type(error).__name__)
        self._fail_or_note(bad.roots, failure)

    def overloaded(self) -> None:
        """Records that a cycle made beyond its limit: their trees fail, nothing waits for them."""
        turned_away, self._wired.overload = self._wired.overload, []
        for target, batch in turned_away:
            reason = (
                f"the cycle through it already holds {self._plan.graph.config.window_records_max} "
                "records (window_records_max): it makes more than it takes in"
            )
            failure = self._at(self._place[target], Cause.OVERLOAD, reason)
            if batch.offsets is None and batch.tracked:
                self._wired.reports.fail(batch.roots, failure)
            else:
                for index in range(len(batch)):
                    self._fail_or_note(batch.only(index).roots, failure)

    def cannot_be_rebuilt(self, frame: Frame) -> None:
        """A frame whose records arrived but cannot be made again."""
        name = self._plan.streams[frame.batch.stream].spec.schema.name
        reason = f"a record {name} arrived, but cannot be made again: {frame.error}"
        kind = str(frame.error).split(":", 1)[0]
        self._fail_or_note(frame.batch.roots, self._at_source(frame.batch.source, reason, kind))

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
        for spout in self._wired.spouts.values():  # each knows its own
            spout.failed(roots, failure, now)

    def _fail_frames(self, channel: RemoteChannel, roots: U64, cause: Cause) -> None:
        self.count += len(roots)
        reason = "frames on their way to it were lost"
        self._wired.reports.fail(roots, self._at(self._place[channel.target], cause, reason))

    def _fail_or_note(self, roots: U64, failure: Failure) -> None:
        """Have these trees replayed; what nobody follows is told at the end of the run."""
        if not len(roots):
            self.untracked = self.untracked or untracked(failure)
        self._wired.reports.fail(roots, failure)

    def _at_source(self, source: int, reason: str, exception: str) -> Failure:
        return replace(self._at(self._place[source], Cause.EXCEPTION, reason), exception=exception)

    def _at(self, task: Task, cause: Cause, reason: str) -> Failure:
        return Failure(cause, task.component, task.index, reason, worker=task.worker)
