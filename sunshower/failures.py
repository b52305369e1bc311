"""Why a tuple failed: cause, place and attempt, carried from where it broke to its spout."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Cause(StrEnum):
    """What ended a tuple tree without success."""

    TIMEOUT = "timeout"  # its deadline passed; the last resort
    FAILED = "failed by bolt"  # a bolt called fail()
    EXCEPTION = "exception"  # user code raised
    ACTOR_DIED = "actor died"  # a worker that held a part of the tree is gone
    BAD_FRAME = "bad frame"  # a frame was refused or lost on its way


@dataclass(frozen=True, slots=True)
class Failure:
    """One failure of one tuple tree. Storm passes its spout none of this (STORM-154, STORM-521)."""

    cause: Cause
    component: str = ""  # where it broke; empty when nobody can know (a timeout)
    task: int = -1
    reason: str = ""  # what fail(tuple, reason) said, or the exception's type and message
    traceback: str = ""
    attempt: int = 1  # filled in by the spout: 1 is the first time the tuple was emitted

    def __str__(self) -> str:
        place = f" in {self.component}[{self.task}]" if self.component else ""
        reason = f": {self.reason}" if self.reason else ""
        return f"{self.cause}{place}{reason}"

    @property
    def blames_tuple(self) -> bool:
        """Whether the tuple itself is suspect (user code refused it), not the machinery."""
        return self.cause in (Cause.FAILED, Cause.EXCEPTION)
