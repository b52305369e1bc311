"""Reads the classes in annotations of record types, and refuses types that cannot be sent."""

from __future__ import annotations

import inspect
from collections import abc
from datetime import date, datetime
from enum import Enum
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    TypeVar,
    get_args,
    get_origin,
    is_typeddict,
)

from sunshower.errors import RecordMismatch, type_name
from sunshower.record_types import hints_of, is_record, record_type_of, resolved
from sunshower.scalars import SCALARS

_PLAIN = (str, bytes, bytearray, memoryview, int, float, list, dict, tuple, set, frozenset)
# Subclasses of these do not travel.
_SINGLE: tuple[Any, ...] = (NoneType, object, Any, UnionType, Annotated, *SCALARS)
_CODE: tuple[Any, ...] = (abc.Callable, abc.Iterator, abc.Generator, abc.Awaitable, type)
_OF_PYDANTIC: dict[str, type[Any]] = {
    "EmailStr": str,
    **dict.fromkeys(("PastDate", "FutureDate"), date),
    **dict.fromkeys(("AwareDatetime", "NaiveDatetime", "PastDatetime", "FutureDatetime"), datetime),
}
_LIST = (
    "a NamedTuple, a dataclass, a TypedDict, an attrs class, a Struct of msgspec, a model of "
    'pydantic, or plain tuples with declared fields, as in fields=("word", "count")'
)
_ALL = (
    "str, bytes, int, float, bool, None, Decimal, datetime, date, time, timedelta, UUID, Enums, "
    "record types such as NamedTuples and dataclasses, and list, tuple, dict, set and frozenset of "
    "these"
)


def record_fields(record_type: Any) -> tuple[str, ...]:
    """The fields of a record type.

    Raises RecordMismatch for other classes, for a NamedTuple without fields, and for a class whose
    records cannot be rebuilt from their fields: a subclass of list, dict, Exception or another
    class that is not written in Python; a model with extra values or private attributes; a
    TypedDict with keys that need not be there; a Struct that is an array in messages.
    """
    described = record_type_of(record_type)
    if described is None:
        if is_record(origin := get_origin(record_type)):
            raise RecordMismatch(
                f"{record_type!r} is no class: use {origin.__name__}, or derive a class from it"
            )
        raise RecordMismatch(f"{record_type!r} is not a record type: use {_LIST}")
    if why := described.problem():
        raise RecordMismatch(why)
    return with_fields(record_type, described.fields) if described.is_tuple else described.fields


def with_fields(record_type: type[Any], fields: tuple[str, ...]) -> tuple[str, ...]:
    """The fields. Raises RecordMismatch if there are none."""
    if not fields:
        raise RecordMismatch(
            f"{record_type.__name__} has no fields, so its records would have no values: declare "
            "one, as in `number: int`. A ClassVar, an InitVar or a name without an annotation "
            "is not a field"
        )
    return fields


def check_made(record_type: Any) -> None:
    """Raise RecordMismatch for a record type whose records cannot be made of the values of all
    their fields: its constructor takes others."""
    described = record_type_of(record_type)
    if described is None:  # plain tuples
        return
    expected = {described.parameters.get(name, name) for name in described.fields}
    if described.constructor().keys() != expected:
        raise RecordMismatch(
            f"records of {record_type.__name__} are made here, and its constructor must take "
            f"its fields and nothing else: {', '.join(described.fields)}. Leave out "
            "InitVar and field(init=False), or give field names, and make the records with .map"
        )


def classes_in(annotation: Any, path: str) -> tuple[type[Any], ...]:
    """The Enums and record types that `annotation` names, at any depth. Raises RecordMismatch,
    naming `path`, for a type whose values cannot travel to another process."""
    classes: dict[type[Any], bool] = {}
    _collect(resolved(annotation, {}), path, classes)
    return tuple(kind for kind, is_declared in classes.items() if is_declared)


def _collect(annotation: Any, path: str, classes: dict[type[Any], bool]) -> None:
    """Add the classes in `annotation` to `classes`; False: a TypedDict, which is a dict."""
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        args = tuple(map(type, args))
    elif origin is Annotated:
        args = args[:1]
    elif isinstance(annotation, TypeVar):
        args = (annotation.__bound__ or Any, *annotation.__constraints__)
    for inner in args if origin not in _CODE else ():
        _collect(inner, path, classes)
    kind = annotation if origin is None else origin
    if is_typeddict(kind) and kind not in classes:
        classes[kind] = False
        for name, inner in hints_of(kind).items():
            _collect(inner, f"{path}[{name!r}]", classes)
    elif isinstance(kind, type):
        _collect_class(kind, path, classes)
    elif inspect.isroutine(kind):  # such as threading.Lock
        raise RecordMismatch(_refusal(kind, path))


def _collect_class(kind: type[Any], path: str, classes: dict[type[Any], bool]) -> None:
    if kind in classes or kind in _SINGLE:
        return
    if issubclass(kind, Enum):
        classes[kind] = True
    elif is_record(kind):
        try:
            names = record_fields(kind)
        except RecordMismatch as error:
            raise RecordMismatch(f"{path}: {error}") from None
        classes[kind] = True
        hints = hints_of(kind)
        for name in names:
            _collect(hints.get(name, Any), f"{path}.{name}", classes)
    elif kind in _CODE or not _may_travel(kind):
        raise RecordMismatch(_refusal(kind, path))


def _refusal(kind: Any, path: str) -> str:
    return (
        f"{path} is a {type_name(kind)}, which cannot travel to another "
        f"process. It may be: {_ALL}. Keep the values of these that it is made of, or its bytes"
    )


def stands_for(kind: Any) -> Any:
    """The class of the values of an annotation of pydantic, such as str for EmailStr; others as
    they are."""
    is_of_pydantic = getattr(kind, "__module__", "").partition(".")[0] == "pydantic"
    return _OF_PYDANTIC.get(getattr(kind, "__name__", ""), kind) if is_of_pydantic else kind


def _may_travel(kind: type[Any]) -> bool:
    """Whether values of a class, or of some subclass of an abstract one, arrive equal."""
    kind = stands_for(kind)
    is_scalar_of_numpy = kind.__module__ == "numpy" and hasattr(kind, "dtype")
    is_array = hasattr(kind, "__array_finalize__")
    return (
        issubclass(kind, _PLAIN)
        or kind in SCALARS
        or (is_scalar_of_numpy and not is_array)
        or inspect.isabstract(kind)
        or kind.__module__ == "numbers"
        or bool(getattr(kind, "_is_protocol", False))
    )
