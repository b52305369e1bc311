"""Routes reports to acker tasks and verdicts to spout tasks, in this worker or another one."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy as np

from sunshower.clock import Clock
from sunshower.runtime.plan import Plan
from sunshower.runtime.tasks.user_code_calls import UserCodeCalls
from sunshower.runtime.tracking.acker_task import Verdicts
from sunshower.runtime.tracking.ids import U64, incarnations_of
from sunshower.runtime.tracking.reports import ShardReport
from sunshower.runtime.transport.peer_link import PeerLink
from sunshower.runtime.wiring import Wired


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
        """Send what the tasks of this worker have reported since the last call."""
        if self._wired.reports.failed:
            self._tell_failed(np.concatenate(self._wired.reports.failed))
        if not self._wired.reports.waiting:
            return
        for task, report in self._wired.reports.take().items():
            if task in self._wired.ackers:
                self.report(task, report)
            else:
                waiting = self._link_to[task].content.reports.setdefault(task, ShardReport())
                waiting.starts += report.starts
                waiting.acks += report.acks
                waiting.fails.add(report.fails)
                waiting.asks += report.asks

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
                waiting = self._link_to[owner].content.verdicts.setdefault(owner, Verdicts())
                waiting.complete += verdicts.complete
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
        owners = incarnations_of(roots) % len(self._plan.spouts)
        for index in set(owners.tolist()):
            owner, mine = self._plan.spouts[index].id, roots[owners == index]
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
