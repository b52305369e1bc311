"""Why a tuple failed: cause, place and attempt, as reported to its spout."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Cause(StrEnum):
    """Why a tuple tree failed."""

    TIMEOUT = "timeout"  # its deadline passed; the last resort
    FAILED = "failed by bolt"  # a bolt called fail()
    EXCEPTION = "exception"  # user code raised
    ACTOR_DIED = "actor died"  # a worker that held a part of the tree crashed, or did not answer
    BAD_FRAME = "bad frame"  # a frame was refused or lost in transit
    OVERLOAD = "overload"  # a cycle emitted more than its limit
    BLOCKED = "blocked"  # user code did not return; its process was ended
    QUARANTINED = "quarantined"  # its task kept raising or crashing, and no longer runs
    REBALANCED = "rebalanced"  # tasks moved before it was processed
    UNAVAILABLE = "unavailable"  # a dependency was away; see outages.py


# Causes in the tuple or in the code that processed it. The others are the runtime's.
_CHARGED = frozenset(
    {
        Cause.TIMEOUT,
        Cause.FAILED,
        Cause.EXCEPTION,
        Cause.OVERLOAD,
        Cause.BLOCKED,
        Cause.QUARANTINED,
    }
)


@dataclass(frozen=True, slots=True)
class Failure:
    """One failure of one tuple tree. Storm passes its spout none of this (STORM-154, STORM-521)."""

    cause: Cause
    component: str = ""  # where it failed; empty if unknown (a timeout)
    task: int = -1  # among the tasks of its component; -1: all of them
    reason: str = ""  # the argument of fail(tuple, reason), or the exception's type and message
    exception: str = ""  # the exception's type
    traceback: str = ""
    worker: int = -1  # where the task ran
    attempt: int = 1  # set by the spout: 1 is the first emit of the tuple
    in_doubt: bool = False  # the component fails every input, so the error may not be the tuple's

    def __str__(self) -> str:
        number = f"[{self.task}]" if self.task >= 0 else ""
        place = f" in {self.component}{number}" if self.component else ""
        reason = f": {self.reason}" if self.reason else ""
        return f"{self.cause}{place}{reason}"

    @property
    def is_charged(self) -> bool:
        """Whether this counts as an attempt of the tuple. A crash, a lost frame, an outage and a
        failure in doubt do not."""
        return self.cause in _CHARGED and not self.in_doubt
