"""What user code gets, and its exceptions as errors that name the component, task and worker."""

from __future__ import annotations

import ast
import builtins
import dis
import inspect
import linecache
import sysconfig
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from pathlib import Path
from types import CodeType, FrameType, TracebackType
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
from sunshower.record_types import record_type_of
from sunshower.records import Schema
from sunshower.runtime.events.health import TaskError
from sunshower.runtime.plan import Plan, Task
from sunshower.runtime.profiles import frame_of
from sunshower.runtime.tracking.ids import NO_IDS, U64
from sunshower.secret import without_secrets
from sunshower.texts import describe, did_you_mean, message_of
from sunshower.topologies.components import Context, ask_nothing, tell_nobody

if TYPE_CHECKING:
    from sunshower.runtime.events.instrument import Instrument
    from sunshower.runtime.tasks.flight_recorder import Recorder

_PACKAGE = f"{Path(__file__).resolve().parents[2]}/"
_LIBRARIES = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib")})
_RECORD_BYTES = 200  # of a record in an error
_FIELDS_MAX = 3  # more are not named
_FRAMES_MAX = 3  # of the user in a traceback: about ten lines
_TITLE = "Traceback (most recent call last):\n"
# Python's own errors of a wrong value or name. An outage of a dependency has its library's types.
_OF_CODE = (ArithmeticError, AttributeError, LookupError, NameError, TypeError, ValueError)


def about(error: BaseException, record: Any, step: str) -> str:
    """The step, the record and the fields that an exception of user code is about, as in
    "step `add`, field `amount` of Sale(item='a', amount=5)". `record`: what the component has got;
    `step`: its name, unless a function of the user is known. Empty if neither is known."""
    frames = [*_user_frames(error)]
    if type(record).__module__.startswith("sunshower.trident."):  # of batches, not of a user
        record = None
    if frames:
        code = frames[0][0].f_code
        step = code.co_qualname.rpartition("<locals>.")[2]
        if step == "<lambda>":
            step = f"lambda in line {code.co_firstlineno}"
        given = _argument(frames[0][0])
        if given is not None and _fields_of(given):
            record = given
    if record is None:
        return f"step `{step}`" if frames else ""
    fields = _fields_of(record)
    named = next(filter(None, (_fields_at(*frame, record) for frame in reversed(frames))), ())
    hint = _hint(error, fields)
    shown = describe(record, _RECORD_BYTES)
    if not named or len(named) > _FIELDS_MAX:
        return f"step `{step}`, record {shown}{hint}"
    words = ", ".join(f"`{name}`" for name in named)
    return f"step `{step}`, field{'s' if len(named) > 1 else ''} {words} of {shown}{hint}"


def is_of_code(error: BaseException) -> bool:
    """Whether the code of the user, or the value that it got, is wrong: an operation in it has
    failed, and no library and no `raise` has raised the error."""
    if type(error).__module__ != builtins.__name__ or not isinstance(error, _OF_CODE):
        return False
    trace = error.__traceback__
    if trace is None:
        return False
    while trace.tb_next is not None:
        trace = trace.tb_next
    return _is_of_user(trace.tb_frame) and not _raises(trace.tb_frame.f_code, trace.tb_lasti)


def shown_traceback(formatted: traceback.TracebackException) -> str:
    """A traceback without the frames of Sunshower, of about 15 lines: of those of libraries that
    the user has called, the last ones. That of an error with a cause, of a group of errors, or
    without a frame of the user, is complete."""
    frames = [
        frame
        for frame in formatted.stack
        if not frame.filename.startswith((_PACKAGE, "<stage ", "<frozen "))
    ]
    users = [at for at, frame in enumerate(frames) if not frame.filename.startswith(_LIBRARIES)]
    if formatted.__cause__ is not None or formatted.exceptions or not users:
        return "".join(formatted.format())
    own = [frames[at] for at in users]
    last, deeper = traceback.StackSummary.from_list, frames[users[-1] + 1 :]
    shown = [_TITLE, *last(own[-_FRAMES_MAX:]).format()]
    if deeper:
        shown += [
            f"  … {len(deeper)} calls in libraries, the last one:\n",
            *last(deeper[-1:]).format(),
        ]
    return "".join([*shown, *formatted.format_exception_only()])


# ---- frames -------------------------------------------------------------------------------------


def _user_frames(error: BaseException) -> Iterator[tuple[FrameType, int]]:
    """The frames of the user's code, and the instruction of each that was executed, from the
    outermost on."""
    trace: TracebackType | None = error.__traceback__
    while trace is not None:
        if _is_of_user(trace.tb_frame):
            yield trace.tb_frame, trace.tb_lasti
        trace = trace.tb_next


def _is_of_user(frame: FrameType) -> bool:
    file = frame.f_code.co_filename
    return not file.startswith(("<stage ", "<frozen ", _PACKAGE, *_LIBRARIES))


def _argument(frame: FrameType) -> Any:
    """What a function, or a method, has got as its first argument."""
    code = frame.f_code
    names = code.co_varnames[: code.co_argcount]
    first = names[1:2] if names[:1] == ("self",) else names[:1]
    return frame.f_locals.get(first[0]) if first else None


def _raises(code: CodeType, at: int) -> bool:
    """Whether an instruction is a `raise` or an `assert`."""
    return dis.opname[code.co_code[at]] in ("RAISE_VARARGS", "RERAISE")


# ---- fields -------------------------------------------------------------------------------------


def _fields_of(record: Any) -> tuple[str, ...]:
    """The fields of a record; of a dictionary, its keys that are texts."""
    if type(record) is dict:
        return tuple(name for name in record if type(name) is str)
    described = record_type_of(type(record))
    return () if described is None else described.fields


def _fields_at(frame: FrameType, at: int, record: Any) -> tuple[str, ...]:
    """The fields of a record that an instruction reads."""
    with suppress(Exception):  # of a descriptor of the user, or source that has changed
        names = [
            field
            for variable, field in _reads_at(frame.f_code, at)
            if frame.f_locals.get(variable) is record
        ]
        known = _fields_of(record)
        return tuple(name for name in dict.fromkeys(names) if name in known)
    return ()


@lru_cache(1024)
def _reads_at(code: CodeType, at: int) -> Sequence[tuple[str, str]]:
    """Variable and name of each `variable.name` and `variable["name"]` in the source of an
    instruction."""
    line, end_line, column, end_column = [*code.co_positions()][at // 2]
    if line is None or end_line is None or column is None or end_column is None:
        return ()
    lines = [linecache.getline(code.co_filename, number) for number in range(line, end_line + 1)]
    lines[-1] = lines[-1].encode()[:end_column].decode()
    lines[0] = lines[0].encode()[column:].decode()
    source = "".join(lines).strip()
    tree: ast.AST | None = None
    for text in (f"({source})", source):  # an expression of several lines, or a statement
        with suppress(SyntaxError):
            tree = tree or ast.parse(text)
    reads = []
    for node in () if tree is None else ast.walk(tree):
        match node:
            case ast.Attribute(ast.Name(variable), name):
                reads.append((variable, name))
            case ast.Subscript(ast.Name(variable), ast.Constant(str(name))):
                reads.append((variable, name))
    return reads


def _hint(error: BaseException, fields: Sequence[str]) -> str:
    """The field that the user may have meant."""
    with suppress(Exception):  # of an exception of the user, with attributes of its own
        if isinstance(error, AttributeError):
            return did_you_mean(error.name, _fields_of(error.obj))
        if isinstance(error, KeyError) and error.args:
            return did_you_mean(error.args[0], fields)
    return ""


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
