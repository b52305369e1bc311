"""Encodes keys and values of states as JSON that any tool can read; decoding restores them exactly.

JSON has no tuples: a tuple within a value is {"()": […]}, and a key that is a tuple is a list.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from json.encoder import encode_basestring
from typing import Any

from sunshower.errors import Unserialisable

_TUPLE = "()"
_SCALARS = {str, int, float, bool}
UNCHANGING = {*_SCALARS, type(None)}  # immutable, so callers cannot change a cached one
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), check_circular=False).encode


def text_of(value: Any) -> str:
    """A value as JSON. Raises Unserialisable, naming the type, if decoding would not restore it."""
    kind = type(value)
    if kind is int:
        return str(value)
    if value is None:
        return "null"
    try:
        if kind is str:
            text = encode_basestring(value)
        else:
            text = _encode(value if kind in _SCALARS else _plain(value))
        if not text.isascii():
            text.encode()
    except (ValueError, RecursionError) as error:
        raise Unserialisable(f"a {_named(value)} is not for JSON: {error}") from error
    return text


def text_of_key(key: Any) -> str:
    """A key as JSON: a value, or a tuple of values. Raises Unserialisable."""
    return text_of(_listed(key) if type(key) is tuple else key)


def texts_of_keys(keys: Sequence[Any]) -> list[str]:
    """Many keys as JSON; for plain strings in a third of the time."""
    texts = [encode_basestring(key) if type(key) is str else text_of_key(key) for key in keys]
    together = "".join(texts)
    try:
        if not together.isascii():
            together.encode()
    except ValueError as error:
        raise Unserialisable(f"one of these is not for JSON: {error}") from error
    return texts


def values_of(texts: Sequence[str]) -> list[Any]:
    """The values of JSON texts. Raises ValueError if one is not JSON."""
    found = _DECODER.decode(f"[{','.join(texts)}]")  # a fifth of the time of decoding each
    if len(found) != len(texts):
        raise ValueError("one of them is not one value")
    return list(found)


def key_of(text: str) -> Any:
    """The key that was encoded by `text_of_key`."""
    return _hashable(_DECODER.decode(text))


def _plain(value: Any) -> Any:
    """The value in JSON types. Raises Unserialisable for what decoding would not restore."""
    kind = type(value)
    if value is None or kind in _SCALARS:
        return value
    if kind is list:
        return [_plain(one) for one in value]
    if kind is tuple:
        return {_TUPLE: [_plain(one) for one in value]}
    if kind is dict and _TUPLE not in value and all(type(name) is str for name in value):
        return {name: _plain(one) for name, one in value.items()}
    names = ": its keys must be texts" if kind is dict else ""
    raise Unserialisable(f"a {_named(value)} is not for JSON{names}")


def _rebuilt(found: dict[str, Any]) -> Any:
    return tuple(found[_TUPLE]) if _TUPLE in found else found


_DECODER = json.JSONDecoder(object_hook=_rebuilt)


def _listed(key: Any) -> Any:
    return [_listed(one) for one in key] if type(key) is tuple else key


def _hashable(found: Any) -> Any:
    return tuple(map(_hashable, found)) if isinstance(found, list) else found


def _named(value: Any) -> str:
    kind = type(value)
    return (
        kind.__qualname__
        if kind.__module__ == "builtins"
        else f"{kind.__module__}.{kind.__qualname__}"
    )
