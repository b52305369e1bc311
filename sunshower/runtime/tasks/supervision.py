"""Decides when a task runs, waits or is quarantined after errors that no single tuple caused.

       ┌──────── the back-off is over: tried again ────────┐
       ▼                                                   │
    RUNNING ──raised, fewer than `task_errors_max` times──▶ WAITING   (a new task starts here)
       │  └───raised, `task_errors_max` times in a row────▶ QUARANTINED ──each 30 s──▶ tried again
       └── paused (outage or doubt, see bolt_task.py): it runs, one input at a time

An outage of a dependency is no error of the task: the task waits without limit, with a back-off of
up to 10 s. A spout that has emitted before and raises anything else is in doubt: it waits for ten
minutes before it is quarantined. Other tasks continue: a waiting bolt keeps its inbox, a
quarantined bolt fails its inputs. Errors of ack, fail, close and cleanup are only recorded.
Storm: org.apache.storm.executor.Executor; there the whole worker dies, with all its tasks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from itertools import islice
from math import inf
from typing import TYPE_CHECKING, Any

from sunshower.config import Config
from sunshower.errors import SunshowerError, TopologyFailed
from sunshower.failures import Cause, Failure
from sunshower.outages import is_unavailable
from sunshower.runtime.events.health import Health, Standing, TaskError, Wait, WaitKind
from sunshower.runtime.plan import Task
from sunshower.runtime.tasks.user_code import Raised, guard, untracked
from sunshower.texts import clip
from sunshower.topologies.components import Context

if TYPE_CHECKING:
    from sunshower.runtime.events.instrument import Instrument

_BACKOFF_MAX_S = 5.0
_PAUSE_FIRST_S = 0.1  # before a dependency is tried again; doubled each time, with jitter
_PAUSE_MAX_S = 10.0
_DOUBT_MAX_S = 600.0
_PROBATION_S = 30.0  # interval at which a quarantined task is tried again
_CALM_S = 5.0  # a source without records or errors for this long counts as healthy
_LAST = 5  # error texts to keep
_FIGURES_MAX, _NAME_BYTES = 1_000, 200


def backoff(first_s: float, times: int, longest_s: float) -> float:
    """Seconds to wait after `times` errors in a row: doubled each time; 0 after none."""
    return min(first_s * 2.0 ** min(times - 1, 60), longest_s) if times > 0 else 0.0


class Supervision:
    """Tracks the errors of one task, and decides when the task runs."""

    def __init__(
        self,
        task: Task,
        config: Config,
        first_try_s: float = 0.0,
        quarantined: TaskError | None = None,
        unavailable: tuple[type[BaseException], ...] = (),
        chance: Callable[[], float] = lambda: 0.0,
    ) -> None:
        """`unavailable`: further exception types that mean an outage; see outages.py. `chance`:
        draws from [0, 1)."""
        self.task = task
        self.unavailable = unavailable
        self.proven = False  # its component has succeeded, in any task and life
        self.others_succeed = False  # another task of the component has, since this one is in doubt
        self.others_doubt = False  # another task of the component is in doubt, and none succeeds
        self.wait: WaitKind | None = None  # why it is paused, or cannot be opened
        self.resumes_s = -inf  # when a paused task tries one input
        self._wait_error: TaskError | None = None
        self._waits_since_s: float | None = None
        self._doubts_since_s: float | None = None
        self.tries = 0  # failed ones since the pause began
        self._to_pause = False
        self._is_sure = True
        self._chance = chance
        self.now_s = first_try_s  # the time of the last update
        self.standing = Standing.WAITING
        self.retry_s = first_try_s  # when to try (again)
        self.in_a_row = 0  # errors since the last success
        self.cause: BaseException | None = None  # of the last error, for debugging
        self._config = config
        self._errors = 0
        self._last: deque[TaskError] = deque(maxlen=_LAST)
        self._quiet_since_s: float | None = None
        if quarantined is not None:
            self._last.append(quarantined)
            self._quarantine(first_try_s)

    @property
    def runs(self) -> bool:
        """Whether its user code may be called."""
        return self.standing is Standing.RUNNING

    @property
    def waits(self) -> bool:
        """Whether it waits to be opened or tried again."""
        return self.standing is Standing.WAITING

    @property
    def is_quarantined(self) -> bool:
        """Whether it is quarantined."""
        return self.standing is Standing.QUARANTINED

    def tried(self) -> None:
        """The task was opened, or may run again."""
        self.standing, self.retry_s = Standing.RUNNING, inf
        self.resumes_s = -inf

    def raised(self, raised: Raised, now: float) -> None:
        """Its user code raised: the task waits, twice as long each time, or is quarantined."""
        self.note(raised)
        cause = raised.__cause__
        if cause is not None and is_unavailable(cause, self.unavailable):
            self.pause(WaitKind.UNAVAILABLE, raised.error)
            self._wait_until(self.begin_pause(now))
            return
        if self._quiet_since_s is not None and now - self._quiet_since_s >= _CALM_S:
            self.in_a_row = 0
        self._quiet_since_s = None
        self.in_a_row += 1
        if self.in_a_row < self._config.task_errors_max:
            backoff_s = backoff(
                self._config.internals.task_backoff_s, self.in_a_row, _BACKOFF_MAX_S
            )
            self._wait_until(now + backoff_s)
        else:
            self._quarantine(now + _PROBATION_S)

    def doubted(self, raised: Raised, now: float) -> bool:
        """Let a source that has emitted before wait in doubt, for ten minutes in all. Returns
        whether that applies; if not, call `raised`."""
        cause = raised.__cause__
        if not self.proven or cause is None or is_unavailable(cause, self.unavailable):
            return False
        if isinstance(cause, SunshowerError):  # such as a record that does not fit its stream
            return False
        since_s = self._doubts_since_s
        if since_s is not None and now - since_s >= _DOUBT_MAX_S:
            return False
        self.note(raised)
        self.pause(WaitKind.DOUBT, raised.error)
        self._wait_until(self.begin_pause(now))
        return True

    def pause(self, kind: WaitKind, error: TaskError, *, sure: bool = True) -> None:
        """Request a pause, for an outage or doubt; `begin_pause` starts it. `sure`: see Wait."""
        self.wait, self._wait_error, self._to_pause, self._is_sure = kind, error, True, sure

    def begin_pause(self, now: float) -> float:
        """Start a requested pause. Returns when to try again; −∞ without a pause."""
        if not self._to_pause:
            return self.resumes_s
        self._to_pause, self._quiet_since_s = False, None
        self.tries += 1
        self.now_s = now
        if self._waits_since_s is None:
            self._waits_since_s = now
        if self.wait is not WaitKind.DOUBT:
            self._doubts_since_s = None
        elif self._doubts_since_s is None:
            self._doubts_since_s = now
        wait_s = backoff(_PAUSE_FIRST_S, self.tries, _PAUSE_MAX_S)
        self.resumes_s = now + wait_s * (1 - 0.5 * self._chance())
        return self.resumes_s

    def hold(self, kind: WaitKind, error: TaskError, now: float) -> None:
        """Let the task wait until `tried` and `end_wait` are called; `error`: why. Called again
        when there is more to say."""
        self.pause(kind, error)
        if self._waits_since_s is None:
            self.begin_pause(now)
        self._wait_until(inf)

    def check_doubt(self, now: float) -> None:
        """Raise TopologyFailed if a bolt has been in doubt for ten minutes."""
        since_s, error = self._doubts_since_s, self._wait_error
        if since_s is not None and error is not None and now - since_s >= _DOUBT_MAX_S:
            raise TopologyFailed(
                f"{self.task.component!r} had succeeded before, and has failed every input for "
                f"{_DOUBT_MAX_S / 60:g} minutes, {self.tries} times in a row. The last error: "
                f"{error.story}"
            )

    def check_opening(self) -> None:
        """Raise TopologyFailed if the task is quarantined by an error of sunshower's own, such as a
        table that does not exist, and its component has never succeeded. No input has caused that,
        so none may become a dead letter."""
        if isinstance(self.cause, SunshowerError) and not self.proven and self.last is not None:
            raise TopologyFailed(self.last.story) from self.cause

    def succeed(self) -> None:
        """The task has processed an input, or emitted a record: end its wait."""
        self.proven = True
        if self.wait is not None:
            self.end_wait()

    @property
    def doubted_s(self) -> float:
        """How long it has been in doubt, as of the last try; 0 if it is not."""
        since_s = self._doubts_since_s
        return 0.0 if since_s is None else self.now_s - since_s

    def kind_of(self, raised: Raised) -> WaitKind:
        """The kind of wait that this error means."""
        cause = raised.__cause__
        is_outage = cause is not None and is_unavailable(cause, self.unavailable)
        return WaitKind.UNAVAILABLE if is_outage else WaitKind.DOUBT

    def end_wait(self) -> None:
        """End the wait."""
        self.wait = self._wait_error = self._waits_since_s = self._doubts_since_s = None
        self.resumes_s, self.tries, self._to_pause = -inf, 0, False

    def note(self, raised: Raised) -> None:
        """Record an error that does not stop the task."""
        self._errors += 1
        self._last.append(raised.error)
        self.cause = raised.__cause__

    def went_well(self, now: float, *, progress: bool) -> None:
        """The task ran without an error. `progress`: it has emitted a record."""
        if progress:
            self.in_a_row, self._quiet_since_s = 0, None
            self.succeed()
        elif self._quiet_since_s is None:
            self._quiet_since_s = now
        elif self.wait is not None and now - self._quiet_since_s >= _CALM_S:
            self.end_wait()

    @property
    def last(self) -> TaskError | None:
        """The last error."""
        return self._last[-1] if self._last else None

    @property
    def failure(self) -> Failure:
        """The failure of a tuple that reaches a quarantined task."""
        last, task = self._last[-1], self.task
        why = (last.text, last.exception, last.traceback)
        place = (task.component, task.index)
        return Failure(Cause.QUARANTINED, *place, *why, task.worker, in_doubt=self.proven)

    @property
    def pulse(self) -> tuple[object, ...]:
        """Values that change whenever `health` does, except for the length of a wait."""
        return self.standing, self._errors, self.wait, self.tries

    @property
    def health(self) -> Health:
        """The health as of `now_s`."""
        return Health(self.standing, self._errors, tuple(self._last), self._waits_for)

    @property
    def _waits_for(self) -> Wait | None:
        if self.wait is None or self._wait_error is None or self._waits_since_s is None:
            return None
        for_s = max(0.0, self.now_s - self._waits_since_s)
        error, is_sure = self._wait_error, self._is_sure
        return Wait(self.wait, for_s, self.tries, error, self.proven, is_sure)

    def _wait_until(self, retry_s: float) -> None:
        self.standing, self.retry_s = Standing.WAITING, retry_s

    def _quarantine(self, retry_s: float) -> None:
        self.standing, self.retry_s = Standing.QUARANTINED, retry_s


class Supervised:
    """The base of spout and bolt tasks: they run user code and continue after its errors."""

    def __init__(self, supervision: Supervision, instrument: Instrument) -> None:
        self.task = supervision.task
        self.supervision = supervision
        self.untracked: str | None = None  # the first failure of an untracked record
        self.instrument = instrument

    def resume(self, context: Context) -> None:
        """Open the task, or let it run again. Raises Raised if user code does."""
        raise NotImplementedError

    def close(self) -> TaskError | None:
        """Close the task. Returns the error of user code, if it raised."""
        raise NotImplementedError

    def pulse(self) -> tuple[object, ...]:
        """Counters and health as plain values. They change whenever counts, `done` or health of
        `stats` do; `stats` costs ten times as much."""
        raise NotImplementedError

    def notify(self, what: str, call: Callable[[], Any]) -> TaskError | None:
        """Notify user code. An error that it raises is recorded and returned, and stops nothing."""
        try:
            guard(self.task, what, call)
        except Raised as raised:
            self.supervision.note(raised)
            return raised.error
        return None

    def note_untracked(self, failure: Failure) -> None:
        """Keep the first failure of an untracked record, for the report at the end of the run."""
        self.untracked = self.untracked or untracked(failure)

    def figures_of(self, code: Any) -> dict[str, float]:
        """The metrics that user code reports with `figures()`; empty while it does not run."""
        figures: dict[str, float] = {}
        if self.supervision.runs and hasattr(code, "figures"):
            self.notify("figures", lambda: figures.update(_figures(code.figures())))
        return figures


def _figures(figures: Mapping[str, float]) -> dict[str, float]:
    """The first 1,000 figures, as numbers, and their names, which may come from records."""
    pairs = islice(figures.items(), _FIGURES_MAX)
    return {clip(name, _NAME_BYTES): float(value) for name, value in pairs}
