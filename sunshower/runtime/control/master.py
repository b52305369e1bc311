"""The master of one topology, as one state machine: `apply` takes an event, and returns commands.

What is possible in which state, and what the state becomes, is the table of lifecycle.py. A
rebalance has these phases:

    spouts pause ──nothing pending, or wait over──▶ workers pack ──all have──▶ move ──▶ new lives

Packing ends the life of every worker: the TaskTransfer of each task is in the store, or stays in
the process. The move is one write of the MasterState: new places, and a floor below all new lives.
Then every worker says hello as if it had just started. So the stored state of a master that dies
shows how far the rebalance is, and a worker that dies simply starts.

An upgrade moves all tasks to new workers, with the new code, which is *opening* until all
components are open. Until then the spouts emit nothing. If a component does not open, the former
plan is in force again, on new processes of its workers.

No tuple passes through the master: workers talk to each other directly, and continue when it dies.
The next master reads the stored state and gets the rest from the workers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from sunshower.config import Between
from sunshower.errors import LifecycleError
from sunshower.failures import Failure
from sunshower.runtime.control import events
from sunshower.runtime.control.events import (
    Create,
    DesiredState,
    End,
    MasterCommand,
    Replace,
    Tell,
    Unload,
    Welcome,
)
from sunshower.runtime.control.failure_detector import FailureDetector, Probations, RestartTracker
from sunshower.runtime.control.lifecycle import (
    TABLE,
    KillReport,
    Observations,
    Observer,
    State,
    allow,
    state_of,
)
from sunshower.runtime.control.limits import ProgressWatch
from sunshower.runtime.control.master_state import MasterState
from sunshower.runtime.control.nodes import NodeMoves
from sunshower.runtime.control.overview import ConditionTracker
from sunshower.runtime.control.placement import placed, replan, with_counts
from sunshower.runtime.control.plan_changes import (
    as_changed,
    changes,
    ends_anew,
    leaving,
    preview,
    upgraded,
)
from sunshower.runtime.control.savepoint import all_elsewhere
from sunshower.runtime.control.scaling import Scaling
from sunshower.runtime.control.topology_log import ROLLED_BACK, TopologyLog
from sunshower.runtime.events.health import Standing
from sunshower.runtime.events.injected_faults import check_places
from sunshower.runtime.events.metrics import (
    Snapshot,
    StuckCall,
    TaskStats,
    TimeWindows,
    Unchanged,
    WorkerStats,
)
from sunshower.runtime.plan import ACKER, Layout, Plan, Task
from sunshower.runtime.tasks.flight_recorder import CrashReport
from sunshower.texts import ERROR_BYTES, clip

# No command follows from these; what a heartbeat changes is seen at the next Watch.
_QUIET = (events.Beat, events.Stuck, events.Logged, events.Done)
_UNCHANGED_S = 3_600.0  # how long it is shown that a change did not happen
_KEEP_S = 60.0  # how long all stay packed, until the client of a savepoint ends the topology


class Applied(NamedTuple):
    """What follows from an event."""

    answer: Any  # to whoever sent it: see the events
    commands: list[MasterCommand]  # for the process of the master, in order


class Master:
    """Decides. Its process stores `stored` before it carries out the commands.

    The process also applies `Tick` while the master is `restless`. All times are in seconds on a
    monotonic clock of the caller.
    """

    _packed_since_s: float | None  # all workers, for a savepoint

    def __init__(
        self,
        plan: Plan,
        stored: MasterState | None = None,
        now: float = 0.0,
        other: Plan | None = None,
        wall: Callable[[], float] = float,  # 0.0
    ) -> None:
        """`plan`, `other`: those with the numbers `stored.plan` and `stored.other_plan`, which are
        *declared*: their graphs have the numbers of tasks and workers that the file says, whatever
        a rebalance has made of them since. `wall`: the Unix time, for the log."""
        self.stored = stored or MasterState()
        self.plan = plan  # in force, with the present places
        self._declared = plan
        self.next_declared = None if self.stored.is_opening else other
        self.log = TopologyLog(wall, self.stored.cancelled)
        self.crash_reports: dict[int, CrashReport] = {}  # worker → of its previous process
        self.nodes = NodeMoves()
        self.scaling = Scaling(self.stored)
        self._former = other if self.stored.is_opening else None  # the plan to return to
        self._since_s = now  # of the kill or the change that is under way
        self._opening_since_s = now
        self._told: DesiredState | None = None  # as last sent to all workers
        self._probations = Probations()
        self._stats: dict[int, WorkerStats] = {}
        self._stuck: dict[int, tuple[StuckCall, int, float]] = {}  # worker → call, task, start time
        self._observer = Observer()
        self._begin_places()
        fenced = self.stored.fenced.keys() & set(self.plan.workers)
        self._detector = FailureDetector(plan.graph.config.worker_timeout_s, now, sorted(fenced))
        self._silent: list[int] = []  # workers to replace
        self._windows = TimeWindows(None if self.stored.lives else now)
        self._watch = ProgressWatch(wall)
        self._said: list[MasterCommand] = []  # by the event that is being applied
        self._wall = wall
        self._asked = ""  # the command of the change under way, if a user has given it
        why = self.stored.cancelled.get(self.stored.change, "")
        is_rolled_back = why.startswith(ROLLED_BACK)
        self._unchanged = Unchanged("upgrade", why, None) if is_rolled_back else None

    def apply(self, event: events.Event, now: float) -> Applied:
        """Apply one event. Raises LifecycleError, before any change, if the state does not allow
        it or it is not possible for another reason."""
        if isinstance(event, events.OfLife | events.Statistics) and self.is_isolated(*event.sender):
            return Applied(None, [])
        if type(event) in TABLE:
            allow(type(event), self.state(now), self.plan.graph.id, self.stored.error)
        self._said = []
        try:
            answer = getattr(self, f"_on_{event.kind}")(event, now)
        except LifecycleError as error:
            self._note_refusal(event, str(error))
            raise
        orders = [] if isinstance(event, _QUIET) else self._orders()
        return Applied(answer, [*orders, *self._said])

    # ---- queries ---------------------------------------------------------------------------

    def state(self, now: float) -> State:
        """The state of the topology."""
        facts, stored = self._facts(now), self.stored
        gone = [stored.quarantined[s.id] for s in self.plan.spouts if s.id in stored.quarantined]
        if gone and facts.done and not stored.draining:  # it has records left and does not run
            self._break(gone[0].story)
        return state_of(stored, facts)

    @property
    def lives(self) -> dict[int, int]:
        """All workers that have said hello since the last move, with their lives."""
        return {
            worker: life for worker, life in self.stored.lives.items() if life > self.stored.floor
        }

    @property
    def desired_state(self) -> DesiredState:
        """What the workers shall do now. Every change is sent to all workers."""
        stored = self.stored
        active, keeping = stored.active and not stored.is_changing, stored.keeping
        is_cut = bool(self.silent or any(w.links for w in self._stats.values()))
        conditions = replace(self._conditions.now, is_cut=is_cut)
        local_state = active, stored.draining, stored.injected, conditions
        return DesiredState(
            *local_state,
            is_opening=stored.is_opening,
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

    @property
    def restless(self) -> bool:
        """Whether a kill or rebalance is under way, which needs `Tick`."""
        stored = self.stored
        unsettled = stored.moves and (self.lives != stored.lives or not self._unloaded)
        return bool((stored.killing and not stored.killed) or stored.is_changing or unsettled)

    @property
    def is_kept(self) -> bool:
        """Whether all workers have packed for a savepoint."""
        return self.stored.keeping and self._has_packed

    def is_isolated(self, worker: int, life: int) -> bool:
        """Whether an experiment cuts this life of a worker off: nothing of it arrives here."""
        return bool(life) and self.stored.isolated.get(worker) == life

    def snapshot(self, now: float, *, windows: bool = False) -> Snapshot:
        """The current statistics of the topology; `windows`: with those of the last hour."""
        stored, stats = self.stored, dict(self._stats)
        self._end_probations(now)
        state = self.state(now)
        snapshot = Snapshot(
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
            self.scaling.views,
            ended=dict(self._ended),
            unchanged=self._recently_unchanged(),
        )
        return self._watch.added(self.plan, snapshot, now) if windows else snapshot

    def report(self, now: float) -> KillReport:
        """The report after a kill, from the last statistics."""
        last = self.snapshot(now)
        counts = {spout.id: last.component(spout.id) for spout in self.plan.graph.spouts}
        return KillReport(counts, sum(t.unsettled for t in last.tasks()), now - self._since_s)

    # ---- events of workers -----------------------------------------------------------------

    def _on_hello(self, event: events.Hello, now: float) -> Welcome:
        worker, crash_report = event.worker, event.crash_report
        stored, silent_s = self.stored, 0.0
        if crash_report is not None and not crash_report.fits(self.plan):
            crash_report = None  # of a task that the present plan does not have
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
            if crash_report.task is not None and (crash_report.stack or silent_s):
                self._ended[crash_report.task] = crash_report.failure(self.plan)
        tasks, quarantined = self.plan.tasks_on(worker), stored.quarantined
        mine = [task.id for task in tasks]
        if worker in self.lives:
            stored.restarts += 1
            self._probations.died([id for id in mine if id in stored.quarantined], crash_report)
            stored.quarantined |= self._restarts.died(
                worker, now, self._stats.get(worker), crash_report
            )
        life = stored.begin_life(worker)
        self._packed.discard(worker)
        self._retire(worker)
        for other in self.lives:
            if other != worker:
                self._send_lives(other)
        executors = [task for task in tasks if task.component != ACKER]
        self.log.start(worker, life, executors, crash_report)
        return Welcome(
            life,
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

    def _on_beat(self, event: events.Beat, now: float) -> bool:
        if not self._is_current(event.worker, event.life):
            return False
        was_silent = event.worker in self.silent
        self._detector.heard(event.worker, now)
        if was_silent:
            self._catch_up(event.worker)
        return True

    def _on_statistics(self, event: events.Statistics, now: float) -> None:
        stats = event.stats
        is_former = stats.incarnation != self.lives.get(stats.worker)  # or before the last move
        if is_former or not self._is_current(stats.worker, stats.incarnation):
            return
        totals = partial(self.stored.totals, self._stats.values())
        self._windows.change(now, totals, is_complete=self._arrived)
        self._stats[stats.worker] = stats
        self._watch.see(self._stats, self.stored.retired, stats.worker, now)
        self._stuck.pop(stats.worker, None)  # its call has returned
        for task in stats.tasks:
            if task.counts.executed or task.counts.emitted:
                self._ended.pop(task.task, None)
        for task in stats.tasks:
            if task.health.standing is Standing.QUARANTINED and task.health.last:
                self.stored.quarantined.setdefault(task.task, task.health.last[-1])
            self.stored.keep_position(task)
        self._conditions.look(self._stats)
        self._end_probations(now)
        self._observer.see(self.plan, self._tasks, now)
        if not isinstance(event, events.Packed):
            self.log.compare(stats, self.plan)
        if self.restless:
            self._on_tick(event, now)

    def _on_packed(self, event: events.Packed, now: float) -> None:
        if self._is_current(*event.sender):
            self._on_statistics(event, now)
            if self.stored.packing and event.stats.incarnation == self.lives.get(
                event.stats.worker
            ):
                self._packed.add(event.stats.worker)
            self._on_tick(event, now)

    def _on_pack_failed(self, event: events.PackFailed, now: float) -> None:
        stored = self.stored
        under_way = stored.packing and stored.change not in stored.cancelled
        if under_way and self._is_current(*event.sender):
            self._cancel(event.why)

    def _on_broken(self, event: events.Broken, now: float) -> None:
        # A worker of an upgrade that was rolled back already says nothing new.
        if self._is_current(*event.sender) and event.worker in self.plan.workers:
            if not self.stored.is_opening:
                self.log.note("topology failed", event.why, "error", worker=event.worker)
            self._break(event.why)

    def _on_stuck(self, event: events.Stuck, now: float) -> None:
        """It is cleared when the worker sends statistics or starts again."""
        if not self._is_current(*event.sender):
            return
        task = next((task for task in self.plan.tasks if task.id == event.task), None)
        place: dict[str, Any] = {}
        if task is not None:
            place = {"component": task.component, "task": task.index, "worker": task.worker}
        text = f"a call of user code has not returned for {event.for_s:.0f} s, at {event.where}"
        self.log.note("stuck", text, "warning", **place)
        if task is not None and task.worker == event.worker:
            where = task.component, task.index, task.worker
            call = StuckCall(*where, event.for_s, clip(event.where))
            self._stuck[event.worker] = (call, task.id, now - event.for_s)

    def _on_logged(self, event: events.Logged, now: float) -> None:
        self.log.add(event.lines)

    # ---- events of clients -----------------------------------------------------------------

    def _on_activate(self, event: events.Activate | events.Deactivate, now: float) -> None:
        self.stored.active = isinstance(event, events.Activate)
        self.log.note("command", event.command)

    _on_deactivate = _on_activate

    def _on_drain_spouts(self, event: events.DrainSpouts | events.Kill, now: float) -> None:
        """A change that is not packing yet is cancelled."""
        self.stored.draining = True
        if self.stored.next_tasks and not self.stored.packing:
            self._cancel("the topology was drained or killed before its tasks had stopped")
        self.log.note("command", event.command)

    def _on_kill(self, event: events.Kill, now: float) -> None:
        if event.kept is not None and not self.stored.keeps(event.kept):
            raise LifecycleError(
                f"topology {self.plan.graph.id!r} is not ended: it has continued since its "
                "savepoint, which must not be used, because it was not ended within a minute. Try "
                "again"
            )
        self._on_drain_spouts(event, now)
        self.stored.killing = True
        self._wait(event.wait_s, now)
        self._on_tick(event, now)

    def _on_rebalance_tasks(self, event: events.RebalanceTasks, now: float) -> int:
        rebalance = partial(self._rebalance, event, now)
        if event.is_scaling:
            return rebalance()
        numbers = event.workers, event.tasks, event.auto
        plan = replace(self.plan, layout=event.layout or self.plan.layout)
        change = self.scaling.by_hand(plan, *numbers, rebalance)
        self._asked, self._unchanged = event.command, None
        return change

    def _rebalance(self, event: events.RebalanceTasks, now: float) -> int:
        plan = with_counts(self.plan, event.tasks, self.stored.last_task_id)
        workers, bounds = event.workers, self.plan.graph.config.workers
        if event.layout is Layout.PACK and workers is None and isinstance(bounds, Between):
            workers = bounds.clamp(len(self.plan.workers))
        plan = placed(plan, replan(plan, workers, event.layout or self.plan.layout))
        tasks = self.nodes.rebalanced(self.plan, plan, self.stored.lives).tasks
        return 0 if tasks == self.plan.tasks else self._change(tasks, event.wait_s, now)

    def _on_upgrade(self, event: events.Upgrade, now: float) -> tuple[int, list[str]]:
        wanted, kept_lines = as_changed(self.plan, self._declared.graph, event.given)
        report = [*preview(self.plan, wanted), *kept_lines]
        try:
            plan = upgraded(self.plan, wanted, self.stored.lives, self.stored.last_task_id)
            self.nodes.check(plan)
        except LifecycleError as error:
            lines = [str(error), *(report if event.dry_run else ())]
            raise LifecycleError("\n".join(lines)) from error
        if event.dry_run:
            return 0, report
        self.next_declared = plan.with_tasks(event.given.tasks)
        self.stored.open_s = event.open_s
        change = self._change(plan.tasks, event.wait_s, now)
        self.stored.next_plan = change
        self._asked, self._unchanged = event.command, None
        self.log.note("command", event.command)
        return change, [*changes(self.plan, plan), *kept_lines]

    def _on_keep(self, event: events.Keep, now: float) -> int:
        change = self._change(all_elsewhere(self.plan, self.stored.lives), event.wait_s, now)
        self.stored.keeping = True
        self.log.note("command", "keep")
        return change

    def _on_go_on(self, event: events.GoOn, now: float) -> bool:
        if not self.stored.killing and self.stored.keeps(event.kept):
            self._cancel("its savepoint was not stored")
        return not self.stored.killing

    def _on_disturb(self, event: events.Disturb, now: float) -> None:
        """Raises ExperimentError for a place that the topology does not have."""
        check_places(event.injected, self.plan)
        before = self.stored.isolated
        self.stored.inject(event.injected)
        for worker in before.keys() - self.stored.isolated.keys():
            self._catch_up(worker)

    # ---- events of the process --------------------------------------------------------------

    def _on_master_begins(self, event: events.MasterBegins, now: float) -> None:
        for worker in self.lives:  # a former master knew them
            self._tell(worker, "report")
            self._send_lives(worker)  # the former master may have died before that

    def _on_watch(self, event: events.Watch, now: float) -> None:
        """Replace silent workers, and let tasks leave nodes that are being drained."""
        stored = self.stored
        known = {w for w, life in stored.lives.items() if life != stored.fenced.get(w)}
        for worker in self._detector.look(self.plan.workers, known, now):
            if worker in stored.lives:
                stored.fenced[worker] = stored.lives[worker]
            self._silent.append(worker)
        going = None
        if self.state(now) in TABLE[events.RebalanceTasks]:
            going = self.nodes.away(self.plan, stored.lives, now)
        if going is not None:
            plan, wait_s = going
            self._change(plan.tasks, wait_s, now)
            self.log.leave(sorted({task.worker for task in leaving(self.plan, plan)}))
        self.log.problems("no node", self.nodes.problems(self.plan, self.absent))

    def _on_done(self, event: events.Done, now: float) -> None:
        match event.command_done:
            case End(worker):
                self.stored.lives.pop(worker, None)
                self._retire(worker)
            case Unload():
                self._unloaded = True

    # ---- changes of tasks and plans ----------------------------------------------------------

    def _change(self, tasks: Sequence[Task], wait_s: float | None, now: float) -> int:
        """Wait for pending trees, then let `tasks` replace the present ones."""
        stored = self.stored
        stored.change += 1
        self._asked = ""
        stored.next_tasks, stored.next_plan, stored.keeping = [*tasks], None, False
        ids = (task.id for task in [*self.plan.tasks, *tasks])
        stored.last_task_id = max(stored.last_task_id, *ids)
        self._wait(wait_s, now)
        return stored.change

    def _note_refusal(self, event: events.Event, why: str) -> None:
        """Show that what a user has asked for does not happen."""
        match event:
            case events.Upgrade(dry_run=False) | events.RebalanceTasks(is_scaling=False):
                self._unchanged = Unchanged(event.command, clip(why, ERROR_BYTES), self._wall())
                self.log.note(f"{event.command} refused", why, "error")

    def _recently_unchanged(self) -> Unchanged | None:
        change = self._unchanged
        if change is None or change.at_s is None:
            return change
        return change if self._wall() - change.at_s < _UNCHANGED_S else None

    def _wait(self, wait_s: float | None, now: float) -> None:
        timeout_s = self.plan.graph.config.message_timeout_s
        self.stored.wait_s, self._since_s = timeout_s if wait_s is None else wait_s, now

    def _cancel(self, why: str) -> None:
        """Give up the change under way. If workers pack already, all of them begin a new life with
        the same tasks as before."""
        stored = self.stored
        stored.note_cancelled(why)
        if self._asked:
            self._unchanged = Unchanged(self._asked, clip(why, ERROR_BYTES), self._wall())
        stored.next_plan, stored.keeping = None, False
        stored.next_tasks = [*self.plan.tasks] if stored.packing else None

    def _on_tick(self, event: events.Event, now: float) -> None:
        """Continue if a wait is over or no longer needed, or if all workers have packed."""
        stored, facts = self.stored, self._facts(now)
        waited = now >= self._since_s + stored.wait_s
        # When all is packed for a savepoint, nothing would finish.
        if stored.killing and (waited or facts.done or self.is_kept or stored.error is not None):
            stored.killed = True
        elif stored.next_tasks and facts.arrived and (waited or facts.quiet):
            stored.packing = True
        if self._may_move(now):
            self._move(now)
        elif why := self._end_opening(now):
            self._break(why)

    @property
    def _has_packed(self) -> bool:
        return self.stored.packing and self._packed >= set(self.plan.workers)

    def _may_move(self, now: float) -> bool:
        """Whether the tasks can move. For a savepoint they wait for the kill, and move to new
        processes if it does not come."""
        if not self.is_kept:
            return self._has_packed
        if self._packed_since_s is None:
            self._packed_since_s = now
        return not self.stored.killing and now - self._packed_since_s >= _KEEP_S

    def _move(self, now: float) -> None:
        """Put the next tasks in force: all workers begin new lives."""
        stored = self.stored
        assert stored.next_tasks
        former, stored.tasks = stored.tasks, stored.next_tasks
        stored.next_tasks, stored.packing, stored.keeping = None, False, False
        if stored.next_plan is not None:
            assert self.next_declared is not None
            stored.former_plan, stored.former_tasks = stored.plan, former
            stored.plan, stored.next_plan = stored.next_plan, None
            stored.forget_former_code()
            self._former, self._declared = self._declared, self.next_declared
            self._opening_since_s = now
        self.next_declared = None
        stored.floor = max(stored.lives.values())
        stored.moves += 1
        self._begin_places()

    def _end_opening(self, now: float) -> str | None:
        """Keep a new plan if all components are open. Returns why not, if one will not be."""
        stored, code = self.stored, self.plan.graph.components
        if not stored.is_opening:
            return None
        unopened = {task.id: task for task in self.plan.tasks if task.component in code}
        for task in self._tasks:
            if task.health.standing is Standing.RUNNING and task.health.wait is None:
                unopened.pop(task.task, None)
        if self._arrived and not unopened and not stored.quarantined:
            stored.former_plan = stored.former_tasks = self._former = None
            stored.forget_all_but(self.plan)
            self.scaling.forget(self.plan)
            return None
        for why in stored.quarantined.values():
            return why.story
        if now - self._opening_since_s < stored.open_s:
            return None
        names = ", ".join(sorted({task.component for task in unopened.values()}))
        errors = [task.health.last[-1].story for task in self._tasks if task.health.last]
        why_not = f"{names} did not open within {stored.open_s:g} s (--timeout)"
        return ". ".join([why_not, *errors[-1:]])

    def _break(self, why: str) -> None:
        """The topology fails, or the former plan is in force again."""
        stored, failed = self.stored, self.plan
        if not stored.is_opening:
            stored.error = stored.error or clip(why, ERROR_BYTES)
            return
        assert stored.former_plan is not None
        assert self._former is not None
        stored.plan, stored.tasks = stored.former_plan, stored.former_tasks
        stored.former_plan = stored.former_tasks = None
        stored.note_cancelled(ROLLED_BACK + why)
        self._unchanged = Unchanged("upgrade", stored.cancelled[stored.change], self._wall())
        stored.forget_former_code()
        for worker in failed.workers:  # also those that have not said hello: all processes must end
            stored.lives.setdefault(worker, stored.floor)
        stored.floor = max(stored.lives.values())
        self._declared, self._former = self._former, None
        self._begin_places()

    def _begin_places(self) -> None:
        self._packed = set[int]()  # workers
        self._packed_since_s = None
        self._unloaded = False  # what was packed before
        self._ended = dict[int, Failure]()  # task → its call, for which its process was replaced
        tasks, layout = self.stored.tasks, Layout(self.stored.layout or self._declared.layout)
        self.plan = (
            replace(self._declared, layout=layout).with_tasks(tasks) if tasks else self._declared
        )
        self._restarts = RestartTracker(self.plan)
        self._conditions = ConditionTracker(self.plan, self.stored)
        for worker in list(self._stats):  # into the stored state, for a next master
            self._retire(worker)
        self.stored.forget_all_but(self.plan)

    # ---- commands ---------------------------------------------------------------------------

    def _orders(self) -> list[MasterCommand]:
        """What follows from the state, whatever the event was."""
        before, self._said = self._said, []
        if (desired_state := self.desired_state) != self._told:
            self._told = desired_state
            for worker in self.lives:
                self._tell(worker, "desired_state", desired_state)
        stored, lives, create = self.stored, self.lives, self._detector.to_create()
        self._said += [Replace(worker) for worker in self._silent]
        self._silent = []
        packs = ends = False
        if stored.packing and stored.next_tasks:
            packs = self._let_pack(stored.next_tasks)
        elif stored.moves:
            for worker in (worker for worker in self.plan.workers if worker not in lives):
                if worker in stored.lives:
                    self._tell(worker, "again", stored.moves)
                else:
                    create.append(worker)
        if create:
            self._said.append(Create(tuple(create)))
        if stored.moves and not stored.packing:
            self._said += [
                End(worker) for worker in stored.lives if worker not in self.plan.workers
            ]
            ends = self._arrived and not self._unloaded and not stored.is_opening
            self._said += [Unload()] * ends
        self.log.rebalance(stored.cancelled, packs=packs, ends=ends)
        orders, self._said = self._said, before
        return orders

    def _let_pack(self, next_tasks: Sequence[Task]) -> bool:
        """Let the workers pack that have not yet. Returns whether there are any."""
        upgrade = self.next_declared if self.stored.next_plan is not None else None
        then = (upgrade or self._declared).with_tasks(next_tasks)
        gone = leaving(self.plan, then)
        fresh = [task.id for task in (gone if upgrade else ends_anew(self.plan, then))]
        unpacked = [worker for worker in self.plan.workers if worker not in self._packed]
        for worker in unpacked:
            leaves = [task.id for task in gone if task.worker == worker]
            self._tell(worker, "pack", self.stored.moves + 1, leaves, fresh)
        return bool(unpacked)

    def _tell(self, worker: int, what: str, *arguments: Any) -> None:
        if not self.is_isolated(worker, self.stored.lives.get(worker, 0)):
            self._said.append(Tell(worker, what, arguments))

    def _send_lives(self, worker: int) -> None:
        """Send a worker the lives of all workers, and the crash reports of former ones."""
        self._tell(worker, "peers", self.lives, list(self.crash_reports.values()))

    def _catch_up(self, worker: int) -> None:
        """Messages from and to a worker that was cut off may be lost: send and request them."""
        self._tell(worker, "desired_state", self.desired_state)
        self._tell(worker, "report")
        self._send_lives(worker)

    # ---- helpers ----------------------------------------------------------------------------

    @property
    def _tasks(self) -> list[TaskStats]:
        return [task for worker in self._stats.values() for task in worker.tasks]

    @property
    def _arrived(self) -> bool:
        """Whether all workers run in their places."""
        return self._stats.keys() == set(self.plan.workers) <= self.lives.keys()

    def _is_current(self, worker: int, life: int) -> bool:
        """Whether this is a worker's latest life, and was not replaced; 0: it has not begun."""
        is_new = not life and worker in self.plan.workers
        is_latest = life == self.stored.lives.get(worker)
        return is_new or (is_latest and life != self.stored.fenced.get(worker))

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
