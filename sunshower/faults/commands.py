"""What people ask of a running topology, as something to be done in the middle of all else.

    rebalance(workers, layout, wait_s)    its tasks change places
    drain()                               its sources are asked for nothing more

Both are asked of the master, and nobody waits for what follows: a worker that the nemesis has
paused must be resumed by it, or the tasks would never have changed places.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from sunshower.errors import ExperimentError, LifecycleError
from sunshower.faults.vocabulary import Hurt
from sunshower.runtime.cluster import Run
from sunshower.runtime.placement import replan
from sunshower.runtime.plan import Layout, Plan


@dataclass(frozen=True)
class Rebalance:
    """See `rebalance`."""

    workers: int | None = None
    layout: Layout | None = None
    wait_s: float | None = None
    for_s: float = field(default=0.0, init=False)

    def check(self, plan: Plan) -> None:
        if self.workers is not None and self.workers < 1:
            raise ExperimentError(f"{self}: there must be at least one worker")
        try:
            replan(plan, self.workers, self.layout)
        except LifecycleError as error:
            raise ExperimentError(f"{self}: {error}") from None

    def begin(self, run: Run, plan: Plan, generator: np.random.Generator) -> Hurt:
        return Hurt(str(self), ask=self._ask)

    def _ask(self, run: Run) -> None:
        run.rebalance(self.workers, self.layout, self.wait_s, waits=False)

    def __str__(self) -> str:
        if self.workers is None:
            return f"rebalance{f' to {self.layout}' if self.layout else ''}"
        layout = f", {self.layout}" if self.layout else ""
        return f"rebalance to {self.workers} worker{'s' * (self.workers != 1)}{layout}"


@dataclass(frozen=True)
class Drain:
    """See `drain`."""

    hurts: ClassVar[bool] = False
    for_s: float = field(default=0.0, init=False)

    def check(self, plan: Plan) -> None:
        """Every topology can be drained."""

    def begin(self, run: Run, plan: Plan, generator: np.random.Generator) -> Hurt:
        return Hurt(str(self), ask=lambda run: run.drain())

    def __str__(self) -> str:
        return "drain"


def rebalance(
    workers: int | None = None, layout: Layout | None = None, wait_s: float | None = None
) -> Rebalance:
    """The tasks change places; `wait_s`: how long what is pending may take before (default: the
    message timeout). One that comes while another is under way is not done."""
    return Rebalance(workers, layout, wait_s)


def drain() -> Drain:
    """The sources are asked for nothing more, in whatever life; what was emitted is finished."""
    return Drain()
