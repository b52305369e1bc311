"""Encodes values as MessagePack, so that they are decoded equal and of the same type.

MessagePack's own types are None, bool, int of 64 bits, float, str, bytes, list and dict; what else
there is are extension types. Decoding runs no code but the constructors of declared record types,
and imports nothing: Enums and records carry a number, their class's place in `classes`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum, Flag
from functools import partial
from itertools import chain
from operator import attrgetter
from typing import Any

from sunshower.errors import Unserialisable
from sunshower.field_types import is_record, record_fields
from sunshower.values import SCALARS, read_scalar

_TUPLE, _SET, _FROZENSET, _LONG, _COUNTER, _ROWS, _DECLARED, _SCALAR = range(8)
_CONTAINERS: dict[type[Any], tuple[int, Callable[[Any], Any]]] = {
    tuple: (_TUPLE, list),
    set: (_SET, list),
    frozenset: (_FROZENSET, list),
    Counter: (_COUNTER, dict),
}
_BUILD: dict[int, Callable[[Any], Any]] = {
    _TUPLE: tuple,
    _SET: set,
    _FROZENSET: frozenset,
    _COUNTER: Counter,
}
_SCALAR_TYPES = dict(enumerate(SCALARS, start=_SCALAR))
_SCALAR_CODES = {kind: code for code, kind in _SCALAR_TYPES.items()}
_DEPTH_MAX = 32  # a level takes 41 kB of the stack to decode
_NUMPY_KINDS = "biufSU"  # others, such as datetime64[ns], become something else in Python
Build = Callable[[Any], Any]


class Rows(list[Any]):
    """A list of tuples of one length, encoded without a header for each of them."""


class Codec:
    """`classes`: the Enums and record types that can be encoded. `exact`: refuse what would come
    back as its base class: Enums and NamedTuples that are not among `classes`, other subclasses of
    plain types, and scalars of NumPy."""

    def __init__(self, classes: Iterable[type[Any]] = (), *, exact: bool = False) -> None:
        import msgpack

        self._extension, self._exact = msgpack.ExtType, exact
        self._declared = {kind: (number, _parts(kind)) for number, kind in enumerate(classes)}
        self._builders = [_builder(kind) for kind in self._declared]
        self._pack = [
            partial(
                msgpack.packb,
                default=partial(self._other, depth),
                strict_types=True,
                unicode_errors="surrogatepass",
                buf_size=1 << 10 if depth else 1 << 16,
            )
            for depth in range(_DEPTH_MAX + 1)
        ]
        self._unpack = [
            partial(
                msgpack.unpackb,
                ext_hook=partial(self._value, depth),
                strict_map_key=False,
                unicode_errors="surrogatepass",
            )
            for depth in range(_DEPTH_MAX + 1)
        ]

    def encode(self, value: Any) -> bytes:
        """Encode a value. Raises Unserialisable, naming the type that cannot be encoded."""
        try:
            data: bytes = self._pack[0](value)
        except Exception as error:  # of a property of a record, or of a time zone
            raise Unserialisable(f"{error}") from error
        return data

    def decode(self, data: bytes) -> Any:
        """Decode a value. Raises ValueError for bytes that `encode` has not returned."""
        try:
            return self._unpack[0](data)
        except Exception as error:  # of the constructor of a record, too
            raise ValueError(f"{type(error).__name__}: {error}") from error

    def _other(self, depth: int, value: Any) -> Any:
        """What MessagePack has no type for, as an extension, or as a value that it has."""
        kind = type(value)
        if kind in SCALARS:
            return self._extension(_SCALAR_CODES[kind], SCALARS[kind].text(value).encode())
        if kind in _CONTAINERS:
            code, listed = _CONTAINERS[kind]
            return self._nested(depth, code, listed(value))
        if kind in self._declared:
            number, parts = self._declared[kind]
            return self._nested(depth, _DECLARED, [number, parts(value)])
        if kind is Rows:
            flat = flattened(value)
            width = len(value[0]) if value else 1
            if not flat or len(flat) != width * len(value):
                return list(value)
            return self._nested(depth, _ROWS, [width, flat])
        if kind is int:
            size = value.bit_length() // 8 + 1
            return self._extension(_LONG, value.to_bytes(size, "little", signed=True))
        if self._exact or (found := _as_plain(value)) is value:
            raise TypeError(_refusal(kind))
        is_long = type(found) is int and not -(1 << 63) <= found < 1 << 64
        return self._other(depth, found) if is_long or type(found) in _CONTAINERS else found

    def _nested(self, depth: int, code: int, value: Any) -> Any:
        if depth == _DEPTH_MAX:
            raise ValueError(f"tuples, sets and records are nested more than {_DEPTH_MAX} deep")
        return self._extension(code, self._pack[depth + 1](value))

    def _value(self, depth: int, code: int, data: bytes) -> Any:
        if code in _SCALAR_TYPES:
            return read_scalar(_SCALAR_TYPES[code], data.decode())
        if code == _LONG:
            return int.from_bytes(data, "little", signed=True)
        if depth == _DEPTH_MAX:
            raise ValueError(f"extension types are nested more than {_DEPTH_MAX} deep")
        if code in _BUILD:
            return _BUILD[code](self._unpack[depth + 1](data))
        if code == _DECLARED:
            number, parts = self._unpack[depth + 1](data)
            if type(number) is not int or not 0 <= number < len(self._builders):
                raise ValueError("a value is of a class that is not declared")
            return self._builders[number](parts)
        if code == _ROWS:
            width, flat = self._unpack[depth + 1](data)
            return Rows(chunked(flat, width))
        raise ValueError(f"a field has the unknown extension type {code}")


def flattened(rows: Iterable[Iterable[Any]]) -> list[Any]:
    """The values of all rows in one list."""
    return list(chain.from_iterable(rows))


def chunked(values: Sequence[Any], width: int) -> Iterator[tuple[Any, ...]]:
    """Tuples of `width` values each; undoes `flattened`. Raises ValueError if some are left."""
    if type(values) is not list or type(width) is not int or width < 1 or len(values) % width:
        raise ValueError(f"these are no rows of {width} values")
    return zip(*[iter(values)] * width, strict=True)


def _parts(kind: type[Any]) -> Callable[[Any], Any]:
    """What a declared class is built from again: the number of a Flag, the name of another Enum's
    member, the values of a record."""
    if issubclass(kind, Enum):
        return attrgetter("_value_" if issubclass(kind, Flag) else "_name_")
    if issubclass(kind, tuple):
        return list
    names = record_fields(kind)
    return lambda value: [getattr(value, name) for name in names]


def _builder(kind: type[Any]) -> Build:
    if issubclass(kind, Enum):
        return kind if issubclass(kind, Flag) else kind.__members__.__getitem__
    width, is_tuple = len(record_fields(kind)), issubclass(kind, tuple)

    def build(parts: Any) -> Any:
        if type(parts) is not list or len(parts) != width:
            raise ValueError(f"a {kind.__name__} has {width} fields")
        return tuple.__new__(kind, parts) if is_tuple else kind(*parts)

    return build


def _as_plain(value: Any) -> Any:
    """An equal value of a plain type, of a subclass or of NumPy; itself if there is none."""
    if type(value).__module__ == "numpy" and getattr(value, "ndim", 1) == 0:
        return value.item() if value.dtype.kind in _NUMPY_KINDS else value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int.__int__(value)
    if isinstance(value, float):
        return float.__float__(value)
    base = next(
        (one for one in (bytes, Counter, dict, list, tuple) if isinstance(value, one)), None
    )
    return value if base is None else base(value)


def _refusal(kind: type[Any]) -> str:
    name = f"{kind.__module__}.{kind.__qualname__}"
    if issubclass(kind, Enum) or is_record(kind):
        return (
            f"a value is a {name}, which no record type declares: annotate a field with it, or "
            "send the values that it is made of"
        )
    return f"a value is a {name}"
