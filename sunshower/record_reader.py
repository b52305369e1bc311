"""Makes records from decoded JSON, MessagePack and Avro, with values of their fields' types.

The inverse of `sunshower.scalars.for_json`.
"""

from __future__ import annotations

import json
from collections import Counter, abc
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from enum import Enum, Flag
from functools import partial
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    NewType,
    NotRequired,
    Required,
    Union,
    get_args,
    get_origin,
    is_typeddict,
)

from sunshower.field_types import constructor_fields, hints_of, is_record, record_fields
from sunshower.records import member_of, record_class
from sunshower.scalars import SCALARS, for_json, read_scalar
from sunshower.texts import describe, message_of

Convert = Callable[[Any], Any]

_WRAPPERS: tuple[Any, ...] = (Annotated, Required, NotRequired)
_KEYS = (int, float, bool, NoneType)  # JSON has texts instead
_SHOWN_BYTES = 128  # of a value in an error
_as_json = json.JSONEncoder(default=for_json).encode


def record_reader(kind: type[Any]) -> Convert:
    """A function that makes a record of a decoded object, by field name, or array, by position.

    It calls the constructor, with the fields and InitVars that this takes.

    It raises ValueError, naming record, field, value and type, for a value that is not of the
    field's type. Values of plain types (`str`, `int`, `float`, `bool`, `bytes`) are not checked.
    Of a union, the first member counts that the value fits. Raises RecordMismatch for a class that
    is no record type.
    """
    return _Converters(restores=False).record(kind)


def field_readers(kind: type[Any]) -> Mapping[str, Convert]:
    """Functions that restore the values of a record that existed before, each by its field; fields
    whose values stay as they are have none. They raise as `record_reader` says."""
    hints = hints_of(kind)
    return _Converters(restores=True).fields(
        {name: hints.get(name, Any) for name in record_fields(kind)}
    )


class _Converters:
    """Functions that convert a decoded value to an annotation."""

    def __init__(self, *, restores: bool) -> None:
        self._restores = restores
        self._records: dict[type[Any], Convert] = {}  # a record may contain its own type

    def of(self, annotation: Any) -> Convert | None:
        """The function for an annotation; None: values stay as they are."""
        origin, args = get_origin(annotation), get_args(annotation)
        kind = annotation if origin is None else origin
        if isinstance(kind, NewType):
            return self.of(kind.__supertype__)
        if kind in _WRAPPERS:
            return self.of(args[0])
        if kind in (Union, UnionType):
            return self._union(args)
        if kind is Literal:
            return self._union(tuple(dict.fromkeys(map(type, args))))
        if is_typeddict(kind):
            return self._typed_dict(kind)
        return self._class(kind, args) if isinstance(kind, type) else None

    def _class(self, kind: type[Any], args: tuple[Any, ...]) -> Convert | None:
        if kind in SCALARS:
            return partial(_scalar, kind)
        if issubclass(kind, Enum):
            return _enum(kind, self._restores) if kind.__members__ else None
        if is_record(kind):
            return self.record(kind)
        if issubclass(kind, abc.Mapping):
            return self._mapping(kind, args)
        if issubclass(kind, abc.Iterable) and not issubclass(kind, str | bytes | bytearray):
            return self._array(kind, args)
        return None

    def record(self, kind: type[Any]) -> Convert:
        if kind in self._records:
            return self._records[kind]
        record_fields(kind)  # or RecordMismatch
        build: Convert
        if self._restores:
            hints, known = hints_of(kind), record_class(kind)
            hints = {name: hints.get(name, Any) for name in known.fields}
            optional, build = frozenset(known.defaults), known.build_named
        else:
            given = constructor_fields(kind)
            hints = {name: hint for name, (hint, _) in given.items()}
            optional = frozenset(name for name, (_, has_default) in given.items() if has_default)
            build = partial(_called, kind)
        names = tuple(hints)
        required = [name for name in names if name not in optional]
        fields, converters = frozenset(names), dict[str, Convert]()

        def read(found: Any) -> Any:
            if type(found) is list and len(found) > len(names):
                raise TypeError(f"{_shown(found)} has more values than {kind.__name__} has fields")
            if type(found) is list:
                found = dict(zip(names, found, strict=False))
            if not isinstance(found, dict):
                raise TypeError(f"{kind.__name__} was expected, and it is {_shown(found)}")
            if missing := [name for name in required if name not in found]:
                raise ValueError(f"{kind.__name__} without {', '.join(missing)}")
            if self._restores and (unknown := found.keys() - fields):
                raise ValueError(f"{kind.__name__} has no field {min(map(str, unknown))!r}")
            values = {name: found[name] for name in found.keys() & fields}
            if converters:
                _convert(values, converters, f"{kind.__name__}.")
            return build(values)

        self._records[kind] = read
        converters |= self.fields(hints)
        return read

    def fields(self, hints: Mapping[str, Any]) -> dict[str, Convert]:
        """The functions of those fields whose values do not stay as they are."""
        found = {name: self.of(annotation) for name, annotation in hints.items()}
        return {name: convert for name, convert in found.items() if convert is not None}

    def _typed_dict(self, kind: Any) -> Convert | None:
        converters = self.fields(hints_of(kind))

        def read(value: Any) -> Any:
            values = dict(_expect(dict, value))
            _convert(values, converters, "")
            return values

        return read if converters else None

    def _mapping(self, kind: type[Any], args: tuple[Any, ...]) -> Convert | None:
        key = self._key(args[0]) if args else None
        convert = self.of(args[1]) if len(args) > 1 else None
        build = Counter if kind is Counter else dict
        if key is None and convert is None and build is dict:
            return None

        def read(value: Any) -> Any:
            pairs = _expect(dict, value).items()
            return build(
                {
                    key(name) if key else name: convert(one) if convert else one
                    for name, one in pairs
                }
            )

        return read

    def _key(self, annotation: Any) -> Convert | None:
        """The function for the keys of a dict, which JSON has as texts."""
        convert = partial(_plain_key, annotation) if annotation in _KEYS else self.of(annotation)
        if not isinstance(annotation, type) or not issubclass(annotation, Enum) or convert is None:
            return convert
        of_value = convert

        def read(text: Any) -> Any:
            with suppress(ValueError):
                return of_value(text)
            with suppress(ValueError):
                return of_value(json.loads(text))  # of an IntEnum
            raise ValueError(f"{_shown(text)} is no {annotation.__name__}")

        return read

    def _array(self, kind: type[Any], args: tuple[Any, ...]) -> Convert | None:
        build = kind if kind in (tuple, set, frozenset) else list
        parts = [self.of(one) for one in args if one is not Ellipsis]
        if build is list and not any(parts):
            return None
        is_fixed = kind is tuple and args != () and args[-1] is not Ellipsis

        def read(value: Any) -> Any:
            values = _expect(list, value)
            if is_fixed and len(values) != len(parts):
                raise ValueError(f"{_shown(value)} has {len(values)} values, not {len(parts)}")
            converters = parts if is_fixed else (parts or [None]) * len(values)
            pairs = zip(converters, values, strict=True)
            return build([convert(one) if convert else one for convert, one in pairs])

        return read

    def _union(self, kinds: Sequence[Any]) -> Convert | None:
        members = [self.of(one) or partial(plain_value, one) for one in kinds]
        converting = [one for one in members if getattr(one, "func", None) is not plain_value]
        if not converting:
            return None

        def restored(value: Any) -> Any:
            fitting: list[Any] = []
            for member in members:
                with suppress(Exception):  # such as that of a default_factory
                    fitting.append(member(value))
            records = {type(one) for one in fitting if is_record(type(one))}
            if len(records) > 1:
                names = " and ".join(sorted(one.__name__ for one in records))
                raise ValueError(f"{_shown(value)} may be a record of {names}")
            return fitting[0] if fitting else read(value)

        def read(value: Any) -> Any:
            for member in members:
                with suppress(Exception):  # of the constructor of a record, too
                    return member(value)
            if len(converting) == 1:
                return converting[0](value)  # raises an error that may name a field of a record
            names = " | ".join(getattr(one, "__name__", str(one)) for one in kinds)
            raise ValueError(f"{_shown(value)} is no {names}")

        return restored if self._restores else read


