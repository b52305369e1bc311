"""Reads the input, output and ticks of user code from annotations and base classes."""

from __future__ import annotations

import inspect
import sys
from collections.abc import AsyncIterable, Awaitable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from types import NoneType, UnionType
from typing import (
    Any,
    Never,
    NoReturn,
    Protocol,
    Self,
    TypeAlias,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from sunshower.arguments import SECONDS
from sunshower.errors import RecordMismatch, TopologyError
from sunshower.record_types import is_record, record_type_of, resolved
from sunshower.records import ConnectedSchema, Schema
from sunshower.topologies.async_functions import limits_of
from sunshower.topologies.components import (
    BatchBolt,
    Bolt,
    In,
    In_contra,
    OnStream,
    Out,
    Out_co,
    Spout,
)
from sunshower.topologies.graph import Level
from sunshower.topologies.logs import LogSpout

# What a function of one record may return: an iterable of records, asynchronously or not, or None.
Many: TypeAlias = Iterable[Out] | AsyncIterable[Out] | Awaitable[Iterable[Out] | None] | None


class Function(Protocol[In_contra, Out_co]):
    """A bolt as a function, which may be asynchronous: it yields records, or returns a list,
    anchored to `record`."""

    def __call__(self, record: In_contra, /) -> Many[Out_co | OnStream]: ...


BoltCode: TypeAlias = (
    Function[In, Out]
    | Bolt[In, Out]
    | type[Bolt[In, Out]]
    | BatchBolt[In, Out]
    | type[BatchBolt[In, Out]]
)


@dataclass(frozen=True)
class Signature:
    """How code is called, and the types of its records: Any where the code does not declare them.

    `emits` is about the default stream; NoneType: nothing is emitted there.
    """

    level: Level
    reads: Any
    emits: Any


def spout_signature(code: Any, where: str) -> Signature:
    """Return the signature of a Spout class or instance. Raises TopologyError."""
    kind = _class_of(code)
    if not issubclass(kind, Spout):
        raise TopologyError(
            f"{where}: {name_of(code)} is not a spout; give a Spout class or instance, "
            "or put an iterable or a function that returns one into Records(...)"
        )
    levels = {
        "records": Level.RECORDS,
        "tables": Level.TABLES,
        "next_tuple": Level.NEXT_TUPLE,
    }
    if issubclass(kind, LogSpout):
        level = _level(code, LogSpout, {**levels, "poll": Level.LOG}, where)
    else:
        level = _level(code, Spout, levels, where)
    if level not in (Level.NEXT_TUPLE, Level.LOG) and not code.replay:
        raise TopologyError(
            f"{where}: {kind.__name__} has replay = False, which is for next_tuple; its failed "
            "records are kept and replayed for it: drop replay, or write next_tuple"
        )
    (emits,) = type_arguments(kind, Spout)
    return Signature(level, NoneType, record_type(emits, where))


def bolt_signature(code: Any, where: str) -> Signature:
    """Return the signature of a function, or a Bolt or BatchBolt class or instance.

    Raises TopologyError for anything else, RecordMismatch for contradictory annotations.
    """
    kind = _class_of(code)
    by_base: dict[type[Any], dict[str, Level]] = {
        Bolt: {"process": Level.PROCESS, "execute": Level.EXECUTE},
        BatchBolt: {"process": Level.BATCH},
    }
    for base, levels in by_base.items():
        if issubclass(kind, base):
            reads, emits = type_arguments(kind, base)
            return Signature(_level(code, base, levels, where), reads, record_type(emits, where))
    if isinstance(code, type | Spout) or not callable(code):
        raise TopologyError(
            f"{where}: {name_of(code)} is not a bolt; give a function of one record, "
            "or a Bolt or BatchBolt class or instance"
        )
    return _function_signature(code, where)


def is_generator(function: Any) -> bool:
    """Whether a call returns a generator, which has done nothing yet, and is true."""
    return any(map(inspect.isgeneratorfunction, (function, type(function).__call__)))


def fits(annotation: Any, schema: Schema) -> bool:
    """Whether records of `schema` match `annotation`."""
    if isinstance(schema, ConnectedSchema):
        return all(fits(annotation, schema_of_one) for schema_of_one in schema.each)
    options = options_of(annotation)
    if len(options) > 1:
        return any(fits(option, schema) for option in options)
    if get_origin(annotation) is tuple:
        width = get_args(annotation)
        return schema.is_tuple and (... in width or len(width) == len(schema.fields))
    is_class = isinstance(annotation, type) and annotation is not Any
    if not is_class or getattr(annotation, "_is_protocol", False):
        return True  # Any, a type variable, a protocol: only type checkers check these
    return schema.type is annotation or (
        not is_typeddict(annotation) and issubclass(schema.type, annotation)
    )


def type_arguments(cls: type[Any], base: type[Any]) -> tuple[Any, ...]:
    """Return the type arguments of `cls` for its ancestor `base`; Any where it gives none."""
    return tuple(Any if isinstance(arg, TypeVar) else arg for arg in _arguments(cls, base))


def record_type(annotation: Any, where: str) -> Any:
    """Return the one record type that is emitted, OnStream aside; NoneType if there is none.

    Raises RecordMismatch if there are several.
    """
    silent = (OnStream, NoneType, None, Never, NoReturn)
    types = [option for option in options_of(annotation) if option not in silent]
    if len(types) > 1:
        names = ", ".join(map(name_of, types))
        raise RecordMismatch(
            f"{where}: its default stream has {len(types)} record types ({names}); a stream has "
            'one: send the others to streams of their own, as OnStream("errors", record)'
        )
    return types[0] if types else NoneType


def name_of(thing: Any) -> str:
    """Return the name of a type, function or object: `Word`, `tuple[str, int]`, `nothing`."""
    if thing is NoneType or get_origin(thing):
        return "nothing" if thing is NoneType else str(thing)
    return str(getattr(thing, "__name__", repr(thing)))


def tick_of(code: Any, tick_s: Any, where: str) -> float | None:
    """Return the seconds between ticks: as declared, else of the class, or None. Raises
    TopologyError for a tick without a time, and a time without a tick."""
    kind = code if isinstance(code, type) else type(code)
    base = next((base for base in (Spout, Bolt, BatchBolt) if issubclass(kind, base)), None)
    ticks = base is not None and getattr(kind, "tick") is not getattr(base, "tick")  # noqa: B009
    if tick_s is None and ticks:
        tick_s = code.tick_s
    if tick_s is None:
        if ticks:
            raise TopologyError(
                f"{where}: {kind.__name__} has a tick, but nothing says how often: give tick_s=…, "
                "in seconds (fractions are fine)"
            )
        return None
    if base is None:
        raise TopologyError(
            f"{where}: tick_s is for components that have a tick, and a function has none; write a "
            "Bolt with process(record) and tick()"
        )
    if not ticks:
        raise TopologyError(f"{where}: tick_s is given, but {kind.__name__} has no tick; write one")
    SECONDS.check(f"{where}: tick_s", tick_s, TopologyError)
    return float(tick_s)


def _function_signature(function: Any, where: str) -> Signature:
    name = name_of(function)
    is_batch = getattr(function, "__sunshower_batch__", False)
    if is_batch and limits_of(function):
        raise TopologyError(f"{where}: {name} is asynchronous; a @batch function is a plain one")
    try:
        inspect.signature(function).bind(object())
    except (TypeError, ValueError):
        raise TopologyError(
            f"{where}: {name} must take exactly one record, as in "
            f"`def {name}(record: Word) -> Iterator[Total]`"
        ) from None
    if is_batch:  # its annotations are about tables
        returns = function.__annotations__.get("return", Any)
        return Signature(Level.BATCH, Any, NoneType if returns in (None, "None") else Any)
    (reads, *_), returns = annotations_of(function, where)
    return Signature(Level.FUNCTION, reads, record_type(element_of(returns, name, where), where))


def annotations_of(function: Any, where: str) -> tuple[tuple[Any, ...], Any]:
    """Return the types of a function's parameters, in order, and of its result; Any by default.

    Raises TopologyError for annotations that cannot be read.
    """
    try:
        hints = _hints(function)
    except (NameError, AttributeError, SyntaxError) as error:
        raise TopologyError(
            f"{where}: the annotations of {name_of(function)} cannot be read ({error}); import or "
            "define its record types at the top of its module, not for type checkers alone"
        ) from None
    names = inspect.signature(function).parameters
    return tuple(hints.get(name, Any) for name in names), hints.get("return", Any)


def element_of(returns: Any, name: str, where: str) -> Any:
    """Return the type of the records in a function's result: Word in `list[Word] | None`.

    Raises RecordMismatch for a type that holds no records, or several types of them.
    """
    options = [option for option in options_of(returns) if option is not NoneType]
    if not options or options == [Any]:
        return options[0] if options else NoneType
    origin, args = get_origin(options[0]) or options[0], get_args(options[0])
    iterable = isinstance(origin, type) and issubclass(origin, Iterable | AsyncIterable)
    if len(options) > 1 or not iterable or origin is str or issubclass(origin, tuple):
        raise RecordMismatch(
            f"{where}: {name} returns {name_of(returns)}; it must yield its records, or return a "
            "list of them: -> Iterator[Word], -> list[Word], or -> None for a sink"
        )
    return args[0] if args else Any


def result_record(function: Any, where: str) -> type[Any] | None:
    """Return the record type that the annotation of a function's result names: Word in `-> Word`,
    `-> list[Word] | None` and `-> Iterator[Word]`; None if it names none, or several.

    Raises TopologyError for annotations that cannot be read.
    """
    if isinstance(function, type):
        return function if record_type_of(function) else None
    try:
        _, returns = annotations_of(function, where)
    except (TypeError, ValueError):  # a function of C
        return None
    records = {*_records_in(returns)}
    return records.pop() if len(records) == 1 else None


def _records_in(annotation: Any) -> Iterator[type[Any]]:
    for option in options_of(annotation):
        origin, args = get_origin(option), get_args(option)
        if record_type_of(option) or is_record(origin):
            yield option
        elif isinstance(origin, type) and issubclass(origin, Iterable) and origin is not tuple:
            yield from _records_in(args[0])


def _level(code: Any, base: type[Any], levels: Mapping[str, Level], where: str) -> Level:
    kind = _class_of(code)
    written = [method for method in levels if getattr(kind, method) is not getattr(base, method)]
    if len(written) != 1:
        has = " and ".join(written) or "nothing to run"
        *others, last = levels
        choice = f"{', '.join(others)} or {last}" if others else last
        raise TopologyError(
            f"{where}: {kind.__name__} has {has}; write {choice}"
            + (", not both" if written else "")
        )
    function = getattr(kind, written[0])
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        raise TopologyError(
            f"{where}: {kind.__name__}.{written[0]} is asynchronous; give an `async def` function, "
            "or an object with `async def __call__(self, record)`"
        )
    takes_out = written[0] in ("execute", "next_tuple")
    if takes_out and inspect.isgeneratorfunction(function):
        raise TopologyError(
            f"{where}: {kind.__name__}.{written[0]} is a generator, which would never run; emit "
            "with out.emit(...)"
        )
    if kind is code:
        try:
            inspect.signature(kind).bind()
        except TypeError:
            raise TopologyError(
                f"{where}: {kind.__name__} cannot be made without arguments; "
                f"give an instance: {kind.__name__}(...)"
            ) from None
    return levels[written[0]]


def _hints(function: Any) -> dict[str, Any]:
    while isinstance(function, partial):
        function = function.func
    routine = function if inspect.isroutine(function) else type(function).__call__
    given = {Self: _owner_of(routine)}
    return {name: resolved(hint, given) for name, hint in get_type_hints(routine).items()}


def _owner_of(routine: Any) -> Any:
    """The class of a method; Self if it is not known."""
    owner = getattr(routine, "__self__", None)
    if owner is not None and not inspect.ismodule(owner):
        return owner if isinstance(owner, type) else type(owner)
    owner = sys.modules.get(getattr(routine, "__module__", None) or "")  # of C: None, or without
    for name in getattr(routine, "__qualname__", "").split(".")[:-1]:
        owner = getattr(owner, name, None)
    return owner if isinstance(owner, type) else Self


def options_of(annotation: Any) -> tuple[Any, ...]:
    """The members of a union, or the annotation alone."""
    return get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)


def _arguments(cls: Any, base: Any) -> tuple[Any, ...]:
    """Return the type arguments of `cls` for `base`, in terms of its own type variables."""
    if cls is base:
        return tuple(base.__parameters__)
    parents = cls.__dict__.get("__orig_bases__", cls.__bases__)
    parent = next(p for p in parents if issubclass(get_origin(p) or p, base))
    origin = get_origin(parent) or parent
    of_parameter = dict(zip(getattr(origin, "__parameters__", ()), get_args(parent), strict=False))
    return tuple(of_parameter.get(arg, arg) for arg in _arguments(origin, base))


def _class_of(code: Any) -> type[Any]:
    return code if isinstance(code, type) else type(code)
