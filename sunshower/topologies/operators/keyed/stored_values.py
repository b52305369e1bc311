"""Converts values that can be sent between workers to types that every state stores, and back.

    Visit(3, Color.RED)     {"<Visit>": {"count": 3, "color": {"<Color>": "RED"}}}
    {1: "a"}                {"(dict)": [[1, "a"]]}       keys that are no texts
    Counter("aab")          {"(Counter)": [["a", 2], ["b", 1]]}

Records are stored with the names of their fields, so a class may get further fields that have a
default. What is converted shares nothing mutable with the value.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import is_dataclass
from decimal import Decimal
from enum import Enum
from functools import partial
from json.encoder import encode_basestring
from typing import Any

from sunshower.errors import RecordMismatch, StateMismatch, Unserialisable, type_name, user_errors
from sunshower.records import DictKey, member_key, member_of, record_class
from sunshower.records import key_of as key_of_value
from sunshower.scalars import SCALARS, as_number, read_scalar

_ITSELF = {int, float, bool, bytes, type(None), *SCALARS}
_PAIRS: dict[str, Callable[[Any], Any]] = {
    "(dict)": dict,
    "(Counter)": lambda pairs: Counter(dict(pairs)),
    "(a set)": set,
    "(a frozenset)": frozenset,
}
_TEXT_OR_ITSELF = {str, *_ITSELF}
_SETS: dict[type[Any], str] = {set: "(a set)", frozenset: "(a frozenset)"}
_OVERHEAD = 64  # bytes of an object, about


class StoredValues:
    """`classes`: the Enums and record types that values may have, each by its name."""

    def __init__(self, classes: Iterable[type[Any]], where: str) -> None:
        """Raise RecordMismatch for two classes of one name."""
        self._where, self.classes = where, tuple(classes)
        self._named: dict[str, type[Any]] = {}
        for kind in self.classes:
            if self._named.setdefault(name := _mark(kind), kind) is not kind:
                raise RecordMismatch(
                    f"{where}: two classes are called {name[1:-1]}, and a state stores classes by "
                    "name; rename one of them"
                )
        self._members = {
            kind: (member_key(kind), member_of(kind))
            for kind in self._named.values()
            if issubclass(kind, Enum)
        }
        self._records = {
            kind: record_class(kind) for kind in self._named.values() if kind not in self._members
        }
        self.unchanging = {  # marks of Enums, and of records that cannot change
            name for name, kind in self._named.items() if kind in self._members or _is_frozen(kind)
        }

    def __deepcopy__(self, memo: Any) -> StoredValues:
        """Itself: nothing changes in it, and functions of an Enum cannot be copied."""
        return self

    def plain(self, value: Any) -> Any:
        """The value in types that every state stores. Raises Unserialisable, naming the type."""
        kind = type(value)
        if kind in _ITSELF:
            return value
        try:
            return self._plain(value)
        except Unserialisable:
            raise
        except (ValueError, AttributeError, RecursionError) as error:
            raise Unserialisable(f"{self._where}: a {kind.__qualname__}: {error}") from error

    def value(self, plain: Any) -> Any:
        """The value that was converted. Raises StateMismatch if its class has changed, or somebody
        else has written it."""
        try:
            return _built(plain, self._record)
        except (TypeError, ValueError, RecursionError) as error:
            raise StateMismatch(
                f"{self._where}: a stored value cannot be read ({error}): another program has "
                f"written there: {plain!r:.100}"
            ) from error

    def shapes(self) -> dict[str, list[str]]:
        """The fields of each record type, by its name."""
        return {_mark(kind)[1:-1]: [*known.fields] for kind, known in self._records.items()}

    def changed(self, stored: Mapping[str, Sequence[str]]) -> str:
        """How a record type differs from `stored` shapes, so that its stored records cannot be
        built; empty if they can."""
        for name, had in stored.items():
            kind = self._named.get(f"<{name}>")
            if kind not in self._records:
                return f"a record {name} is stored, and no annotation of the state names it"
            has, defaults = self._records[kind].fields, self._records[kind].defaults
            new = [one for one in has if one not in had and one not in defaults]
            if new or not {*had} <= {*has}:
                return f"{name} was stored as ({', '.join(had)}), and is ({', '.join(has)})"
        return ""

    def _plain(self, value: Any) -> Any:
        kind = type(value)
        if kind in _ITSELF:
            return value
        if kind is str:
            return value
        if kind is list:
            return [self._plain(one) for one in value]
        if kind is tuple:
            return tuple([self._plain(one) for one in value])
        if kind is dict or kind is DictKey:
            if set(map(type, value)) <= {str} and not _is_marked(value):
                return {self._plain(name): self._plain(one) for name, one in value.items()}
            return {"(dict)": self._pairs(value)}
        if kind in _SETS:
            if set(map(type, value)) <= _TEXT_OR_ITSELF:
                return kind(map(self._plain, value))
            return {_SETS[kind]: sorted(map(self._plain, value), key=repr)}
        if kind is Counter:
            return {"(Counter)": self._pairs(value)}
        if kind is bytearray or kind is memoryview:
            return bytes(value)
        return self._other(kind, value)

    def _other(self, kind: type[Any], value: Any) -> Any:
        """A scalar of NumPy, as it would be after a journey between workers; an Enum or a record as
        {its mark: its content}."""
        if kind.__module__ == "numpy" and getattr(value, "ndim", 1) == 0:
            plain = value.item()
            if type(plain) in _TEXT_OR_ITSELF and value.dtype.kind in "biufSU":
                return self._plain(plain)
        return {self._mark_of(kind): self._content(kind, value)}

    def _pairs(self, value: dict[Any, Any]) -> list[Any]:
        return [[self._plain(name), self._plain(one)] for name, one in value.items()]

    def _mark_of(self, kind: type[Any]) -> str:
        mark = _mark(kind)
        if self._named.get(mark) is not kind:
            raise Unserialisable(
                f"{self._where}: a value is a {type_name(kind)}, which no "
                "annotation of the state names; docs/TOPOLOGIES.md lists the types that it stores"
            )
        return mark

    def _content(self, kind: type[Any], value: Any) -> Any:
        if kind in self._members:
            return self._members[kind][0](value)
        known = self._records[kind]
        if why := known.own_problem(value):
            raise Unserialisable(f"{self._where}: {why}")
        values = map(self._plain, known.values(value))
        return dict(zip(known.fields, values, strict=True))

    def _record(self, mark: str, content: Any) -> Any:
        kind = self._named.get(mark)
        try:
            if kind is None:
                raise TypeError("no annotation of the state names such a class")
            if kind in self._members:
                return self._members[kind][1](content)
            return self._records[kind].build_named(content)
        except user_errors() as error:  # of a default_factory, too
            raise StateMismatch(
                f"{self._where}: a stored {mark[1:-1]} cannot be built ({error}): its class has "
                "changed since it was stored"
            ) from error


def as_fields(plain: Any) -> Any:
    """A converted value, with a dictionary of its fields for each record, and names for Enums: for
    those who do not have the classes."""
    return _built(plain, lambda _, content: content)


def byte_size(plain: Any) -> int:
    """The bytes that a converted value takes in memory, about."""
    kind = type(plain)
    if kind is str or kind is bytes:
        return _OVERHEAD + len(plain)
    if kind is list or kind is tuple:
        return _OVERHEAD + sum(map(byte_size, plain))
    if kind is dict:
        return 2 * _OVERHEAD + sum(map(byte_size, plain)) + sum(map(byte_size, plain.values()))
    return _OVERHEAD


def _is_frozen(kind: type[Any]) -> bool:
    return issubclass(kind, tuple) or bool(kind.__dataclass_params__.frozen)


def _mark(kind: type[Any]) -> str:
    return f"<{kind.__qualname__}>"


def _is_marked(value: dict[str, Any]) -> bool:
    return len(value) == 1 and next(iter(value))[:1] in ("<", "(")


def _built(plain: Any, record: Callable[[str, Any], Any]) -> Any:
    kind = type(plain)
    if kind is list:
        return [_built(one, record) for one in plain]
    if kind is tuple:
        return tuple([_built(one, record) for one in plain])
    if kind is not dict:
        return set(plain) if kind is set else plain
    if not _is_marked(plain):
        return {name: _built(one, record) for name, one in plain.items()}
    ((mark, content),) = plain.items()
    content = _built(content, record)
    return _PAIRS[mark](content) if mark in _PAIRS else record(mark, content)


# ---- stored texts --------------------------------------------------------------------------------
# Encodes keys and values of states as JSON that any tool can read; decoding restores them exactly.
#
# What JSON has no type for is an object with one mark: a tuple {"()": […]}, a set {"(set)": […]},
# sorted, likewise frozenset, bytes {"(bytes)": "base64"}, and {"(datetime)": "…"}, likewise date,
# time, timedelta, Decimal and UUID, with the texts of sunshower/scalars.py. A dictionary whose
# keys are not all texts is {"()": {"dict": [[key, value], …]}}, likewise a Counter, and a text
# with a lone surrogate, which UTF-8 does not have, {"()": {"str": "base64"}}. A key that is a
# tuple is a list, and a dictionary in a key is {"dict": [[name, value], …]}, sorted. Numbers that
# are equal in Python are one key, so 1.0, True and Decimal(1) are kept as 1. A moment is one key,
# in UTC.

_TUPLE, _BYTES, _DICT, _COUNTER, _STR = "()", "(bytes)", "dict", "Counter", "str"
_TEXT_SETS: dict[Any, str] = {set: "(set)", frozenset: "(frozenset)"}


def _of_tuple_mark(content: Any) -> Any:
    """A tuple, or what had no mark when values were first stored: a list is none of these."""
    if type(content) is not dict:
        return tuple(content)
    ((name, inner),) = content.items()
    if name not in _LATER:
        raise ValueError(f"{name!r} is no type: a later release may have written it")
    return _LATER[name](inner)


_LATER: dict[str, Callable[[Any], Any]] = {
    _DICT: dict,
    _COUNTER: lambda pairs: Counter(dict(pairs)),
    _STR: lambda text: b64decode(text).decode(errors="surrogatepass"),
}
_BUILD: dict[str, Callable[[Any], Any]] = {
    _TUPLE: _of_tuple_mark,
    _BYTES: b64decode,
    **{mark: kind for kind, mark in _TEXT_SETS.items()},
    **{f"({one.name})": partial(read_scalar, kind) for kind, one in SCALARS.items()},
}
_SCALARS = {str, int, float, bool}
UNCHANGING = {*_SCALARS, type(None)}  # immutable, so callers cannot change a cached one
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), check_circular=False).encode


def text_of(value: Any) -> str:
    """A value as JSON. Raises Unserialisable, naming the type, if decoding would not restore it."""
    kind = type(value)
    if value is None:
        return "null"
    try:
        if kind is int:
            return str(value)
        if kind is str:
            text = encode_basestring(value)
        else:
            text = _encode(value if kind in _SCALARS else _plain(value))
        if not text.isascii() and not _is_utf8(text):
            text = _encode(_without_surrogates(_plain(value)))
    except (ValueError, RecursionError) as error:
        raise Unserialisable(f"a {type_name(type(value))} is not for JSON: {error}") from error
    return text


def text_of_key(key: Any) -> str:
    """A key as JSON: a value, or a tuple of values. Raises Unserialisable."""
    return text_of(key if type(key) in {int, str} else listed(_number_as_key(key_of_value(key))))


def texts_of_keys(keys: Sequence[Any]) -> list[str]:
    """Many keys as JSON; for plain strings in a third of the time."""
    if {*map(type, keys)} == {str}:
        texts = [*map(encode_basestring, keys)]
    else:
        texts = [encode_basestring(key) if type(key) is str else text_of_key(key) for key in keys]
    together = "".join(texts)
    if not together.isascii() and not _is_utf8(together):
        return [*map(text_of_key, keys)]
    return texts


def values_of(texts: Sequence[str]) -> list[Any]:
    """The values of JSON texts. Raises ValueError if one is not JSON."""
    found = _DECODER.decode(f"[{','.join(texts)}]")  # a fifth of the time of decoding each
    if len(found) != len(texts):
        raise ValueError("one of them is not one value")
    return list(found)


def key_of(text: str) -> Any:
    """The key that was encoded by `text_of_key`."""
    return hashable(_DECODER.decode(text))


def keys_of(texts: Sequence[str]) -> list[Any]:
    """The keys of many texts."""
    return [one if type(one) is str else hashable(one) for one in values_of(texts)]


def listed(key: Any) -> Any:
    """A key as a value for `text_of`, from which `hashable` makes it again."""
    if type(key) is tuple:
        return [listed(one) for one in key]
    if isinstance(key, dict):
        pairs = [[listed(name), listed(value)] for name, value in key.items()]
        return {_DICT: sorted(pairs, key=text_of)}
    return key


def hashable(found: Any) -> Any:
    """The key of what `listed` returned, also after it was stored."""
    if isinstance(found, list | tuple):
        return tuple(map(hashable, found))
    if isinstance(found, dict):
        return DictKey({hashable(name): hashable(value) for name, value in found[_DICT]})
    return key_of_value(found)


def _number_as_key(key: Any) -> Any:
    """Equal numbers as one of them: whole floats and bools as integers."""
    if type(key) is tuple:
        return tuple(map(_number_as_key, key))
    if type(key) is DictKey:
        return DictKey({_number_as_key(n): _number_as_key(one) for n, one in key.items()})
    if type(key) is frozenset:
        return frozenset(map(_number_as_key, key))
    if type(key) is Decimal:
        return as_number(key)
    is_whole = type(key) is bool or (type(key) is float and key.is_integer())
    return int(key) if is_whole else key


def _plain(value: Any) -> Any:
    """The value in JSON types. Raises Unserialisable for what decoding would not restore."""
    kind = type(value)
    if value is None or kind in _SCALARS:
        return value
    if kind is list:
        return [_plain(one) for one in value]
    if kind is tuple:
        return {_TUPLE: [_plain(one) for one in value]}
    if kind is dict:
        is_mark = len(value) == 1 and not value.keys().isdisjoint(_BUILD)
        if not is_mark and all(type(name) is str for name in value):
            return {name: _plain(one) for name, one in value.items()}
        return _pairs(_DICT, value)
    if kind is Counter:
        return _pairs(_COUNTER, value)
    if kind in _TEXT_SETS:
        return {_TEXT_SETS[kind]: sorted(map(_plain, value), key=_encode)}
    if kind is bytes or kind is bytearray or kind is memoryview:
        return {_BYTES: b64encode(value).decode()}
    if kind in SCALARS:
        return {f"({SCALARS[kind].name})": SCALARS[kind].text(value)}
    if kind.__module__ == "numpy" and getattr(value, "ndim", 1) == 0:
        plain = value.item()  # as after a journey between workers
        if type(plain) in _SCALARS and value.dtype.kind in "biufSU":
            return plain
    raise Unserialisable(f"a {type_name(type(value))} is not for JSON: {_way_out(value)}")


def _way_out(value: Any) -> str:
    if isinstance(value, Enum):
        return "keep its value"
    if isinstance(value, tuple) or is_dataclass(value):
        return "keep its fields, as a tuple or in a dict"
    base = next((one for one in (dict, list, str, int, float) if isinstance(value, one)), None)
    return f"keep a {base.__name__}" if base else "keep what it is made of, in a list or a dict"


def _pairs(name: str, value: dict[Any, Any]) -> dict[str, Any]:
    return {_TUPLE: {name: [[_plain(key), _plain(one)] for key, one in value.items()]}}


def _is_utf8(text: str) -> bool:
    """Whether it has no lone surrogate."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _without_surrogates(plain: Any) -> Any:
    """The same in JSON types whose texts are all UTF-8."""
    if type(plain) is list:
        return [*map(_without_surrogates, plain)]
    if type(plain) is str and not _is_utf8(plain):
        return {_TUPLE: {_STR: b64encode(plain.encode(errors="surrogatepass")).decode()}}
    if type(plain) is not dict:
        return plain
    if all(map(_is_utf8, plain)):
        return {name: _without_surrogates(one) for name, one in plain.items()}
    return {_TUPLE: {_DICT: _without_surrogates([[*pair] for pair in plain.items()])}}


def _rebuilt(found: dict[str, Any]) -> Any:
    if len(found) != 1:
        return found
    ((mark, content),) = found.items()
    build = _BUILD.get(mark)
    return found if build is None else build(content)


_DECODER = json.JSONDecoder(object_hook=_rebuilt)
