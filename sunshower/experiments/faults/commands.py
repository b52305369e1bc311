"""Plan steps that are commands, not faults: rebalance and drain.

    rebalance(workers, layout, wait_s)    moves tasks
    drain()                               stops the sources

Both are requests to the master, and the nemesis does not wait for their end: it may have to resume
a paused worker first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from sunshower.arguments import COUNT, NONE, SECONDS_FROM_0, AnyOf, check_all
from sunshower.errors import ExperimentError, LifecycleError
from sunshower.experiments.faults.fault_kinds import ActiveFault
from sunshower.runtime.cluster import Run
from sunshower.runtime.control.placement import replan
from sunshower.runtime.plan import Layout, Plan


@dataclass(frozen=True)
class Rebalance:
    """Rebalances; skipped while another rebalance is in progress."""

    workers: int | None = None
    layout: Layout | None = None
    wait_s: float | None = None  # for pending tuples first; None: the message timeout
    for_s: ClassVar[float] = 0.0

    def __post_init__(self) -> None:
        rules = {"workers": AnyOf((COUNT, NONE)), "wait_s": AnyOf((SECONDS_FROM_0, NONE))}
        check_all(self, rules, "rebalance: ", ExperimentError)

    def check(self, plan: Plan) -> None:
        try:
            replan(plan, self.workers, self.layout)
        except LifecycleError as error:
            raise ExperimentError(f"{self}: {error}") from None

    def begin(self, run: Run, plan: Plan, generator: np.random.Generator) -> ActiveFault:
        return ActiveFault(str(self), ask=self._ask)

    def _ask(self, run: Run) -> None:
        run.rebalance(self.workers, self.layout, self.wait_s, waits=False)

    def __str__(self) -> str:
        if self.workers is None:
            return f"rebalance{f' to {self.layout}' if self.layout else ''}"
        layout = f", {self.layout}" if self.layout else ""
        return f"rebalance to {self.workers} worker{'s' * (self.workers != 1)}{layout}"


@dataclass(frozen=True)
class Drain:
    """Drains: the sources emit nothing new, and what was emitted is finished."""

    is_fault: ClassVar[bool] = False
    for_s: ClassVar[float] = 0.0

    def check(self, plan: Plan) -> None:
        """Accept every plan."""

    def begin(self, run: Run, plan: Plan, generator: np.random.Generator) -> ActiveFault:
        return ActiveFault(str(self), ask=lambda run: run.drain())

    def __str__(self) -> str:
        return "drain"


rebalance, drain = Rebalance, Drain  # as plans write them
