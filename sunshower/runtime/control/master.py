"""The master of one topology: tracks workers and their lives, places tasks, runs the lifecycle.

The states are drawn in lifecycle.py. A rebalance has these phases:

    spouts pause ──nothing pending, or wait over──▶ workers pack ──all have──▶ move ──▶ new lives

Packing ends the life of every worker: the TaskTransfer of each task is in the store, or stays in
the process. The move is one write of the MasterState: new places, and a floor below all new lives.
Then every worker says hello as if it had just started. So the stored state of a master that dies
shows how far the rebalance is, and a worker that dies simply starts.

No tuple passes through the master: workers talk to each other directly, and continue when it dies.
The next master reads the stored state and gets the rest from the workers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from sunshower.errors import LifecycleError
from sunshower.runtime.control.failure_detector import FailureDetector, Probations, RestartTracker
from sunshower.runtime.control.lifecycle import (
    POSSIBLE,
    Command,
    KillReport,
    Lifecycle,
    Observations,
    Observer,
    State,
)
from sunshower.runtime.control.master_state import MasterState
from sunshower.runtime.control.messages import DesiredState, Orders, Welcome
from sunshower.runtime.control.nodes import NodeMoves
from sunshower.runtime.control.overview import ConditionTracker
from sunshower.runtime.control.placement import placed, replan
from sunshower.runtime.control.plan_changes import (
    AS_THEY_ARE,
    as_changed,
    changes,
    leaving,
    preview,
    upgraded,
    with_counts,
)
from sunshower.runtime.control.savepoint import all_elsewhere
from sunshower.runtime.control.topology_log import TaskMoves
from sunshower.runtime.events.health import Standing
from sunshower.runtime.events.injected_faults import InjectedFaults, check_places
from sunshower.runtime.events.metrics import (
    Snapshot,
    StuckCall,
    TaskStats,
    TimeWindows,
    WorkerStats,
)
from sunshower.runtime.plan import Layout, Plan
from sunshower.runtime.tasks.flight_recorder import CrashReport
from sunshower.texts import ERROR_BYTES, clip


class Master:
    """Decides; its adapter writes `stored` to a store after each call that changes it.

    The adapter also calls `look` while `restless`, and carries out the `orders`.
    """

    def __init__(
        self,
        plan: Plan,
        stored: MasterState | None = None,
        now: float = 0.0,
        other: Plan | None = None,
    ) -> None:
        """`plan`, `other`: see TaskMoves."""
        self.stored = stored or MasterState()
        self.moves = TaskMoves(plan, self.stored, other, now)
        self._lifecycle = Lifecycle(plan.graph.id, self.stored, now)
        self.crash_reports: dict[int, CrashReport] = {}  # worker → of its previous process
        self._probations = Probations()
        self._stats: dict[int, WorkerStats] = {}
        self._stuck: dict[int, tuple[StuckCall, int, float]] = {}  # worker → call, task, start time
        self._observer = Observer()
        self._begin_places()
        self.nodes, fenced = NodeMoves(), self.stored.fenced.keys() & set(self.plan.workers)
        self._detector = FailureDetector(plan.graph.config.worker_timeout_s, now, sorted(fenced))
        self._replacing: list[int] = []  # silent workers, until the adapter has replaced them
        self._windows = TimeWindows(None if self.stored.lives else now)

    # ---- queries ---------------------------------------------------------------------------

    @property
    def plan(self) -> Plan:
        """The present plan, with the present places."""
        return self.moves.plan

    def state(self, now: float) -> State:
        """The state of the topology."""
        facts, stored = self._facts(now), self.stored
        gone = [stored.quarantined[s.id] for s in self.plan.spouts if s.id in stored.quarantined]
        if gone and facts.done and not stored.draining:  # it has records left and does not run
            self.broken(gone[0].story)
        return self._lifecycle.state(facts)

    @property
    def error(self) -> str | None:
        """Why the topology failed, as of the last `state`."""
        return self.stored.error

    @property
    def lives(self) -> dict[int, int]:
        """All workers that have said hello since the last move, with their lives."""
        return {
            worker: life for worker, life in self.stored.lives.items() if life > self.stored.floor
        }

    @property
    def desired_state(self) -> DesiredState:
        """What the workers shall do now. The adapter sends every change to all workers."""
        stored = self.stored
        active, keeping = stored.active and not stored.is_changing, stored.keeping
        is_cut = bool(self.silent or any(w.links for w in self._stats.values()))
        conditions = replace(self._conditions.now, is_cut=is_cut)
        local_state = active, stored.draining, stored.injected, conditions
        return DesiredState(
            *local_state,
            is_opening=self.moves.is_opening,
            keeping=keeping,
        )

    @property
    def silent(self) -> Mapping[int, float]:
        """The workers without heartbeats, and for how many seconds."""
        return self._detector.silent()

    @property
    def absent(self) -> set[int]:
        """The workers that may have no process: they have not said hello, are silent or fenced."""
        silent = self.silent.keys() | self.stored.fenced.keys()
        return {
            worker for worker in self.plan.workers if worker in silent or worker not in self.lives
        }

    def snapshot(self, now: float, *, windows: bool = False) -> Snapshot:
        """The current statistics of the topology; `windows`: with those of the last hour."""
        stored, stats = self.stored, dict(self._stats)
        self._end_probations(now)
        state = self.state(now)
        return Snapshot(
            self.plan.graph.id,
            stats,
            stored.restarts,
            dict(stored.retired),
            state,
            dict(stored.quarantined),
            stored.untracked,
            {task: replace(call, for_s=now - s) for call, task, s in self._stuck.values()},
            self.silent,
            self._windows.at(now, stored.totals(stats.values())) if windows else {},
            self.nodes.lines(self.plan, self.absent),
            self.nodes.unmet(self.plan, self.absent),
        )

    def report(self, now: float) -> KillReport:
        """The report after a kill."""
        return self._lifecycle.report(self.snapshot(now), self.plan.graph.spouts, now)

    # ---- reports of workers ----------------------------------------------------------------

    def hello(self, worker: int, now: float, crash_report: CrashReport | None = None) -> Welcome:
        """A worker begins a life, with the crash report of its former life if it found one. The
        adapter sends `lives` and `crash_reports` to all workers."""
        stored, silent_s = self.stored, 0.0
        if stored.fenced.pop(worker, None) is not None:
            silent_s = self.plan.graph.config.worker_timeout_s
            crash_report = crash_report and replace(crash_report, silent_s=silent_s)
        self._detector.heard(worker, now)
        owed: dict[int, int] = {}
        self.crash_reports.pop(worker, None)
        if crash_report is not None and crash_report.life == stored.lives.get(worker):
            owed = stored.charge(crash_report, self.plan)
            if crash_report.roots:
                self.crash_reports[worker] = crash_report
        mine, quarantined = [t.id for t in self.plan.tasks_on(worker)], stored.quarantined
        if worker in self.lives:
            stored.restarts += 1
            self._probations.died([id for id in mine if id in stored.quarantined], crash_report)
            stored.quarantined |= self._restarts.died(
                worker, now, self._stats.get(worker), crash_report
            )
        stored.lives[worker] = max(stored.lives.get(worker, 0), stored.floor) + 1
        self.moves.begins(worker)
        self._retire(worker)
        return Welcome(
            stored.lives[worker],
            self.lives,
            self.desired_state,
            stored.plan,
            stored.tasks,
            stored.moves,
            self._restarts.began(worker, now),
            {id: self._probations.of(id, why) for id, why in quarantined.items() if id in mine},
            {id: (stored.positions.get(id, 0), stored.drawn.get(id, 0)) for id in mine},
            {id: owed[id] for id in mine if id in owed},
            {id: dict(stored.suspects[id]) for id in mine if id in stored.suspects},
            silent_s,
        )

    def is_current(self, worker: int, life: int) -> bool:
        """Whether this is a worker's latest life, and was not replaced; 0: it has not begun."""
        known = self.stored.lives.get(worker)
        is_new = not life and worker in self.plan.workers
        return is_new or (life == known and life != self.stored.fenced.get(worker))

    def beat(self, worker: int, life: int, now: float) -> bool:
        """A worker sends a heartbeat. False: this life was replaced, so its process shall end."""
        is_current = self.is_current(worker, life)
        if is_current:
            self._detector.heard(worker, now)
        return is_current

    def watch(self, now: float) -> list[int]:
        """Look for silent workers, and for nodes that are being drained; the adapter calls this
        every second, while heartbeats come. Returns the workers with tasks that leave one now."""
        known = {w for w, life in self.stored.lives.items() if life != self.stored.fenced.get(w)}
        for worker in self._detector.look(self.plan.workers, known, now):
            if worker in self.stored.lives:
                self.stored.fenced[worker] = self.stored.lives[worker]
            self._replacing.append(worker)
        found = self.nodes.away(self.plan, self.stored.lives, now) if self._may_move(now) else None
        if found is None:
            return []
        self._lifecycle.change(self.plan.tasks, found[0].tasks, found[1], now)
        return sorted({task.worker for task in leaving(self.plan, found[0])})

    def hear(self, stats: WorkerStats, now: float) -> None:
        """Process the statistics of a worker. Those of a former life are ignored."""
        is_former = stats.incarnation != self.lives.get(stats.worker)  # or before the last move
        if is_former or not self.is_current(stats.worker, stats.incarnation):
            return
        totals = partial(self.stored.totals, self._stats.values())
        self._windows.change(now, totals, is_complete=self._arrived)
        self._stats[stats.worker] = stats
        self._stuck.pop(stats.worker, None)  # its call has returned
        for task in stats.tasks:
            if task.health.standing is Standing.QUARANTINED and task.health.last:
                self.stored.quarantined.setdefault(task.task, task.health.last[-1])
            self.stored.keep_position(task)
        self._conditions.look(self._stats)
        self._end_probations(now)
        self._observer.see(self.plan, self._tasks, now)
        if self.restless:
            self.look(now)

    def stuck(self, worker: int, task: int, for_s: float, where: str, now: float) -> None:
        """Note that a call of user code in a worker has not returned for `for_s`. Cleared when the
        worker sends statistics or starts again."""
        stuck_task = next((t for t in self.plan.tasks_on(worker) if t.id == task), None)
        if stuck_task is not None:
            call = StuckCall(stuck_task.component, stuck_task.index, worker, for_s, clip(where))
            self._stuck[worker] = (call, task, now - for_s)

    def pack_failed(self, why: str) -> None:
        """A worker could not pack: the change is cancelled, and the present tasks go on."""
        if self.stored.packing and self.stored.change not in self.stored.cancelled:
            self._lifecycle.cancel(why, self.plan.tasks)

    def packed(self, stats: WorkerStats, now: float) -> None:
        """A worker has ended its life for a rebalance; `stats`: its last statistics."""
        self.hear(stats, now)
        if self.stored.packing and stats.incarnation == self.lives.get(stats.worker):
            self.moves.packs(stats.worker)
        self.look(now)

    def broken(self, text: str) -> None:
        """A task failed: the topology fails (the first reason is kept), or an upgrade ends."""
        if self.moves.is_opening:
            self.moves.roll_back(text)
            self._begin_places()
        else:
            self.stored.error = self.stored.error or clip(text, ERROR_BYTES)

    # ---- commands; each raises LifecycleError in a state that does not allow it --------------

    def activate(self, active: bool, now: float) -> None:
        """Activate or deactivate the spouts."""
        self._lifecycle.allow(Command.ACTIVATE if active else Command.DEACTIVATE, self.state(now))
        self._lifecycle.activate(active)

    def drain(self, now: float) -> None:
        """Let no spout emit new records, in this life or a later one."""
        self._lifecycle.allow(Command.DRAIN, self.state(now))
        self._lifecycle.drain()

    def kill(self, wait_s: float | None, now: float, kept: int | None = None) -> None:
        """Drain for `wait_s` at most (None: the message timeout), then end. See Lifecycle."""
        self._lifecycle.kill(self._wait_s(wait_s), now, kept)
        self.look(now)

    def rebalance(
        self,
        workers: int | None,
        layout: Layout | None,
        wait_s: float | None,
        now: float,
        tasks: Mapping[str, int] = AS_THEY_ARE,
    ) -> int:
        """Distribute the tasks over so many workers; `tasks`: their new numbers, by component.
        Returns the number of this change; 0: nothing changes. See `replan` and `with_counts`."""
        self._lifecycle.allow(Command.REBALANCE, self.state(now))
        plan = with_counts(self.plan, tasks, self.stored.last_task_id)
        plan = placed(plan, replan(plan, workers, layout or self.plan.layout))
        next_tasks = self.nodes.rebalanced(self.plan, plan, self.stored.lives).tasks
        if next_tasks == self.plan.tasks:
            return 0
        return self._lifecycle.change(self.plan.tasks, next_tasks, self._wait_s(wait_s), now)

    def upgrade(
        self, given: Plan, wait_s: float | None, open_s: float, dry_run: bool, now: float
    ) -> tuple[int, list[str]]:
        """Let new code replace the present one, or only say what changes, a line each; with the
        number of the change. See `upgraded`."""
        self._lifecycle.allow(Command.UPGRADE, self.state(now))
        wanted, kept = as_changed(self.plan, self.moves.declared.graph, given)
        report = [*preview(self.plan, wanted), *kept]
        try:
            plan = upgraded(self.plan, wanted, self.stored.lives, self.stored.last_task_id)
            self.nodes.check(plan)
        except LifecycleError as error:
            told = [str(error), *(report if dry_run else ())]
            raise LifecycleError("\n".join(told)) from error
        if dry_run:
            return 0, report
        self.moves.next_declared = plan.with_tasks(given.tasks)
        self.stored.open_s, wait_s = open_s, self._wait_s(wait_s)
        change = self._lifecycle.change(self.plan.tasks, plan.tasks, wait_s, now, is_upgrade=True)
        return change, [*changes(self.plan, plan), *kept]

    def keep(self, wait_s: float | None, now: float) -> int:
        """Pack all tasks, for a savepoint. Returns the number of this change; see TaskMoves."""
        self._lifecycle.allow(Command.KEEP, self.state(now))
        tasks, wait_s = all_elsewhere(self.plan, self.stored.lives), self._wait_s(wait_s)
        return self._lifecycle.change(self.plan.tasks, tasks, wait_s, now, keeps=True)

    def go_on(self, kept: int) -> bool:
        """See Lifecycle."""
        return self._lifecycle.go_on(kept, self.plan.tasks)

    def disturb(self, injected: InjectedFaults) -> None:
        """Inject these faults instead of the former ones; `InjectedFaults()` ends them.

        Raises ExperimentError for a place that the topology does not have.
        """
        check_places(injected, self.plan)
        self.stored.inject(injected)

    # ---- progress of kills and rebalances ---------------------------------------------------

    @property
    def restless(self) -> bool:
        """Whether a kill or rebalance is under way, which needs `look` and `orders`."""
        kills = self.stored.killing and not self.stored.killed
        return kills or self.moves.is_under_way(self.lives)

    def look(self, now: float) -> None:
        """Continue if a wait is over, or if all workers have packed."""
        self._lifecycle.look(self._facts(now), now, is_kept=self.moves.is_kept)
        if self.moves.may_move(now):
            self._lifecycle.move()
            self.moves.move(now)
            self._begin_places()
        elif why := self.moves.end_opening(self._tasks, now, arrived=self._arrived):
            self.broken(why)

    def orders(self) -> Orders:
        """What the adapter shall do now: replace silent workers, and the orders of a rebalance."""
        replacing, self._replacing = self._replacing, []
        orders = Orders(replace=replacing, create=self._detector.to_create())
        return self.moves.orders(orders, self.lives, arrived=self._arrived)

    def ended(self, worker: int) -> None:
        """The process of a worker that is no longer needed has ended."""
        self.stored.lives.pop(worker, None)
        self._retire(worker)

    # ---- helpers ----------------------------------------------------------------------------

    def _begin_places(self) -> None:
        self._restarts = RestartTracker(self.plan)
        self._conditions = ConditionTracker(self.plan, self.stored)
        for worker in list(self._stats):  # into the stored state, for a next master
            self._retire(worker)
        self.stored.forget_all_but(self.plan)

    @property
    def _tasks(self) -> list[TaskStats]:
        return [task for worker in self._stats.values() for task in worker.tasks]

    @property
    def _arrived(self) -> bool:
        return self._stats.keys() == set(self.plan.workers) <= self.lives.keys()

    def _facts(self, now: float) -> Observations:
        return self._observer.facts(self.plan, self._stats, self.lives, now, arrived=self._arrived)

    def _end_probations(self, now: float) -> None:
        """End the quarantine of tasks that have recovered."""
        quarantined = self.stored.quarantined
        for task in self._tasks:
            if task.task in quarantined and self._probations.has_recovered(task, now):
                del quarantined[task.task]

    def _retire(self, worker: int) -> None:
        """Add the counters of a life that is over to the retired ones."""
        self._stuck.pop(worker, None)
        if (last := self._stats.pop(worker, None)) is not None:
            self.stored.retire(last)

    def _may_move(self, now: float) -> bool:
        return self.state(now) in POSSIBLE[Command.REBALANCE]

    def _wait_s(self, wait_s: float | None) -> float:
        return self.plan.graph.config.message_timeout_s if wait_s is None else wait_s
