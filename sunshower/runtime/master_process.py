"""The process of the master: the part that Ray and the simulator share.

Adapters derive from it. The abstract methods are the port: how to call a worker, where to store the
MasterState, how to create and end processes. The other public methods are called by workers and
clients.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, TypeVar

from sunshower.config import Resources
from sunshower.errors import LifecycleError
from sunshower.runtime.control.lifecycle import KillReport, State, why_not_kept, why_unchanged
from sunshower.runtime.control.master import Master
from sunshower.runtime.control.master_state import MasterState
from sunshower.runtime.control.messages import DesiredState, Welcome
from sunshower.runtime.control.nodes import NodeView
from sunshower.runtime.control.plan_changes import AS_THEY_ARE
from sunshower.runtime.control.savepoint import PackedTasks
from sunshower.runtime.control.topology_log import TopologyLog
from sunshower.runtime.events.injected_faults import InjectedFaults
from sunshower.runtime.events.log_lines import LogLine
from sunshower.runtime.events.metrics import Snapshot, WorkerStats
from sunshower.runtime.plan import ACKER, Layout, Plan
from sunshower.runtime.tasks.flight_recorder import CrashReport

_SAVE_S = 1.0  # how often the workers' positions are stored
_LOOK_S = 0.1  # how often to call `look` during a kill or rebalance

T = TypeVar("T")


class MasterProcessBase(ABC):
    """One process of the master. Its MasterState is stored before anything is sent."""

    def __init__(self, *, active: bool) -> None:
        """`active`: whether spouts emit, if no master ran before."""
        saved, now = self.load_state(), self.now()
        state = MasterState.from_bytes(saved) if saved else MasterState(active=active)
        plan = self.load_plan(state.plan)
        other = None if state.other_plan is None else self.load_plan(state.other_plan)
        self.core = Master(plan, state, now, other)
        self.core.nodes.why_refused = self.why_refused
        self._saved = saved
        self._saved_s = now
        self._saved_plans: set[int] = set()
        self._keep_plans()
        self._desired_state: DesiredState | None = None  # as last sent to all workers
        self._will_look = False
        self._topology_log = TopologyLog(self.wall, state.cancelled)
        for worker in self.core.lives:  # a former master knew them: ask for what was missed
            self._tell(worker, "report")
            self._send_lives(worker)  # the former master may have died before that
        self._obey()

    # ---- the port: implemented by the adapter ------------------------------------------------

    @abstractmethod
    def now(self) -> float:
        """The time on the clock of this process."""

    @abstractmethod
    def wall(self) -> float:
        """The Unix time."""

    @abstractmethod
    def load_state(self) -> bytes | None:
        """The MasterState that was saved last; None if none was."""

    @abstractmethod
    def save_state(self, state: bytes) -> None:
        """Save the MasterState; the next process of the master loads it."""

    @abstractmethod
    def load_plan(self, number: int) -> Plan:
        """The plan that was saved under that number; 0: as submitted."""

    @abstractmethod
    def save_plan(self, number: int, plan: Plan) -> None:
        """Save a plan; the workers and the next process of the master load it."""

    @abstractmethod
    def keep_plans(self, numbers: Collection[int]) -> None:
        """Remove all saved plans but these."""

    @abstractmethod
    def remove_transfers(self) -> None:
        """Remove everything that workers stored for a rebalance."""

    @abstractmethod
    def call_worker(self, worker: int, what: str, *given: Any) -> None:
        """Call a method of a worker, without waiting for it."""

    @abstractmethod
    def create_worker(self, worker: int) -> None:
        """Create a worker's process, unless there is one or one is starting."""

    def why_refused(self, request: Resources) -> str | None:
        """Why no process can request that, whatever the nodes have; None: one can."""
        return None

    @abstractmethod
    def end_worker(self, worker: int) -> None:
        """End the process of a worker that is no longer needed."""

    @abstractmethod
    def replace_worker(self, worker: int) -> None:
        """End the process of a silent worker, if it can be reached; `create_worker` follows."""

    def node_view(self) -> NodeView:
        """What is known about the nodes."""
        return NodeView()

    @abstractmethod
    def look_after(self, seconds: float) -> None:
        """Call `look` in so many seconds."""

    # ---- called by workers -----------------------------------------------------------------------

    def welcome(self, worker: int, crash_report: CrashReport | None) -> Welcome:
        """A worker says hello. Returns the answer, and tells the other workers."""
        if crash_report is not None and not crash_report.fits(self.core.plan):
            crash_report = None  # of a task that the present plan does not have
        welcome = self.change(lambda: self.core.hello(worker, self.now(), crash_report))
        for other in welcome.lives:
            if other != worker:
                self._send_lives(other)
        mine = [task for task in self.core.plan.tasks_on(worker) if task.component != ACKER]
        self._topology_log.start(worker, welcome.life, mine, crash_report)
        return welcome

    def beat(self, worker: int, life: int) -> bool | None:
        """A worker sends a heartbeat. True: it may go on; False: it was replaced and shall end;
        None: as if there was no answer."""
        if self._is_isolated(worker, life):
            return None
        was_silent = worker in self.core.silent
        answer = self.core.beat(worker, life, self.now())
        if answer and was_silent:
            self._catch_up(worker)
        return answer

    def hear(self, stats: WorkerStats) -> None:
        """Process the statistics of a worker."""
        if self._is_isolated(stats.worker, stats.incarnation):
            return
        now = self.now()
        self.core.hear(stats, now)
        if stats.incarnation == self.core.lives.get(stats.worker):
            self._topology_log.compare(stats, self.core.plan)
        if self.core.restless or self._desired_state != self.core.desired_state:
            self._obey()
        elif now - self._saved_s >= _SAVE_S:  # positions: older ones only cause more replays
            self._save()

    def stuck(self, worker: int, life: int, task: int, for_s: float, where: str) -> None:
        """A worker's watchdog reports a call of user code that does not return."""
        if self._accepts(worker, life):
            text = f"a call of user code has not returned for {for_s:.0f} s, at {where}"
            self._topology_log.note("stuck", text, "warning", **self._place_of(task))
            self.core.stuck(worker, task, for_s, where, self.now())

    def packed(self, stats: WorkerStats) -> None:
        """A worker has ended its life for a rebalance."""
        if self._accepts(stats.worker, stats.incarnation):
            self.change(lambda: self.core.packed(stats, self.now()))

    def broken(self, worker: int, life: int, text: str) -> None:
        """A task failed, and so the topology fails, or an upgrade is rolled back. A worker of an
        upgrade that was rolled back already says nothing new."""
        if self._accepts(worker, life) and worker in self.core.plan.workers:
            if not self.core.moves.is_opening:
                self._topology_log.note("topology failed", text, "error", worker=worker)
            self.change(lambda: self.core.broken(text))

    def pack_failed(self, worker: int, life: int, why: str) -> None:
        """A worker could not pack for a rebalance or an upgrade, which does not happen then."""
        if self._accepts(worker, life):
            self.change(lambda: self.core.pack_failed(why))

    def log(self, worker: int, life: int, lines: Iterable[LogLine]) -> None:
        """A worker sends the log records of its process."""
        if not self._is_isolated(worker, life):
            self._topology_log.add(lines)

    # ---- called by clients -----------------------------------------------------------------------

    def activate(self, active: bool) -> None:
        """Activate or deactivate all spouts, in this life of their workers and in later ones."""
        self.change(lambda: self.core.activate(active, self.now()))
        self._topology_log.note("command", "activate" if active else "deactivate")

    def drain(self) -> None:
        """Let no spout emit new records, in this life or later ones."""
        self.change(lambda: self.core.drain(self.now()))
        self._topology_log.note("command", "drain")

    def disturb(self, injected: InjectedFaults) -> None:
        """Inject these faults into all workers, in this life and later ones."""
        isolated = self.core.stored.isolated
        self.change(lambda: self.core.disturb(injected))
        for worker in isolated.keys() - self.core.stored.isolated.keys():
            self._catch_up(worker)

    def kill(self, wait_s: float | None, kept: int | None = None) -> None:
        """Drain the topology, then kill it. `kept`: the number of its savepoint."""
        self.change(lambda: self.core.kill(wait_s, self.now(), kept))
        self._topology_log.note("command", "kill")

    def rebalance(
        self,
        workers: int | None,
        layout: Layout | None,
        wait_s: float | None,
        tasks: Mapping[str, int] = AS_THEY_ARE,
    ) -> int:
        """Distribute the tasks, or other numbers of tasks, over the workers again. Returns the
        number of this change, for `check_change`."""
        self.core.nodes.view = self.node_view()
        return self.change(lambda: self.core.rebalance(workers, layout, wait_s, self.now(), tasks))

    def upgrade(
        self, given: Plan, wait_s: float | None, open_s: float, dry_run: bool
    ) -> tuple[int, list[str]]:
        """Let new code replace the present one, or only say what changes, a line each; with the
        number of this change, for `check_change`."""
        self.core.nodes.view, now = self.node_view(), self.now()
        outcome = self.change(lambda: self.core.upgrade(given, wait_s, open_s, dry_run, now))
        if not dry_run:
            self._topology_log.note("command", "upgrade")
        return outcome

    def keep(self, wait_s: float | None) -> int:
        """Pack all tasks, for a savepoint. Returns the number of this change, for `savepoint`."""
        number = self.change(lambda: self.core.keep(wait_s, self.now()))
        self._topology_log.note("command", "keep")
        return number

    def savepoint(self, number: int) -> PackedTasks | None:
        """What all tasks have packed, once they have. Raises LifecycleError if they will not."""
        stored = self.core.stored
        if stored.keeps(number) and self.core.moves.is_kept:
            return PackedTasks.of(self.core.plan, stored, self.core.snapshot(self.now()).tasks())
        self._check(number, why_not_kept)
        return None

    def go_on(self, kept: int) -> bool:
        """Do not wait for the kill after a savepoint. Returns whether the topology continues."""
        return self.change(lambda: self.core.go_on(kept))

    def check_change(self, number: int) -> None:
        """Raise LifecycleError if a rebalance or an upgrade did not happen, or if the topology
        ended before that was known."""
        self._check(number, why_unchanged)

    def status(self) -> tuple[Snapshot, str | None]:
        """The current statistics, and why the topology failed, or None."""
        snapshot = self.change(lambda: self.core.snapshot(self.now()))
        return snapshot, self.core.error if snapshot.state == State.FAILED else None

    def kill_report(self) -> KillReport:
        """The report after a kill."""
        return self.core.report(self.now())

    def read_log(self, after: int) -> list[LogLine]:
        """The lines of the topology's log with numbers above `after`."""
        return self._topology_log.read(after)

    # ---- called by the adapter -------------------------------------------------------------------

    def look(self) -> None:
        """Let the master check its waits: see `look_after`."""
        self._will_look = False
        self.change(lambda: self.core.look(self.now()))

    def watch(self) -> None:
        """Look for silent workers and for nodes that are being drained; called every second, while
        heartbeats come."""
        self.core.nodes.view = self.node_view()
        if going := self.change(lambda: self.core.watch(self.now())):
            self._topology_log.leave(going)
        problems = self.core.nodes.problems(self.core.plan, self.core.absent)
        self._topology_log.problems("no node", problems)
        self._obey()

    def change(self, change: Callable[[], T]) -> T:
        """Carry out a change, and store the MasterState before anything is sent."""
        result = change()
        if self._save() or self.core.restless:
            self._obey()
        return result

    # ---- helpers ---------------------------------------------------------------------------------

    def _check(self, number: int, why_not: Callable[[MasterState, int, State], str | None]) -> None:
        state = self.change(lambda: self.core.state(self.now()))
        if (why := why_not(self.core.stored, number, state)) is not None:
            raise LifecycleError(f"topology {self.core.plan.graph.id!r} {why}")

    def _place_of(self, task: int) -> dict[str, Any]:
        known = next(
            (candidate for candidate in self.core.plan.tasks if candidate.id == task), None
        )
        if known is None:
            return {}
        return {"component": known.component, "task": known.index, "worker": known.worker}

    def _is_isolated(self, worker: int, life: int) -> bool:
        """Whether an experiment cuts this life of a worker off: nothing of it arrives here."""
        return bool(life) and self.core.stored.isolated.get(worker) == life

    def _accepts(self, worker: int, life: int) -> bool:
        is_current = self.core.is_current(worker, life)
        return is_current and not self._is_isolated(worker, life)

    def _tell(self, worker: int, what: str, *given: Any) -> None:
        if not self._is_isolated(worker, self.core.stored.lives.get(worker, 0)):
            self.call_worker(worker, what, *given)

    def _catch_up(self, worker: int) -> None:
        """Messages from and to a worker that was cut off may be lost: send and request them."""
        self._tell(worker, "desired_state", self.core.desired_state)
        self._tell(worker, "report")
        self._send_lives(worker)

    def _save(self) -> bool:
        self._saved_s = self.now()
        state = self.core.stored.to_bytes()
        changed = state != self._saved
        if changed:
            self._save_plan()
            self.save_state(state)
            self._saved = state
            self._keep_plans()
        return changed

    def _save_plan(self) -> None:
        """Save a new plan before the state that names it."""
        number, plan = self.core.stored.next_plan, self.core.moves.next_declared
        if number is not None and number not in self._saved_plans:
            assert plan is not None
            self.save_plan(number, plan)
            self._saved_plans.add(number)

    def _keep_plans(self) -> None:
        """Remove plans that the saved state does not name any more."""
        stored = self.core.stored
        needed = {number for number in (stored.plan, stored.other_plan) if number is not None}
        if needed != self._saved_plans:
            self.keep_plans(needed)
            self._saved_plans = needed

    def _obey(self) -> None:
        """Send the DesiredState to the workers, and carry out the orders of a rebalance."""
        if self._desired_state != self.core.desired_state:
            self._desired_state = self.core.desired_state
            for worker in self.core.lives:
                self._tell(worker, "desired_state", self._desired_state)
        orders = self.core.orders()
        self._topology_log.rebalance(orders, self.core.stored.cancelled)
        if orders.replace:
            self._save()  # no life that is replaced here may be accepted by the next master
        for worker in orders.replace:
            self.replace_worker(worker)
        for worker, leaving in orders.pack.items():
            self._tell(worker, "pack", self.core.stored.moves + 1, leaving, orders.fresh)
        for worker in orders.again:
            self._tell(worker, "again", self.core.stored.moves)
        self._create(orders.create)
        for worker in orders.end:
            self.end_worker(worker)
            self.core.ended(worker)
        if orders.unload:
            self.remove_transfers()
            self.core.moves.unloaded()
        self._save()
        if self.core.restless and not self._will_look:
            self._will_look = True
            self.look_after(_LOOK_S)

    def _create(self, workers: list[int]) -> None:
        failed = []
        for worker in workers:
            try:
                self.create_worker(worker)
            except Exception as error:  # it is tried again; a kill must not wait for it
                why = f"{type(error).__name__}: {error}"
                failed.append(f"worker {worker} has no process, and creating one failed: {why}")
        if workers:
            self._topology_log.problems("not created", failed, "error")

    def _send_lives(self, worker: int) -> None:
        """Send a worker the lives of all workers, and the crash reports of former ones."""
        self._tell(worker, "peers", self.core.lives, list(self.core.crash_reports.values()))
