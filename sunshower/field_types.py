"""Reads the classes in annotations of record types, and refuses types that cannot be sent."""

from __future__ import annotations

import dataclasses
import inspect
import sys
from collections import abc
from enum import Enum
from types import BuiltinFunctionType, NoneType, SimpleNamespace, UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    NewType,
    TypeVar,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from sunshower.errors import RecordMismatch, type_name
from sunshower.scalars import SCALARS

_PLAIN = (str, bytes, bytearray, memoryview, int, float, list, dict, tuple, set, frozenset)
# Subclasses of these do not travel.
_SINGLE: tuple[Any, ...] = (NoneType, object, Any, UnionType, Annotated, *SCALARS)
_CODE: tuple[Any, ...] = (abc.Callable, abc.Iterator, abc.Generator, abc.Awaitable, type)
_ALL = (
    "str, bytes, int, float, bool, None, Decimal, datetime, date, time, timedelta, UUID, Enums, "
    "NamedTuples, dataclasses, and list, tuple, dict, set and frozenset of these"
)


def is_record(kind: Any) -> bool:
    """Whether it is a NamedTuple class or a dataclass."""
    is_named = isinstance(kind, type) and issubclass(kind, tuple) and hasattr(kind, "_fields")
    return is_named or (isinstance(kind, type) and dataclasses.is_dataclass(kind))


def record_fields(record_type: Any) -> tuple[str, ...]:
    """The fields of a NamedTuple class or a dataclass.

    Raises RecordMismatch for others, for a NamedTuple without fields, and for a dataclass that has
    content besides its fields: a subclass of list, dict, Exception or another class that is not
    written in Python.
    """
    fields = getattr(record_type, "_fields", None)
    if isinstance(record_type, type) and issubclass(record_type, tuple) and fields is not None:
        return with_fields(record_type, tuple(fields))
    if isinstance(record_type, type) and dataclasses.is_dataclass(record_type):
        for base in record_type.__mro__[:-1]:
            if isinstance(vars(base).get("__new__"), BuiltinFunctionType):
                raise RecordMismatch(
                    f"{record_type.__name__} is a {base.__name__}, whose content is not in the "
                    "fields of the dataclass, so it cannot be rebuilt from them: make the content "
                    f"a field, and do not derive from {base.__name__}"
                )
        return tuple(field.name for field in dataclasses.fields(record_type))
    raise RecordMismatch(
        f"{record_type!r} is not a record type: use a NamedTuple, a dataclass, or plain "
        'tuples with declared fields, as in fields=("word", "count")'
    )


def with_fields(record_type: type[Any], fields: tuple[str, ...]) -> tuple[str, ...]:
    """The fields. Raises RecordMismatch if there are none."""
    if not fields:
        raise RecordMismatch(
            f"{record_type.__name__} has no fields, so its records would have no values: declare "
            "one, as in `number: int`. A ClassVar, an InitVar or a name without an annotation "
            "is not a field"
        )
    return fields


def constructor_fields(record_type: type[Any]) -> dict[str, tuple[Any, bool]]:
    """What the constructor of a record type takes, in the order of the fields, InitVars included:
    name → its annotation, and whether it has a default."""
    try:
        parameters = dict(inspect.signature(record_type).parameters)
    except (TypeError, ValueError):
        return dict.fromkeys(record_fields(record_type), (Any, False))
    hints = hints_of(record_type)
    declared = getattr(record_type, "__dataclass_fields__", record_fields(record_type))
    names = [name for name in declared if name in parameters]
    names += [name for name in parameters if name not in names]
    several = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    parameters_of: dict[str, tuple[Any, bool]] = {}
    for name in names:
        hint, parameter = hints.get(name, Any), parameters[name]
        if parameter.kind not in several:
            hint = hint.type if isinstance(hint, dataclasses.InitVar) else hint
            parameters_of[name] = hint, parameter.default is not parameter.empty
    return parameters_of


def check_made(record_type: Any) -> None:
    """Raise RecordMismatch for a record type whose records cannot be made of the values of all
    their fields: its constructor takes others."""
    names = {} if record_type is tuple else constructor_fields(record_type)
    if record_type is not tuple and names.keys() != {*record_fields(record_type)}:
        raise RecordMismatch(
            f"records of {record_type.__name__} are made here, and its constructor must take "
            f"its fields and nothing else: {', '.join(record_fields(record_type))}. Leave out "
            "InitVar and field(init=False), or give field names, and make the records with .map"
        )


def hints_of(record_type: type[Any]) -> dict[str, Any]:
    """Field → annotation, with `Annotated`; Any for an annotation that cannot be read here."""
    try:
        return get_type_hints(record_type, include_extras=True)
    except Exception:  # an annotation is any expression
        hints: dict[str, Any] = {}
        for base in reversed(record_type.__mro__):
            names = vars(sys.modules.get(base.__module__, object))
            for name, written in inspect.get_annotations(base).items():
                holder = SimpleNamespace(__annotations__={name: written})
                try:
                    hints |= get_type_hints(holder, dict(names), include_extras=True)
                except Exception:
                    hints[name] = Any
        return hints


def classes_in(annotation: Any, path: str) -> tuple[type[Any], ...]:
    """The Enums and record types that `annotation` names, at any depth. Raises RecordMismatch,
    naming `path`, for a type whose values cannot travel to another process."""
    classes: dict[type[Any], bool] = {}
    _collect(annotation, path, classes)
    return tuple(kind for kind, is_declared in classes.items() if is_declared)


def _collect(annotation: Any, path: str, classes: dict[type[Any], bool]) -> None:
    """Add the classes in `annotation` to `found`; False: a TypedDict, which is a dict."""
    origin, args = get_origin(annotation), get_args(annotation)
    if isinstance(annotation, NewType):
        args = (annotation.__supertype__,)
    elif origin is Literal:
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
        for base in getattr(kind, "__orig_bases__", ()):  # class Prices(Box[Price])
            for inner in get_args(base):
                _collect(inner, path, classes)
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


def _may_travel(kind: type[Any]) -> bool:
    """Whether values of a class, or of some subclass of an abstract one, arrive equal."""
    is_scalar_of_numpy = kind.__module__ == "numpy" and hasattr(kind, "dtype")
    is_array = hasattr(kind, "__array_finalize__")
    return (
        issubclass(kind, _PLAIN)
        or (is_scalar_of_numpy and not is_array)
        or inspect.isabstract(kind)
        or kind.__module__ == "numbers"
        or bool(getattr(kind, "_is_protocol", False))
    )
