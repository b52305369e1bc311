"""Encodes values as MessagePack, so that they are decoded equal and of the same type.

MessagePack has None, bool, int of 64 bits, float, str, bytes, list and dict; all other types are
extension types here, those of `sunshower.value_types`. Decoding imports nothing and runs no code of
records and Enums: they are sent with the number of their class in `classes`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum
from functools import partial
from itertools import chain
from typing import Any

from sunshower.errors import Unserialisable, type_name, user_errors
from sunshower.record_types import is_record
from sunshower.records import declared_class, rows_of
from sunshower.value_types import CONTAINERS, DEPTH_MAX, TEXTS, as_plain

_LONG, _DECLARED, _ROWS = range(3)


class RowList(list[Any]):
    """A list of tuples of one length, encoded without a header for each of them."""


class Codec:
    """`classes`: the Enums and record types that can be encoded. `exact`: refuse what would come
    back as its base class: Enums and NamedTuples that are not among `classes`, other subclasses of
    plain types, and scalars of NumPy."""

    def __init__(self, classes: Iterable[type[Any]] = (), *, exact: bool = False) -> None:
        import msgpack

        self._exact, self._extension = exact, msgpack.ExtType
        declared = {kind: declared_class(kind) for kind in dict.fromkeys(classes)}
        self._declared = {
            kind: (number, known.parts) for number, (kind, known) in enumerate(declared.items())
        }
        self._builders = [known.build for known in declared.values()]
        # By the depth of a value; each for what is one level deeper.
        self._packs: list[Callable[[Any], Any]] = [
            partial(
                msgpack.packb,
                default=partial(self._other, depth + 1),
                strict_types=True,
                unicode_errors="surrogatepass",
                buf_size=1 << 10 if depth else 1 << 16,  # bytes at first; a level has its own
            )
            for depth in range(DEPTH_MAX + 1)
        ]
        self._unpacks: list[Callable[[Any], Any]] = [
            partial(
                msgpack.unpackb,
                ext_hook=partial(self._value, depth + 1),
                strict_map_key=False,
                unicode_errors="surrogatepass",
            )
            for depth in range(DEPTH_MAX + 1)
        ]
        self._packs.append(partial(_too_deep, "tuples, sets and records"))
        self._unpacks.append(partial(_too_deep, "extension types"))

    def encode(self, value: Any) -> bytes:
        """Encode a value. Raises Unserialisable, naming the type that cannot be encoded."""
        try:
            packed: bytes = self._packs[0](value)
        except user_errors() as error:  # of a property of a record, or of a time zone
            raise Unserialisable(f"{error}") from error
        return packed

    def decode(self, data: bytes) -> Any:
        """Decode a value. Raises ValueError for bytes that `encode` has not returned."""
        try:
            return self._unpacks[0](data)
        except user_errors() as error:  # such as a TypeError of a key that cannot be hashed
            raise ValueError(f"{type(error).__name__}: {error}") from error

    def _other(self, depth: int, value: Any) -> Any:
        """What MessagePack has no type for, as an extension, or as a value that it has."""
        kind = type(value)
        if (declared := self._declared.get(kind)) is not None:
            number, parts = declared
            return self._extension(_DECLARED, self._packs[depth]([number, parts(value)]))
        if (writer := _WRITERS.get(kind)) is not None:
            code, parts = writer
            content = parts(value)
            if type(content) is str:
                content = content.encode()
            elif type(content) is not bytes:
                content = self._packs[depth](content)
            return self._extension(code, content)
        if self._exact or (plain := as_plain(value)) is value:
            raise TypeError(_refusal(kind))
        is_long = type(plain) is int and not -(1 << 63) <= plain < 1 << 64
        return self._other(depth, plain) if is_long or type(plain) in CONTAINERS else plain

    def _value(self, depth: int, code: int, data: bytes) -> Any:
        if code == _DECLARED:
            number, parts = self._unpacks[depth](data)
            if type(number) is not int or not 0 <= number < len(self._builders):
                raise ValueError("a value is of a class that is not declared")
            return self._builders[number](parts)
        if (build := _OF_TEXT.get(code)) is not None:
            return build(data.decode())
        if (build := _OF_PARTS.get(code)) is not None:
            return build(self._unpacks[depth](data))
        if code == _LONG:
            return int.from_bytes(data, "little", signed=True)
        raise ValueError(f"a field has the unknown extension type {code}")


def _too_deep(what: str, _value: Any) -> Any:
    raise ValueError(f"{what} are nested more than {DEPTH_MAX} deep")


def _bytes_of_int(value: int) -> bytes:
    return value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)


def _parts_of_rows(rows: RowList) -> list[Any]:
    (width,) = set(map(len, rows))
    return [width, [*chain.from_iterable(rows)]]


def _rows_of(parts: Any) -> RowList:
    width, values = parts
    return RowList(rows_of(values, width))


# Type → its code, and a function of its parts: bytes, a text, or what is encoded in their place.
_WRITERS: dict[type[Any], tuple[int, Callable[[Any], Any]]] = {
    int: (_LONG, _bytes_of_int),
    RowList: (_ROWS, _parts_of_rows),
    **{kind: (row.code, row.parts) for kind, row in (CONTAINERS | TEXTS).items()},
}
_OF_TEXT = {row.code: row.build for row in TEXTS.values()}
_OF_PARTS = {_ROWS: _rows_of, **{row.code: row.build for row in CONTAINERS.values()}}


def _refusal(kind: type[Any]) -> str:
    name = type_name(kind)
    if issubclass(kind, Enum) or is_record(kind):
        return (
            f"a value is a {name}, which no record type declares: annotate a field with it (both "
            "at the top of a module, where annotations can be read), or send the values that it is "
            "made of"
        )
    return f"a value is a {name}"
