"""What user code gets, and its exceptions as errors that name the component, task and worker."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from sunshower.clock import Clock, SystemClock
from sunshower.errors import ProtocolError, SunshowerError, TopologyFailed, user_errors
from sunshower.failures import Cause, Failure
from sunshower.outages import is_unavailable
from sunshower.runtime.events.health import TaskError
from sunshower.runtime.plan import Plan, Task
from sunshower.secret import without_secrets
from sunshower.texts import message_of
from sunshower.topologies.components import Context

if TYPE_CHECKING:
    from sunshower.runtime.events.instrument import Instrument

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
        trace = "".join(traceback.format_exception(error)).rstrip()
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


def failure_of(
    task: Task, error: BaseException, unavailable: Sequence[type[BaseException]] = ()
) -> Failure:
    """The failure of a tuple, or a batch, for an exception of user code.

    `unavailable`: types that count as an outage besides those of outages.py."""
    told = traceback.TracebackException.from_exception(error)  # only once: the costliest part
    return Failure(
        Cause.UNAVAILABLE if is_unavailable(error, unavailable) else Cause.EXCEPTION,
        task.component,
        task.index,
        without_secrets("".join(told.format_exception_only()).strip()),
        type(error).__qualname__,
        without_secrets("".join(told.format())),
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
) -> Context:
    """Return the context of a task: its position, and how much of its source is settled.

    `clock`: the worker's; None: the machine's. `instrument`: notes what user code reports with
    `wrote` and `noted`.
    """
    tasks = {id: [t.id for t in plan.tasks_of(id)] for id in plan.graph.components}
    parallelism = plan.component(task).parallelism
    place = (plan.graph.id, task.component, task.id, task.index, parallelism)
    notes = () if instrument is None else instrument.of_user_code
    generated_stages = plan.graph.config.generated_stages
    return Context(*place, tasks, committed, clock or SystemClock(), generated_stages, *notes)
