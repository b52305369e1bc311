"""Converts values that can be sent between workers to types that every state stores, and back.

    Visit(3, Color.RED)     {"<Visit>": {"count": 3, "color": {"<Color>": "RED"}}}
    {1: "a"}                {"(dict)": [[1, "a"]]}       keys that are no texts
    Counter("aab")          {"(Counter)": [["a", 2], ["b", 1]]}

Records are stored with the names of their fields, so a class may get further fields that have a
default. What is converted shares nothing mutable with the value.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from typing import Any

from sunshower.errors import RecordMismatch, StateMismatch, Unserialisable, user_errors
from sunshower.records import DictKey, member_key, member_of, record_class
from sunshower.scalars import SCALARS

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
        self._where = where
        self._named: dict[str, type[Any]] = {}
        for kind in classes:
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
                f"{self._where}: a value is a {kind.__module__}.{kind.__qualname__}, which no "
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
