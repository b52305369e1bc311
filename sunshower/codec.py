"""Encodes values as MessagePack, so that they are decoded equal and of the same type.

MessagePack has None, bool, int of 64 bits, float, str, bytes, list and dict; all other types are
extension types here. Decoding imports nothing and runs no code of records and Enums: they are sent
with the number of their class in `classes`, and rebuilt by `sunshower.records`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from enum import Enum
from functools import partial
from itertools import chain
from typing import Any

from sunshower.errors import Unserialisable, type_name, user_errors
from sunshower.field_types import is_record
from sunshower.records import member_key, member_of, record_class, rows_of
from sunshower.scalars import SCALARS, read_scalar

_LONG, _DECLARED, _ROWS = range(3)
_CONTAINERS: dict[type, type] = {tuple: list, set: list, frozenset: list, Counter: dict}
_TYPES: dict[int, type[Any]] = dict(enumerate([*_CONTAINERS, *SCALARS], start=3))
_CODES = {kind: code for code, kind in _TYPES.items()}
_DEPTH_MAX = 32  # a level takes 41 kB of the stack to decode
_NUMPY_KINDS = "biufSU"  # others, such as datetime64[ns], become something else in Python
_PLAIN: dict[type, Callable[[Any], Any]] = {
    str: str.__str__,
    int: int.__int__,
    float: float.__float__,
    **{kind: kind for kind in (bytes, Counter, dict, list, tuple)},
}


class RowList(list[Any]):
    """A list of tuples of one length, encoded without a header for each of them."""


class Codec:
    """`classes`: the Enums and record types that can be encoded. `exact`: refuse what would come
    back as its base class: Enums and NamedTuples that are not among `classes`, other subclasses of
    plain types, and scalars of NumPy."""

    def __init__(self, classes: Iterable[type[Any]] = (), *, exact: bool = False) -> None:
        import msgpack

        self._exact, self._extension = exact, msgpack.ExtType
        self._packb, self._unpackb = msgpack.packb, msgpack.unpackb
        self._declared = {kind: (number, _parts(kind)) for number, kind in enumerate(classes)}
        self._builders = [_builder(kind) for kind in self._declared]
        self._others = [partial(self._other, depth) for depth in range(1, _DEPTH_MAX + 2)]
        self._values = [partial(self._value, depth) for depth in range(1, _DEPTH_MAX + 2)]

    def encode(self, value: Any) -> bytes:
        """Encode a value. Raises Unserialisable, naming the type that cannot be encoded."""
        try:
            return self._encode(0, value)
        except user_errors() as error:  # of a property of a record, or of a time zone
            raise Unserialisable(f"{error}") from error

    def decode(self, data: bytes) -> Any:
        """Decode a value. Raises ValueError for bytes that `encode` has not returned."""
        try:
            return self._decode(0, data)
        except user_errors() as error:  # such as a TypeError of a key that cannot be hashed
            raise ValueError(f"{type(error).__name__}: {error}") from error

    def _encode(self, depth: int, value: Any) -> bytes:
        if depth > _DEPTH_MAX:
            raise ValueError(f"tuples, sets and records are nested more than {_DEPTH_MAX} deep")
        packed: bytes = self._packb(
            value,
            default=self._others[depth],
            strict_types=True,
            unicode_errors="surrogatepass",
            buf_size=1 << 10 if depth else 1 << 16,  # bytes at first; a level has its own
        )
        return packed

    def _other(self, depth: int, value: Any) -> Any:
        """What MessagePack has no type for, as an extension, or as a value that it has."""
        kind = type(value)
        if kind in SCALARS:
            return self._extension(_CODES[kind], SCALARS[kind].text(value).encode())
        if kind in _CONTAINERS:
            content = self._encode(depth, _CONTAINERS[kind](value))
            return self._extension(_CODES[kind], content)
        if kind in self._declared:
            number, parts = self._declared[kind]
            return self._extension(_DECLARED, self._encode(depth, [number, parts(value)]))
        if kind is RowList:
            (width,) = set(map(len, value))
            flat = [*chain.from_iterable(value)]
            return self._extension(_ROWS, self._encode(depth, [width, flat]))
        if kind is int:
            size = value.bit_length() // 8 + 1
            return self._extension(_LONG, value.to_bytes(size, "little", signed=True))
        if self._exact or (found := _as_plain(value)) is value:
            raise TypeError(_refusal(kind))
        is_long = type(found) is int and not -(1 << 63) <= found < 1 << 64
        return self._other(depth, found) if is_long or type(found) in _CONTAINERS else found

    def _decode(self, depth: int, data: bytes) -> Any:
        if depth > _DEPTH_MAX:
            raise ValueError(f"extension types are nested more than {_DEPTH_MAX} deep")
        return self._unpackb(
            data,
            ext_hook=self._values[depth],
            strict_map_key=False,
            unicode_errors="surrogatepass",
        )

    def _value(self, depth: int, code: int, data: bytes) -> Any:
        if code == _LONG:
            return int.from_bytes(data, "little", signed=True)
        if code == _DECLARED:
            number, parts = self._decode(depth, data)
            if type(number) is not int or not 0 <= number < len(self._builders):
                raise ValueError("a value is of a class that is not declared")
            return self._builders[number](parts)
        if code == _ROWS:
            width, values = self._decode(depth, data)
            return RowList(rows_of(values, width))
        if (kind := _TYPES.get(code)) is None:
            raise ValueError(f"a field has the unknown extension type {code}")
        if kind in SCALARS:
            return read_scalar(kind, data.decode())
        return kind(self._decode(depth, data))


def _parts(kind: type[Any]) -> Callable[[Any], Any]:
    """What a declared class is built from again: the number of a Flag, the name of another Enum's
    member, the values of a record. Raises ValueError for a record with values besides these."""
    if issubclass(kind, Enum):
        return member_key(kind)
    known = record_class(kind)

    def parts(record: Any) -> list[Any]:
        if why := known.own_problem(record):
            raise ValueError(why)
        return list(known.values(record))

    return parts


def _builder(kind: type[Any]) -> Callable[[Any], Any]:
    if issubclass(kind, Enum):
        return member_of(kind)
    known = record_class(kind)
    width = len(known.fields)

    def build(parts: Any) -> Any:
        if type(parts) is not list or len(parts) != width:
            raise ValueError(f"a {kind.__name__} has {width} fields")
        return known.build(parts)

    return build


def _as_plain(value: Any) -> Any:
    """An equal value of a plain type, of a subclass or of NumPy; itself if there is none."""
    if type(value).__module__ == "numpy" and getattr(value, "ndim", 1) == 0:
        return value.item() if value.dtype.kind in _NUMPY_KINDS else value
    return next((plain(value) for base, plain in _PLAIN.items() if isinstance(value, base)), value)


def _refusal(kind: type[Any]) -> str:
    name = type_name(kind)
    if issubclass(kind, Enum) or is_record(kind):
        return (
            f"a value is a {name}, which no record type declares: annotate a field with it (both "
            "at the top of a module, where annotations can be read), or send the values that it is "
            "made of"
        )
    return f"a value is a {name}"
