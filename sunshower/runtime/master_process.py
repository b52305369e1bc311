"""The process of the master: the part that Ray and the simulator share.

Workers and clients send it events. It applies them, stores the MasterState, and then carries out
the commands. Adapters derive from it; the abstract methods are the port: how to call a worker,
where to store the MasterState, how to create and end processes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from typing import Any

from sunshower.errors import LifecycleError
from sunshower.runtime.control import events
from sunshower.runtime.control.events import Create, End, MasterCommand, Replace, Tell, Unload
from sunshower.runtime.control.lifecycle import KillReport, State, why_not_kept, why_unchanged
from sunshower.runtime.control.master import Master
from sunshower.runtime.control.master_state import MasterState
from sunshower.runtime.control.nodes import NodeView
from sunshower.runtime.control.savepoint import PackedTasks
from sunshower.runtime.events.log_lines import LogLine
from sunshower.runtime.events.metrics import Snapshot
from sunshower.runtime.plan import Plan

_SAVE_S = 1.0  # how often to store what frequent events change: older positions cause more replays
_FREQUENT = (events.Statistics, events.Beat, events.Stuck, events.Logged)
_LOOK_S = 0.1  # how often to look during a kill or rebalance


class MasterProcessBase(ABC):
    """One process of the master. Its MasterState is stored before anything is sent."""

    def __init__(self, *, active: bool) -> None:
        """`active`: whether spouts emit, if no master ran before."""
        saved, now = self.load_state(), self.now()
        state = MasterState.from_bytes(saved) if saved else MasterState(active=active)
        plan = self.load_plan(state.plan)
        other = None if state.other_plan is None else self.load_plan(state.other_plan)
        self.core = Master(plan, state, now, other, self.wall)
        self._saved = saved
        self._saved_s = now
        self._saved_plans: set[int] = set()
        self._keep_plans()
        self._will_look = False
        self.apply(events.MasterBegins())

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
    def call_worker(self, worker: int, what: str, *arguments: Any) -> None:
        """Call a method of a worker, without waiting for it."""

    @abstractmethod
    def create_worker(self, worker: int) -> None:
        """Create a worker's process, unless there is one or one is starting."""

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
        """Apply a Tick in so many seconds."""

    # ---- called by workers, clients and the adapter ----------------------------------------------

    def apply(self, event: events.Event) -> Any:
        """Apply an event, and return its answer. Raises LifecycleError."""
        if isinstance(event, events.Tick):
            self._will_look = False
        if isinstance(event, events.Watch | events.RebalanceTasks | events.Upgrade):
            self.core.nodes.view = self.node_view()
        now = self.now()
        answer, commands = self.core.apply(event, now)
        if commands or type(event) not in _FREQUENT or now - self._saved_s >= _SAVE_S:
            self._save()
        for command in commands:
            self._carry_out(command)
        if commands:
            self._save()
        if self.core.restless and not self._will_look:
            self._will_look = True
            self.look_after(_LOOK_S)
        if isinstance(event, events.Statistics) and self.core.scaling.is_due(self.core.plan, now):
            self._scale(now)
        return answer

    def savepoint(self, number: int) -> PackedTasks | None:
        """What all tasks have packed, once they have. Raises LifecycleError if they will not."""
        stored = self.core.stored
        if stored.keeps(number) and self.core.is_kept:
            return PackedTasks.of(self.core.plan, stored, self.core.snapshot(self.now()).tasks())
        self._check(number, why_not_kept)
        return None

    def check_change(self, number: int) -> None:
        """Raise LifecycleError if a rebalance or an upgrade did not happen, or if the topology
        ended before that was known."""
        self._check(number, why_unchanged)

    def state(self) -> State:
        """The state of the topology."""
        error, state = self.core.stored.error, self.core.state(self.now())
        if self.core.stored.error != error:
            self._save()
        return state

    def status(self) -> tuple[Snapshot, str | None]:
        """The current statistics, and why the topology failed, or None."""
        snapshot = self.core.snapshot(self.now())
        self._save()
        return snapshot, self.core.stored.error if snapshot.state == State.FAILED else None

    def kill_report(self) -> KillReport:
        """The report after a kill."""
        return self.core.report(self.now())

    def read_log(self, after: int) -> list[LogLine]:
        """The lines of the topology's log with numbers above `after`."""
        return self.core.log.read(after)

    # ---- helpers ---------------------------------------------------------------------------------

    def _scale(self, now: float) -> None:
        """Carry out the change of numbers that the load asks for: see scaling.py."""
        core, scaling = self.core, self.core.scaling
        if (wanted := scaling.look(core.plan, core.snapshot(now), now)) is None:
            return
        rebalance = events.RebalanceTasks(wanted.workers, tasks=wanted.tasks, is_scaling=True)
        try:
            number = self.apply(rebalance)
        except LifecycleError as error:
            scaling.failed(core.plan, str(error), now)
            core.log.note("not scaled", f"{wanted.why}; {error}", "warning")
        else:
            scaling.began(core.plan, number, now)
            core.log.note("scaled", wanted.why)

    def _check(self, number: int, why_not: Callable[[MasterState, int, State], str | None]) -> None:
        if (why := why_not(self.core.stored, number, self.state())) is not None:
            raise LifecycleError(f"topology {self.core.plan.graph.id!r} {why}")

    def _carry_out(self, command: MasterCommand) -> None:
        match command:
            case Tell(worker, what, arguments):
                self.call_worker(worker, what, *arguments)
            case Replace(worker):
                self.replace_worker(worker)
            case Create(workers):
                self._create(workers)
            case End(worker):
                self.end_worker(worker)
                self.core.apply(events.Done(command), self.now())
            case Unload():
                self.remove_transfers()
                self.core.apply(events.Done(command), self.now())

    def _create(self, workers: Collection[int]) -> None:
        failed = []
        for worker in workers:
            try:
                self.create_worker(worker)
            except Exception as error:  # it is tried again; a kill must not wait for it
                why = f"{type(error).__name__}: {error}"
                failed.append(f"worker {worker} has no process, and creating one failed: {why}")
        self.core.log.problems("not created", failed, "error")

    def _save(self) -> None:
        self._saved_s = self.now()
        if (state := self.core.stored.to_bytes()) == self._saved:
            return
        number, plan = self.core.stored.next_plan, self.core.next_declared
        if number is not None and number not in self._saved_plans:  # before the state that names it
            assert plan is not None
            self.save_plan(number, plan)
            self._saved_plans.add(number)
        self.save_state(state)
        self._saved = state
        self._keep_plans()

    def _keep_plans(self) -> None:
        """Remove plans that the saved state does not name any more."""
        stored = self.core.stored
        needed = {number for number in (stored.plan, stored.other_plan) if number is not None}
        if needed != self._saved_plans:
            self.keep_plans(needed)
            self._saved_plans = needed
