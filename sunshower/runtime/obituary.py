"""The last words of a worker's process: what it was doing when it died."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from sunshower.failures import Cause, Failure
from sunshower.runtime.ids import U64
from sunshower.runtime.plan import Plan


@dataclass(frozen=True, slots=True)
class Obituary:
    """Found by the successor, told to the master at its hello, and from there to all spouts."""

    worker: int
    life: int  # that has ended
    task: int | None = None  # whose user code was running; None: none was
    roots: bytes = b""  # of the records it had been given: uint64, little endian
    stack: str = ""  # where it was, if it was ended because it did not return
    numbers: Mapping[int, tuple[int, ...]] = field(default_factory=dict)  # of its own spouts, whose
    # pending tables have died with it: spout task → the messages of these roots
    drawn: Mapping[int, tuple[int, int]] = field(default_factory=dict)  # of its own spouts: task →
    # records that it had drawn, and what no life had drawn anything from; the master may have heard
    # of fewer

    @property
    def suspects(self) -> U64:
        """The roots of the records that were being executed."""
        return np.frombuffer(self.roots, np.uint64)

    def failure(self, plan: Plan) -> Failure:
        """Why these trees have failed: the process has died of one of them, as far as it knows."""
        task = next(task for task in plan.tasks if task.id == self.task)
        cause, reason = Cause.ACTOR_DIED, "its process died while executing it"
        if self.stack:
            limit_s = plan.graph.config.block_max_s
            cause, reason = Cause.BLOCKED, f"it did not return within {limit_s:g} s"
        return Failure(
            cause,
            task.component,
            task.index,
            reason,
            traceback=self.stack,
            worker=self.worker,
        )
