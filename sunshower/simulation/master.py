"""The simulated process around the master."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Protocol, TypeVar

from sunshower.runtime.control.lifecycle import State
from sunshower.runtime.control.messages import Welcome
from sunshower.runtime.control.nodes import NodeView
from sunshower.runtime.events.metrics import WorkerStats
from sunshower.runtime.master_process import MasterProcessBase
from sunshower.runtime.plan import Plan
from sunshower.runtime.tasks.flight_recorder import CrashReport
from sunshower.simulation.network import MASTER, STATE, SimEnvironment, SimProcess

T = TypeVar("T")


class ProcessStarter(Protocol):
    """Starts and ends processes."""

    def create(self, worker: int) -> None: ...
    def replace(self, worker: int, *, reachable: bool) -> None: ...
    def end(self, worker: int) -> None: ...
    def view(self) -> NodeView: ...


class SimMaster(SimProcess, MasterProcessBase):
    """One life of the master. Its MasterState is in the store, as bytes."""

    def __init__(
        self, env: SimEnvironment, node: str, machines: ProcessStarter, *, active: bool
    ) -> None:
        SimProcess.__init__(self, env.world, env.conditions, MASTER, node)
        self.heard = True  # whether anything arrived since the run last checked
        self._env = env
        self._machines = machines
        MasterProcessBase.__init__(self, active=active)

    def hello(
        self,
        caller: SimProcess,
        welcomed: Callable[[Welcome | None], None],
        crash_report: CrashReport | None,
    ) -> None:
        """A worker has started; answers with the Welcome."""
        welcome = self.welcome(caller.address, crash_report)
        self._env.network.answer(self, caller, welcomed, welcome)

    def answer_beat(
        self, caller: SimProcess, life: int, hear: Callable[[bool | None], None]
    ) -> None:
        """A worker sends a heartbeat."""
        answer = self.beat(caller.address, life)
        if answer is not None:
            self._env.network.answer(self, caller, hear, answer)

    def hear(self, stats: WorkerStats) -> None:
        self.heard = True
        super().hear(stats)

    def change(self, change: Callable[[], T]) -> T:
        self.heard = True
        return super().change(change)

    def state(self) -> State:
        """The state of the topology."""
        error = self.core.error
        state = self.core.state(self.now())
        if self.core.error != error:
            self._save()
        return state

    # ---- the port of MasterProcessBase -----------------------------------------------------------

    def now(self) -> float:
        return self.clock.now()

    def wall(self) -> float:
        return self.clock.wall()

    def load_state(self) -> bytes | None:
        return self._env.store.get(STATE)

    def save_state(self, state: bytes) -> None:
        self._env.store[STATE] = state

    def load_plan(self, number: int) -> Plan:
        return self._env.plan_of(number)

    def save_plan(self, number: int, plan: Plan) -> None:
        self._env.plans[number] = plan

    def keep_plans(self, numbers: Collection[int]) -> None:
        for number in self._env.plans.keys() - numbers:
            del self._env.plans[number]

    def remove_transfers(self) -> None:
        self._env.transfer.clear()

    def call_worker(self, worker: int, what: str, *given: Any) -> None:
        self._env.network.call(self, worker, what, *given)

    def create_worker(self, worker: int) -> None:
        self._machines.create(worker)

    def replace_worker(self, worker: int) -> None:
        fenced = self.core.stored.fenced.get(worker, 0)
        self._machines.replace(worker, reachable=not self._is_isolated(worker, fenced))

    def end_worker(self, worker: int) -> None:
        self._machines.end(worker)

    def node_view(self) -> NodeView:
        return self._machines.view()

    def look_after(self, seconds: float) -> None:
        self._world.after(self.clock.in_world_s(seconds), self.do, self.look)
