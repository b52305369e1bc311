"""Runs a topology in the simulator in a test, with injected crashes and outages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar, Self

import numpy as np

from sunshower.arguments import (
    COUNT,
    MOMENT,
    SECONDS,
    SECONDS_FROM_0,
    AnyOf,
    Instance,
    Methods,
    checked,
)
from sunshower.clock import VIRTUAL_DATE
from sunshower.errors import ClusterError, ExperimentError, TopologyError
from sunshower.experiments.faults.fault_kinds import ActiveFault, Errors, Fault
from sunshower.experiments.faults.fault_plan import Step, settle
from sunshower.experiments.faults.nemesis import Nemesis
from sunshower.runtime.cluster import Run
from sunshower.runtime.events.metrics import Snapshot
from sunshower.runtime.plan import Layout, Plan
from sunshower.simulation.cluster import SimCluster
from sunshower.testing.observed_run import ObservedRun
from sunshower.testing.prepared_graph import PreparedGraph, check_component, prepare_graph
from sunshower.topologies.topology import Topology

_DAY_S = 86_400.0
_SOON_S = 1.0


@dataclass(frozen=True)
class _Activation:
    """A step that activates the spouts."""

    activate: Callable[[], None]
    for_s: ClassVar[float] = 0.0

    def check(self, plan: Plan) -> None:
        """Accept every plan."""

    def begin(self, run: Run, plan: Plan, generator: np.random.Generator) -> ActiveFault:
        self.activate()
        return ActiveFault(str(self))

    def __str__(self) -> str:
        return "activate the spouts"


class SimulatedRun(ObservedRun):
    """A run in the simulator. Its time passes only in `advance`, `inject`, `finish` and `ask`.

    The spouts are activated by the first of these. `run` is the run itself, with everything else
    that a cluster can do, such as `run.kill_worker(0)`.
    """

    def __init__(self, prepared: PreparedGraph, seed: int, layout: Layout, date: datetime) -> None:
        super().__init__(prepared)
        self.seed = seed
        self._cluster = SimCluster(seed, date=date)
        self.run = self._cluster.submit(prepared.graph, layout, active=False)
        self._is_active = False

    def crash(self, component: str, after: int) -> None:
        """Kill the process of a bolt once the bolt has processed `after` records from now, before
        any of their acks leaves: `crash("count", after=3)`. Another process takes its place.

        All tasks of the bolt count together. A bolt of columns or of operators on whole batches
        dies after the batch with that record. Raises TopologyError for other components.
        """
        COUNT.check(f"crash of {component!r}: after", after, TopologyError)
        self._prepared.check_can_crash(component)
        self._prepared.points.add(component, after)

    @checked(ExperimentError, faults=AnyOf((Methods(Fault), Instance((Step,), "a Step"))))
    def inject(self, *faults: Fault | Step) -> None:
        """Inject faults, and let time pass until they are over.

        `away("store", for_s=60)` or another fault of sunshower.experiments begins now; a step, such
        as those of `at(5, kill(master()))`, so many seconds from now. If the spouts are not active
        yet, errors and outages of user code that begin now are there before the first record.
        Raises ExperimentError for a fault of something that is not there, and ClusterError for one
        that could not be injected.
        """
        steps = [one if isinstance(one, Step) else Step(0.0, one) for one in faults]
        for step in steps:
            step.fault.check(self.run.plan)
        first = [step.fault for step in steps if not step.at_s and isinstance(step.fault, Errors)]
        if first and not self._is_active:
            # Workers learn of the fault and of the activation in messages, which take their time.
            delay_s = min(_SOON_S, *(fault.for_s / 2 for fault in first))
            steps.append(Step(delay_s, _Activation(self._activate)))
        else:
            self._activate()
        nemesis = Nemesis(self.run, self.seed)
        nemesis.carry_out(settle(sorted(steps), _DAY_S))
        if nemesis.undone:
            raise ClusterError(f"seed {self.seed}: not injected: {'; '.join(nemesis.undone)}")

    @checked(ClusterError, seconds=SECONDS_FROM_0)
    def advance(self, seconds: float) -> None:
        """Let virtual time pass. Raises TopologyFailed if the topology has failed."""
        self._activate()
        self.run.wait(seconds)

    @checked(ClusterError, within_s=SECONDS)
    def finish(self, within_s: float = 3_600.0) -> Self:
        """Wait until everything is processed, and return this run; feeders end.

        Raises ClusterError if that takes more than `within_s` of virtual time, and if a crash that
        `crash` asked for did not happen.
        """
        for feeder in self._prepared.feeders.values():
            feeder.end()
        self._activate()
        if not self.run.wait(within_s):
            open_ids = {id: self.counts(id).pending for id in self.spouts}
            raise ClusterError(
                f"seed {self.seed}: topology {self.run.topology!r} is not finished after "
                f"{within_s:g} s; pending by spout: {open_ids}. A bolt forgets to ack, or a spout "
                "never ends: feed it"
            )
        if left := self._prepared.points.left():
            places = ", ".join(f"{id!r} (records too few: {count})" for id, count in left.items())
            raise ClusterError(
                f"seed {self.seed}: not crashed: {places}. Feed more records, or give crash() a "
                "smaller `after`"
            )
        return self

    def ask(self, requests: str, value: Any, *, timeout_s: float = 10.0) -> list[Any]:
        """Send a request and return the rows of its answer. Raises as Run.ask."""
        self._activate()
        return self.run.ask(requests, value, timeout_s=timeout_s)

    @property
    def snapshot(self) -> Snapshot:
        return self.run.snapshot()

    def results(self, component: str) -> list[Any]:
        check_component(self._prepared.declared, component)
        return self.run.results(component)

    def close(self) -> None:
        """Stop the topology; the cleanup methods of its code are called."""
        self._cluster.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _activate(self) -> None:
        if not self._is_active:
            self._is_active = True
            self.run.activate()


@checked(TopologyError, date=MOMENT)
def simulate(
    topology: Topology,
    replaced: Mapping[str, Any] | None = None,
    *,
    seed: int = 0,
    layout: Layout = Layout.ISOLATE,
    date: datetime = VIRTUAL_DATE,
) -> SimulatedRun:
    """Start a topology in the simulator; `replaced` as for `run`.

    The seed determines the run, event by event. By default each task has a process of its own, so
    that a crash hits one task. `date`: that of the clock at the beginning, with a time zone. Close
    the run, or use it in a `with`; the pytest fixture `simulate` does this, and gives each test
    several seeds.
    """
    return SimulatedRun(prepare_graph(topology, replaced or {}), seed, layout, date)
