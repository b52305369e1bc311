"""Encodes plain values for a store as MessagePack; decoding restores them exactly, runs no code.

Plain are None, bool, int, float, str, bytes, and list, tuple, set, frozenset, dict and Counter of
these.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import msgpack

from sunshower.errors import Unserialisable

# Types that MessagePack lacks → the number of their extension, and their value as another type.
_PACKED: dict[type, tuple[int, Callable[[Any], Any]]] = {
    tuple: (0, list),
    set: (1, list),
    frozenset: (2, list),
    int: (3, str),  # beyond 64 bits
    Counter: (4, dict),
}
_BUILD: dict[int, Callable[[Any], Any]] = {number: kind for kind, (number, _) in _PACKED.items()}
_DEPTH_MAX = 64  # each extension within another takes much of the C stack
_DECODE_ERRORS = (ValueError, TypeError, KeyError, OverflowError, RecursionError, MemoryError)


def encode(value: Any, *, depth: int = 0) -> bytes:
    """Encode a value. Raises Unserialisable for what is not plain, or nested too deep."""
    try:
        data: bytes = msgpack.packb(
            value,
            default=partial(_extension, depth + 1),
            strict_types=True,
            unicode_errors="surrogatepass",
        )
    except (ValueError, RecursionError) as error:  # nested too deep
        raise Unserialisable(f"a value cannot be stored: {error}") from error
    return data


def decode(data: bytes, *, depth: int = 0) -> Any:
    """Decode a value. Raises ValueError for bytes that `encode` has not returned."""
    try:
        return msgpack.unpackb(
            data,
            ext_hook=partial(_value, depth + 1),
            strict_map_key=False,
            unicode_errors="surrogatepass",
        )
    except _DECODE_ERRORS as error:
        raise ValueError(f"{type(error).__name__}: {error}") from None


def _extension(depth: int, value: Any) -> msgpack.ExtType:
    if type(value) not in _PACKED:
        kind = type(value)
        raise Unserialisable(
            f"a {kind.__module__}.{kind.__qualname__} cannot be stored, only plain values: "
            "numbers, texts, bytes, lists, tuples, sets and dictionaries"
        )
    if depth > _DEPTH_MAX:
        raise Unserialisable(
            f"a value cannot be stored: over {_DEPTH_MAX} levels of tuples and sets"
        )
    number, plain = _PACKED[type(value)]
    return msgpack.ExtType(number, encode(plain(value), depth=depth))


def _value(depth: int, number: int, data: bytes) -> Any:
    if depth > _DEPTH_MAX:
        raise ValueError(f"over {_DEPTH_MAX} levels of tuples and sets")
    return _BUILD[number](decode(data, depth=depth))
