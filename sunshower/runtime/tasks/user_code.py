"""What user code gets, and its exceptions as errors that name the component, task and worker."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from sunshower.clock import Clock, SystemClock
from sunshower.errors import (
    BadEmit,
    ProtocolError,
    SunshowerError,
    TopologyFailed,
    is_user_error,
    user_errors,
)
from sunshower.failures import Cause, Failure
from sunshower.outages import is_unavailable
from sunshower.records import Schema
from sunshower.runtime.events.health import TaskError
from sunshower.runtime.profiles import frame_of
from sunshower.runtime.tasks.user_errors import about, shown_traceback
from sunshower.runtime.tracking.ids import NO_IDS, U64
from sunshower.secret import without_secrets
from sunshower.texts import message_of
from sunshower.topologies.components import Context, ask_nothing, tell_nobody

if TYPE_CHECKING:
    from sunshower.runtime.events.instrument import Instrument
    from sunshower.runtime.plan import Plan, Task
    from sunshower.runtime.tasks.flight_recorder import Recorder

T = TypeVar("T")


class Raised(Exception):
    """User code raised; its exception is the `__cause__`."""

    def __init__(self, error: TaskError) -> None:
        super().__init__(error.text)
        self.error = error


def as_raised(task: Task, what: str, error: BaseException) -> Raised:
    """The Raised to raise, or to note, for `error`.

    Sunshower's own errors explain themselves; a ProtocolError also gets its component and task.
    Raises TopologyFailed for MemoryError, which affects every task of the process.
    """
    if isinstance(error, SunshowerError):
        place = f"{task.name}: " if isinstance(error, ProtocolError) else ""
        text, trace = f"{place}{error}", ""
    else:
        who = f"{what} of {task.name}"
        text = f"{who} raised {type(error).__name__}: {message_of(error)}"
        trace = shown_traceback(traceback.TracebackException.from_exception(error)).rstrip()
    kind = type(error).__qualname__
    text, trace = without_secrets(text), without_secrets(trace)
    raised = Raised(TaskError(task.component, task.index, task.worker, text, kind, trace))
    raised.__cause__ = error
    if isinstance(error, MemoryError):
        raise TopologyFailed(raised.error.story) from error
    return raised


def guard(task: Task, what: str, call: Callable[[], T]) -> T:
    """Return the result of `call`. Raises Raised for errors of user code; passes TopologyFailed."""
    try:
        return call()
    except (Raised, TopologyFailed):
        raise
    except user_errors() as error:
        raise as_raised(task, what, error) from error


# ---- calls of user code --------------------------------------------------------------------------
# Guarded, and noted in the flight recorder.
#
# A batch is noted as a whole. If the worker's previous process died in the code of a task, that
# task notes each record for a while (2 µs each), so that the next crash report names one record
# instead of the whole batch.


class UserCodeCalls:
    """Runs every call from a worker into user code."""

    def __init__(self, recorder: Recorder, clock: Clock) -> None:
        self._recorder = recorder
        self._clock = clock
        self._watched: int | None = None
        self._watched_until_s = 0.0
        self._frames: dict[int, Callable[..., Any]] = {}  # task → `_call` with the task's name

    def __call__(self, task: Task, what: str, call: Callable[[], T], roots: U64 = NO_IDS) -> T:
        """Return the result of `call`; `roots`: of the records passed to it. Raises as guard."""
        result: T = (self._frames.get(task.id) or self.of(task))(task, what, call, roots)
        return result

    def of(self, task: Task) -> Callable[[Task, str, Callable[[], Any], U64], Any]:
        """The same for one task, with one function less between the caller and user code."""
        named = frame_of(task.component, task.index, UserCodeCalls._call)
        frame = self._frames[task.id] = partial(named, self)
        return frame

    def _call(self, task: Task, what: str, call: Callable[[], Any], roots: U64) -> Any:
        self._recorder.begin(task.id, roots, self._clock.now())
        try:
            result = call()
        except BaseException as error:
            if not is_user_error(error):
                raise
            self._recorder.end()
            if isinstance(error, Raised | TopologyFailed):
                raise
            raise as_raised(task, what, error) from error
        self._recorder.end()
        return result

    @property
    def crash_reports(self) -> str | None:
        """Why the next process of this worker finds no crash report; None: it finds one."""
        return self._recorder.unwritable

    def rebuild(self, read: Callable[[], T]) -> T:
        """Return the result of `read`, which notes the records it rebuilds, because their
        constructors are user code."""
        try:
            result = read()
        except Exception:
            self._recorder.end()
            raise
        self._recorder.end()
        return result

    def watch(self, task: int, until_s: float) -> Callable[[U64], None]:
        """Until that time each record of the task is noted as it is rebuilt. Returns a function
        that notes the records which the task executes."""
        self._watched, self._watched_until_s = task, until_s
        return partial(self.note, task)

    def is_watched(self, task: int) -> bool:
        """Whether each record of this task is noted."""
        return task == self._watched and self._clock.now() < self._watched_until_s

    def note(self, task: int, roots: U64) -> None:
        """Note that a task executes or rebuilds records of these trees from now on."""
        self._recorder.begin(task, roots, self._clock.now())


# ---- failures ------------------------------------------------------------------------------------


def failure_of(
    task: Task,
    error: BaseException,
    unavailable: Sequence[type[BaseException]] = (),
    record: Any = None,
) -> Failure:
    """The failure of a tuple, or a batch, for an exception of user code.

    `unavailable`: types that count as an outage besides those of outages.py. `record`: the input;
    None: it is not known."""
    formatted = traceback.TracebackException.from_exception(error)  # only once: the costliest part
    reason = "".join(formatted.format_exception_only()).strip()
    is_own = isinstance(error, BadEmit)  # which names what was emitted: no line is wrong
    is_away = is_unavailable(error, unavailable)
    if not is_away and (is_own or not isinstance(error, SunshowerError)):
        what = about(error, record, task.component)
        reason = f"{reason} ({what})" if what else reason
    return Failure(
        Cause.UNAVAILABLE if is_away else Cause.EXCEPTION,
        task.component,
        task.index,
        without_secrets(reason),
        type(error).__qualname__,
        "" if is_own else without_secrets(shown_traceback(formatted)),
        task.worker,
    )


def no_way(task: Task, error: BaseException) -> Failure:
    """The failure of a tuple for whose output a grouping raised `error`."""
    failure = failure_of(task, error)
    return replace(failure, reason=f"a grouping of its output raised {failure.reason}")


def untracked(failure: Failure) -> str:
    """The message for a failed record that is untracked and so cannot be replayed."""
    tail = f"\n{failure.traceback.rstrip()}" if failure.traceback else ""
    return (
        f"an untracked record failed: {failure}. It cannot be replayed (ackers=0, or an "
        f"emit without anchors or message id): catch what may go wrong, or track it.{tail}"
    )


def context(
    plan: Plan,
    task: Task,
    committed: int = 0,
    clock: Clock | None = None,
    instrument: Instrument | None = None,
    ask: Callable[[float], None] | None = None,
) -> Context:
    """Return the context of a task: its position, and how much of its source is settled.

    `clock`: the worker's; None: the machine's. `instrument`: notes what user code reports with
    `wrote` and `noted`. `ask`: of a spout, see PollBackoff.wake.
    """
    tasks = {id: [t.id for t in plan.tasks_of(id)] for id in plan.graph.components}
    parallelism = plan.component(task).parallelism
    place = (plan.graph.id, task.component, task.id, task.index, parallelism)
    tell, note = (instrument and instrument.of_user_code) or (tell_nobody, tell_nobody)
    generated_stages = plan.graph.config.generated_stages
    position = (*place, tasks, committed, clock or SystemClock())
    return Context(*position, generated_stages, tell, note, ask or ask_nothing)


# ---- outputs of a batch --------------------------------------------------------------------------

# A NamedTuple, a str and a dict can be iterated too, field by field or letter by letter. Without
# `check_returned`, `return word` instead of `yield word` would emit single letters, or nothing.
# A generator function always returns a generator and is not checked. For other functions the check
# costs 4 % of the rate of the shortest possible function (1.06 against 1.10 M records a second).


@dataclass(slots=True)
class BatchOutputs:
    """The outputs and failures of a batch, or of the first inputs of it."""

    outputs: list[Any] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)  # for each started input, its end in `outputs`
    failures: dict[int, Failure] = field(default_factory=dict)
    rest: Iterator[Any] | None = None  # further outputs of the last input
    fit: bool = False  # whether all outputs are known to be of the type of the default stream


def is_generator(call: Callable[[Any], Any]) -> bool:
    """Whether `call` is a generator function, whose result needs no check."""
    code = call if inspect.isroutine(call) else getattr(call, "__call__", call)  # noqa: B004
    return inspect.isgeneratorfunction(code) or inspect.isgeneratorfunction(call)


def check_returned(result: Any, schema: Schema | None) -> None:
    """Raise BadEmit unless `result` is an iterable of records. `schema`: of the default stream."""
    if isinstance(result, str | bytes | Mapping) or not isinstance(result, Iterable):
        bad = True
    elif isinstance(result, tuple) and schema is not None and schema.type is tuple:
        bad = schema.misfit(list(result)) is not None and schema.misfit([result]) is None
    else:  # a NamedTuple, or a dataclass that can be iterated
        bad = hasattr(result, "_fields") or (schema is not None and type(result) is schema.type)
    if bad:
        raise BadEmit(
            f"returned a {type(result).__name__} ({result!r:.200}); yield it, or return a list of "
            "records (a sink returns nothing)"
        )
