"""The health of tasks as statistics report it: their errors, and why they wait or do not run."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from sunshower.failures import clip_texts
from sunshower.texts import REASON_BYTES, TRACEBACK_BYTES

_TEXTS = {"text": REASON_BYTES, "exception": 256, "traceback": TRACEBACK_BYTES}


@dataclass(frozen=True, slots=True)
class TaskError:
    """One error of one task, with component, task and worker; its texts are clipped."""

    component: str
    index: int  # among the tasks of its component
    worker: int
    text: str  # such as: open of numbers[0] raised OSError: gone
    exception: str = ""  # the exception's type
    traceback: str = ""  # empty if the text is sufficient

    def __post_init__(self) -> None:
        clip_texts(self, _TEXTS)

    def __str__(self) -> str:
        return self.text

    @property
    def line(self) -> str:
        """The first line of the text."""
        return self.text.partition("\n")[0]

    @property
    def story(self) -> str:
        """The text with advice and traceback."""
        if not self.traceback:
            return self.text
        return f"{self.text}. Fix it and run again.\n{self.traceback}"


class Standing(StrEnum):
    """Whether a task runs."""

    RUNNING = "running"
    WAITING = "waiting"  # to be opened, or tried again
    QUARANTINED = "quarantined"  # not run, except for periodic tries


class WaitKind(StrEnum):
    """Why a task waits."""

    UNAVAILABLE = "unavailable"  # a dependency is unavailable; see outages.py
    DOUBT = "doubt"  # it has succeeded before, and now fails every input
    FILLING = "filling"  # a table in memory is filled again; see worker.py


@dataclass(frozen=True)
class Wait:
    """Why and for how long a task has waited."""

    kind: WaitKind
    for_s: float  # since its first failure without a success after it
    tries: int  # failed tries since then
    error: TaskError  # the last error
    reached: bool  # whether the component has ever succeeded, in any task and any life
    sure: bool = True  # false: in doubt only because another task of the component is


@dataclass(frozen=True)
class Health:
    """The health of a task, as statistics report it."""

    standing: Standing = Standing.RUNNING
    errors: int = 0
    last: tuple[TaskError, ...] = ()  # the newest at the end
    wait: Wait | None = None  # None: it does not wait


WELL = Health()


class Quarantine(NamedTuple):
    """What the master sends to the worker of a quarantined task at its hello."""

    error: TaskError  # why
    wait_s: float  # until the task is tried
