"""A topology in the simulator; tests can look at its workers, tasks and master.

Tests that call tasks by hand (rig.py) are faster.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sunshower.runtime.cluster import MASTER
from sunshower.runtime.control.master import Master
from sunshower.runtime.events.health import Health
from sunshower.runtime.events.injected_faults import InjectedFaults, Link
from sunshower.runtime.plan import Plan
from sunshower.runtime.tracking.ids import seeded
from sunshower.runtime.worker import Worker
from sunshower.simulation.cluster import SimRun
from sunshower.simulation.network import Network as SimNetwork
from sunshower.simulation.network import SimConditions, SimEnvironment, World
from sunshower.simulation.worker import SimWorker


class Network:
    """Time passes only in `run`, `until` and in calls of `sim`, the run itself."""

    def __init__(
        self, plan: Plan, seed: int = 0, *, link: Link | None = None, seconds_max: float = 600.0
    ) -> None:
        """`link`: the faults of each packet. A run that is not over at `seconds_max` is stuck."""
        self.seconds_max = seconds_max
        self.plan = plan
        world = World(seed)
        conditions = SimConditions(latency_s=0.001, call_s=1e-5, drift=0.0)
        place = (world, conditions, SimNetwork(world, conditions), seeded(seed), plan)
        self._env = SimEnvironment(*place, 1, True)  # with its history, and all invariants checked
        self.sim = SimRun(self._env, active=False)
        self.sim.start()
        if link is not None:
            self.sim.disturb(InjectedFaults(links=(link,)))
        self.sim.activate()

    def now(self) -> float:
        """The seconds of the simulated world."""
        return self.sim.now()

    def run(self) -> None:
        """Run to the end. Raises TopologyFailed if the topology has failed."""
        assert self.sim.wait(self.seconds_max - self.now()), f"stuck\n{self.sim._describe()}"

    def until(self, condition: Callable[[], bool]) -> None:
        """Run until `condition` holds."""
        while not condition():
            assert self.now() < self.seconds_max, f"stuck\n{self.sim._describe()}"
            self._env.world.step()

    def crash(self, worker: int) -> None:
        """SIGKILL, unless the process is down already."""
        if worker in self._env.network.there:
            self.sim.kill_worker(worker)

    @property
    def master(self) -> Master:
        return self.sim._master.core

    @property
    def workers(self) -> dict[int, Worker]:
        """The running workers that have begun their life."""
        processes = self._env.network.there.items()
        return {
            number: process.core
            for number, process in processes
            if number != MASTER and isinstance(process, SimWorker) and process.core is not None
        }

    def task(self, component: str, index: int = 0) -> Any:
        """The running task of a spout or bolt."""
        task = self.plan.tasks_of(component)[index]
        wired = self.workers[task.worker]._wired
        return wired.spouts.get(task.id) or wired.bolts[task.id]

    def health(self, component: str) -> Health:
        health: Health = self.task(component).supervision.health
        return health
