"""Says of an exception which step, record and field it is about, and whose code has raised it."""

from __future__ import annotations

import ast
import builtins
import dis
import linecache
import sysconfig
import traceback
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from types import CodeType, FrameType, TracebackType
from typing import Any

from sunshower.record_types import record_type_of
from sunshower.texts import describe, did_you_mean

_PACKAGE = f"{Path(__file__).resolve().parents[2]}/"
_LIBRARIES = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib")})
# Modules whose records are of batches and watermarks, not of a user.
_OWN = "sunshower.trident.", "sunshower.topologies.operators.windows."
_RECORD_BYTES = 200  # of a record in an error
_FIELDS_MAX = 3  # more are not named
_FRAMES_MAX = 3  # of the user in a traceback
JOINTS = ("and, raised from it:", "and, while it was handled:")  # between two errors
_TITLE = "Traceback (most recent call last):\n"
# Python's own errors of a wrong value or name. An outage of a dependency has its library's types.
_OF_CODE = (ArithmeticError, AttributeError, LookupError, NameError, TypeError, ValueError)


def about(error: BaseException, record: Any, step: str) -> str:
    """The step, the record and the fields that an exception of user code is about, as in
    "step `add`, field `amount` of Sale(item='a', amount=5)". `record`: what the component has got;
    `step`: its name, unless a function of the user is known. Empty if neither is known."""
    frames = [*_user_frames(error)]
    if type(record).__module__.startswith(_OWN):
        record = None
    if frames:
        code = frames[0][0].f_code
        step = code.co_qualname.rpartition("<locals>.")[2]
        if step == "<lambda>":
            step = f"lambda in line {code.co_firstlineno}"
        argument = _argument(frames[0][0])
        if argument is not None and _fields_of(argument):
            record = argument
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
    """A traceback without the frames of Sunshower, of at most eleven lines and the message: of the
    frames of libraries that the user has called, the last one. With the first of the errors that
    have led to it. That of a group of errors, or without a frame of the user, is complete."""
    if formatted.exceptions or not _users(_frames(formatted)):
        return "".join(formatted.format())
    first, error, is_cause = formatted, formatted, False
    while (earlier := _before(first)) is not None and _users(_frames(earlier)):
        first, is_cause = earlier, first.__cause__ is not None
    if first is error:
        return "".join(_lines(error, _FRAMES_MAX))
    joint = JOINTS[not is_cause]
    return "".join([*_lines(first, 1), f"{joint}\n", *[*_lines(error, 1)][1:]])


def place_in(stack: Sequence[traceback.FrameSummary]) -> str:
    """Where a call is: the last line of the user, and, if that has called a library, its line."""
    if not stack:
        return "an unknown place"
    users = [f for f in stack if not f.filename.startswith((_PACKAGE, "<", *_LIBRARIES))]
    frame, inner = (users or stack)[-1], stack[-1]
    place = f"{frame.filename}:{frame.lineno} in {frame.name}: {frame.line}"
    if inner is frame:
        return place
    return f"{place} (is in {inner.filename}:{inner.lineno}, {inner.name})"


def _before(error: traceback.TracebackException) -> traceback.TracebackException | None:
    """What an error was raised from, or while handling."""
    return error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def _frames(error: traceback.TracebackException) -> list[traceback.FrameSummary]:
    return [
        frame
        for frame in error.stack
        if not frame.filename.startswith((_PACKAGE, "<stage ", "<frozen "))
    ]


def _users(frames: Sequence[traceback.FrameSummary]) -> list[int]:
    """The indexes of the frames of the user."""
    return [at for at, frame in enumerate(frames) if not frame.filename.startswith(_LIBRARIES)]


def _lines(error: traceback.TracebackException, lines_max: int) -> Iterator[str]:
    """The lines of one error, with the last frames of the user."""
    frames = _frames(error)
    users = _users(frames)
    deeper = frames[users[-1] + 1 :]
    shown = users[-(lines_max - 1 if deeper and lines_max > 1 else lines_max) :]
    yield _TITLE
    yield from _plain(frames[at] for at in shown)
    if deeper:
        yield f"  … {len(deeper)} calls in libraries, the last one:\n"
        yield from _plain(deeper[-1:])
    yield from error.format_exception_only()


def _plain(frames: Iterable[traceback.FrameSummary]) -> Iterator[str]:
    """Two lines for each frame, without the marks below them."""
    places = [(f.filename, f.lineno or 0, f.name, f.line) for f in frames]
    yield from traceback.StackSummary.from_list(places).format()


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
