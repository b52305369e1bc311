"""The simulated cluster: the implementation of the `Cluster` port for experiments and tests."""

from __future__ import annotations

from contextlib import ExitStack
from datetime import datetime
from typing import Self

from sunshower.clock import VIRTUAL_DATE
from sunshower.errors import ClusterError, interruptible
from sunshower.runtime.plan import Layout, make_plan
from sunshower.runtime.savepoint import Savepoint
from sunshower.runtime.tracking.ids import seeded
from sunshower.simulation.environment import SimEnvironment
from sunshower.simulation.network import Network
from sunshower.simulation.run import SimRun
from sunshower.simulation.world import World, drawn
from sunshower.topologies.graph import Graph


class SimCluster:
    """Runs topologies in one thread, on virtual time, with all randomness from one seed.

    The same seed and the same calls give the same run, event by event. `nodes`: machines that the
    processes are spread over; a process that dies restarts on any of them. `drift`: the largest
    relative error of a clock's rate. `latency_s`, `call_s`: the mean latency of a message, and the
    mean cost of a call of user code. The seed draws each of these that is None. `check`: check the
    invariants of a worker after each of its slices (AssertionError if one is violated). `date`:
    that of the clock at the beginning, with a time zone. Raises ConfigError.
    """

    name = "sim"

    def __init__(
        self,
        seed: int,
        *,
        nodes: int | None = 1,
        drift: float | None = 0.01,
        latency_s: float | None = None,
        call_s: float | None = None,
        check: bool = False,
        date: datetime = VIRTUAL_DATE,
    ) -> None:
        self._world = World(seed, date)
        self._conditions = drawn(
            self._world, nodes=nodes, drift=drift, latency_s=latency_s, call_s=call_s
        )
        self._generator = seeded(seed)
        self._check = check
        self._runs: list[SimRun] = []
        self._entered = ExitStack()

    def submit(
        self,
        graph: Graph,
        layout: Layout = Layout.PACK,
        *,
        active: bool = True,
        sample: int | None = None,
        resume: Savepoint | None = None,
    ) -> SimRun:
        if any(run.topology == graph.id and not run.stopped for run in self._runs):
            raise ClusterError(
                f"a topology {graph.id!r} is there already: stop it before it is submitted again"
            )
        network = Network(self._world, self._conditions)
        plan = make_plan(graph, layout)
        plan = plan if resume is None else resume.resumed(plan)
        place = (self._world, self._conditions, network, self._generator, plan)
        env = SimEnvironment(*place, sample, self._check)
        if resume is None:
            graph.begin_outputs()
        else:
            env.resume(resume, resume.master_state(plan, active=active))
        run = SimRun(env, active=active)
        self._runs.append(run)
        run.start()
        return run

    def close(self) -> None:
        """Stop all submitted topologies."""
        for run in self._runs:
            run.stop()

    def __enter__(self) -> Self:
        self._entered.enter_context(interruptible())
        return self

    def __exit__(self, *error: object) -> None:
        with self._entered:
            self.close()
