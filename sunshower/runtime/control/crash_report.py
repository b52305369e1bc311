"""The crash report of a worker's process: the tuples that it was executing when it died."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from sunshower.failures import Cause, Failure
from sunshower.runtime.plan import Plan
from sunshower.runtime.tracking.ids import U64


@dataclass(frozen=True, slots=True)
class CrashReport:
    """Found by the worker's next process; the master passes it on to all workers."""

    worker: int
    life: int  # the one that ended
    task: int | None = None  # whose user code was running; None: none was
    roots: bytes = b""  # of the records passed to it: uint64, little endian
    stack: str = ""  # of the call, if the watchdog ended it because it did not return
    numbers: Mapping[int, tuple[int, ...]] = field(default_factory=dict)  # of its own spouts, whose
    # `Pending` is lost: spout task → the messages of these roots
    drawn: Mapping[int, tuple[int, int]] = field(default_factory=dict)  # of its own spouts: task →
    # records drawn, and the number from which on no life drew any; the master may know fewer
    silent_s: float = 0.0  # for which its process was silent; it was replaced for that

    @property
    def suspects(self) -> U64:
        """The roots of the records that were being executed."""
        return np.frombuffer(self.roots, np.uint64)

    def fits(self, plan: Plan) -> bool:
        """Whether it can be of a process of this topology. If not, its file was damaged."""
        spouts, tasks = {spout.id for spout in plan.spouts}, {task.id for task in plan.tasks}
        places = [place for pair in self.drawn.values() for place in pair]
        is_known = self.task is None or self.task in tasks
        is_spout = spouts >= self.drawn.keys() | self.numbers.keys()
        return is_known and is_spout and min([self.life, *places]) >= 0

    def failure(self, plan: Plan) -> Failure:
        """The failure of these trees; the process probably died of one of their records."""
        task = next(task for task in plan.tasks if task.id == self.task)
        cause, reason = Cause.ACTOR_DIED, "its process died while executing it"
        if self.stack:
            limit_s = plan.graph.config.block_max_s
            cause, reason = Cause.BLOCKED, f"it did not return within {limit_s:g} s"
        elif self.silent_s:
            cause, reason = (
                Cause.BLOCKED,
                (
                    f"its process was silent for {self.silent_s:g} s while executing it, and was "
                    "replaced: it was stopped or cut off, or this code holds the interpreter's lock"
                ),
            )
        return Failure(
            cause,
            task.component,
            task.index,
            reason,
            traceback=self.stack,
            worker=self.worker,
        )
