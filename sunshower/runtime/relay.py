"""Reports on their way to the ackers, verdicts on their way to the spouts: here or elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy as np

from sunshower.clock import Clock
from sunshower.runtime.acker_task import Verdicts
from sunshower.runtime.calls import Calls
from sunshower.runtime.ids import U64, incarnations_of
from sunshower.runtime.lanes import Lane
from sunshower.runtime.plan import Plan
from sunshower.runtime.reports import ShardReport
from sunshower.runtime.wiring import Wired


class Relay:
    """For the tasks of one worker: at once to those beside them, by lane to the others."""

    def __init__(
        self, plan: Plan, wired: Wired, lanes: Mapping[int, Lane], call: Calls, clock: Clock
    ) -> None:
        self._plan = plan
        self._wired = wired
        self._lanes = lanes
        self._call = call
        self._clock = clock
        self._place = {task.id: task.worker for task in plan.tasks}

    def dispatch(self) -> None:
        """Send off what the tasks here have reported since the last time."""
        if self._wired.reports.failed:
            self._tell_failed(np.concatenate(self._wired.reports.failed))
        if not self._wired.reports.waiting:
            return
        for task, report in self._wired.reports.take().items():
            if task in self._wired.ackers:
                self.report(task, report)
            else:
                waiting = self._lane_to(task).content.reports.setdefault(task, ShardReport())
                waiting.starts += report.starts
                waiting.acks += report.acks
                waiting.fails += report.fails
                waiting.asks += report.asks

    def report(self, task: int, report: ShardReport) -> None:
        """For an acker task that is here."""
        acker = self._wired.ackers[task]
        if acker.slow_s:
            self._clock.sleep(acker.slow_s)
        for spout, verdicts in acker.hear(report, self._clock.now()).items():
            owner = self._plan.spouts[spout].id
            if owner in self._wired.spouts:
                self.verdicts(owner, verdicts)
            else:
                waiting = self._lane_to(owner).content.verdicts.setdefault(owner, Verdicts())
                waiting.complete += verdicts.complete
                waiting.failed += verdicts.failed
                waiting.ages += verdicts.ages

    def verdicts(self, task: int, verdicts: Verdicts) -> None:
        """For a spout task that is here."""
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
        """A bolt asks the spouts of these for more time."""
        owners = incarnations_of(roots) % len(self._plan.spouts)
        for index in set(owners.tolist()):
            owner, mine = self._plan.spouts[index].id, roots[owners == index]
            if owner in self._wired.spouts:
                self._wired.spouts[owner].postpone(mine, self._clock.now())
            else:
                self._lane_to(owner).content.postponed += mine.tolist()

    def _tell_failed(self, roots: U64) -> None:
        """Let all workers drop what is left of these trees."""
        self._wired.reports.failed = []
        self._wired.failed_trees.note(roots)
        for lane in self._lanes.values():
            lane.content.failed.append(roots)

    def _lane_to(self, task: int) -> Lane:
        return self._lanes[self._place[task]]