def _convert(values: dict[str, Any], converters: Mapping[str, Convert], where: str) -> None:
    """Convert values in place. Raises ValueError with the name of the field."""
    for name in converters.keys() & values.keys():
        try:
            values[name] = converters[name](values[name])
        except Exception as error:  # of the constructor of a record, too
            raise ValueError(f"{where}{name}: {message_of(error)}") from error


def _scalar(kind: type[Any], value: Any) -> Any:
    if type(value) is kind:  # Avro has some of them
        return value
    if type(value) is not str:
        raise ValueError(f"{_shown(value)} is no {kind.__name__}, which is a text")
    return read_scalar(kind, value)


def _enum(kind: type[Enum], restores: bool) -> Convert:
    members = dict[str, Enum]()
    for one in kind:
        with suppress(TypeError, ValueError):  # a value that JSON cannot have
            members[_as_json(one.value)] = one

    def read(value: Any) -> Any:
        try:
            found = members.get(_as_json(value))
            if found is not None:
                return found
            if restores and not issubclass(kind, Flag):
                raise ValueError("no member has this value")
            return member_of(kind)(value) if restores else kind(value)  # several of a Flag
        except (TypeError, ValueError):
            raise ValueError(f"{_shown(value)} is no {kind.__name__}") from None

    return read


def _called(kind: type[Any], values: Mapping[str, Any]) -> Any:
    return kind(**values)


def _plain_key(kind: Any, text: Any) -> Any:
    with suppress(ValueError):
        if type(value := json.loads(text) if type(text) is str else text) is kind:
            return value
    raise ValueError(f"{_shown(text)} is no {kind.__name__}")


def plain_value(annotation: Any, value: Any) -> Any:
    """The value, if it fits an annotation that converts nothing. Raises ValueError."""
    kind = get_origin(annotation) or annotation
    fits = isinstance(value, kind) if isinstance(kind, type) else True
    is_bool = type(value) is bool and kind in (int, float)
    if (fits and not is_bool) or (kind is float and type(value) is int):
        return value
    raise ValueError(f"{_shown(value)} is no {annotation}")


def _expect(kind: type[Any], value: Any) -> Any:
    if isinstance(value, kind):
        return value
    raise ValueError(f"{_shown(value)} is no {'object' if kind is dict else 'array'}")


def _shown(value: Any) -> str:
    return describe(value, _SHOWN_BYTES)
