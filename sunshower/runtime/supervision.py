"""What becomes of a task whose user code raises where no tuple is to blame.

       ┌──────── the back-off is over: tried again ────────┐
       ▼                                                   │
    RUNNING ──raised, fewer than `task_errors_max` times──▶ WAITING   (a new task starts here)
       └──────raised, `task_errors_max` times in a row────▶ QUARANTINED, for good

Nobody else stops for it: a waiting bolt keeps its inbox, a quarantined one fails what comes.
What ack, fail, close and cleanup raise is only noted: the task goes on.
Storm: org.apache.storm.executor.Executor; there the whole worker dies, with all its tasks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from math import inf
from typing import Any

from sunshower.config import Config
from sunshower.failures import Cause, Failure
from sunshower.runtime.history import Scribe
from sunshower.runtime.injection import Injection
from sunshower.runtime.plan import Task
from sunshower.runtime.usercode import Raised, TaskError, guard
from sunshower.topologies.components import Context

_BACKOFF_MAX_S = 5.0
_CALM_S = 5.0  # a source that has nothing for so long, and does not raise, is well again
_LAST = 5  # error texts that are kept


class Standing(StrEnum):
    """Whether a task is run."""

    RUNNING = "running"
    WAITING = "waiting"  # to be opened, or tried again
    QUARANTINED = "quarantined"  # not run any more


class WaitKind(StrEnum):
    """Why a task waits."""

    UNAVAILABLE = "unavailable"  # a dependency is away; see outages.py
    DOUBT = "doubt"  # it has succeeded before, and fails every input now


@dataclass(frozen=True)
class Wait:
    """What a task waits for."""

    kind: WaitKind
    for_s: float  # since its first failure without a success after it
    tries: int  # failed ones since then
    error: TaskError  # the last one
    reached: bool  # whether the component has ever succeeded, in any task and any life


@dataclass(frozen=True)
class Health:
    """How a task stands, for whoever looks on."""

    standing: Standing = Standing.RUNNING
    errors: int = 0
    last: tuple[TaskError, ...] = ()  # the newest at the end
    wait: Wait | None = None  # None: it waits for nothing


WELL = Health()


def backoff(first_s: float, times: int, longest_s: float) -> float:
    """How long to wait after `times` errors in a row: twice as long each time; 0 s after none."""
    return min(first_s * 2.0 ** min(times - 1, 60), longest_s) if times > 0 else 0.0


class Supervision:
    """The errors of one task, and when it is to be run."""

    def __init__(
        self,
        task: Task,
        config: Config,
        first_try_s: float = 0.0,
        quarantined: TaskError | None = None,
    ) -> None:
        self.task = task
        self.standing = Standing.WAITING
        self.retry_s = first_try_s  # when to try (again)
        self.in_a_row = 0  # errors since the last success
        self.cause: BaseException | None = None  # of the last error, for whoever debugs
        self._config = config
        self._errors = 0
        self._last: deque[TaskError] = deque(maxlen=_LAST)
        self._quiet_since_s: float | None = None
        if quarantined is not None:
            self._last.append(quarantined)
            self._quarantine()

    @property
    def runs(self) -> bool:
        """Whether its user code may be called."""
        return self.standing is Standing.RUNNING

    @property
    def waits(self) -> bool:
        """Whether its time is still to come."""
        return self.standing is Standing.WAITING

    @property
    def is_quarantined(self) -> bool:
        """Whether it is not run any more."""
        return self.standing is Standing.QUARANTINED

    def tried(self) -> None:
        """It was opened, or may be asked again."""
        self.standing, self.retry_s = Standing.RUNNING, inf

    def raised(self, raised: Raised, now: float) -> None:
        """It cannot go on: it waits, twice as long each time, or is given up."""
        self.note(raised)
        if self._quiet_since_s is not None and now - self._quiet_since_s >= _CALM_S:
            self.in_a_row = 0
        self._quiet_since_s = None
        self.in_a_row += 1
        if self.in_a_row >= self._config.task_errors_max:
            self._quarantine()
            return
        backoff_s = backoff(self._config.task_backoff_s, self.in_a_row, _BACKOFF_MAX_S)
        self.standing, self.retry_s = Standing.WAITING, now + backoff_s

    def note(self, raised: Raised) -> None:
        """It goes on, but whoever looks on is told."""
        self._errors += 1
        self._last.append(raised.error)
        self.cause = raised.__cause__

    def went_well(self, now: float, *, progress: bool) -> None:
        """It was run and has not raised. Progress: it has emitted something."""
        if progress:
            self.in_a_row, self._quiet_since_s = 0, None
        elif self._quiet_since_s is None:
            self._quiet_since_s = now

    @property
    def last(self) -> TaskError | None:
        """Its last error."""
        return self._last[-1] if self._last else None

    @property
    def failure(self) -> Failure:
        """Of a tuple that comes to a quarantined task."""
        last, task = self._last[-1], self.task
        why = (last.text, last.exception, last.traceback)
        return Failure(Cause.QUARANTINED, task.component, task.index, *why, task.worker)

    @property
    def pulse(self) -> tuple[Standing, int]:
        """While it does not change, neither does `health`."""
        return self.standing, self._errors

    @property
    def health(self) -> Health:
        """At this moment."""
        return Health(self.standing, self._errors, tuple(self._last))

    def _quarantine(self) -> None:
        self.standing, self.retry_s = Standing.QUARANTINED, inf


class Supervised:
    """What spout and bolt tasks have in common: they run user code and go on when it raises."""

    def __init__(self, supervision: Supervision) -> None:
        self.task = supervision.task
        self.supervision = supervision
        self.untracked: str | None = None  # the first record that failed and nobody follows
        self.scribe: Scribe | None = None  # told of what happens, in an experiment
        self.injection: Injection | None = None  # what disturbs it, in an experiment

    def resume(self, context: Context) -> None:
        """Its time has come: be opened, or asked again. Raises Raised when user code does."""
        raise NotImplementedError

    def close(self) -> TaskError | None:
        """The topology stops. Returns what user code had to say against that."""
        raise NotImplementedError

    def pulse(self) -> tuple[object, ...]:
        """Its counters, and how it stands, as plain values: while it does not change, neither do
        the counts, `done` and health of `stats`, which costs ten times as much."""
        raise NotImplementedError

    def hear(self, what: str, call: Callable[[], Any]) -> TaskError | None:
        """Call user code that stops nobody when it raises: that is noted, and returned."""
        try:
            guard(self.task, what, call)
        except Raised as raised:
            self.supervision.note(raised)
            return raised.error
        return None

    def figures_of(self, code: Any) -> dict[str, float]:
        """What the user's code wants to be seen of itself, while it runs."""
        found: dict[str, float] = {}
        if self.supervision.runs and hasattr(code, "figures"):
            self.hear("figures", lambda: found.update(code.figures()))
        return found
