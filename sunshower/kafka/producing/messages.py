"""Composes messages from records: topic, key, value, headers, partition."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import cached_property
from types import NoneType
from typing import Any, NamedTuple, TypeAlias, TypedDict

from sunshower.arguments import NONE, PART, AnyOf, Each, Instance
from sunshower.records import Part, RecordParts, Schema
from sunshower.scalars import json_text
from sunshower.texts import utf8

Header: TypeAlias = tuple[str, bytes | str | None]
Headers: TypeAlias = Mapping[str, bytes | str | None] | Iterable[Header]


class MessageParts(TypedDict, total=False):
    """How the bolts make a message from a record; see Composer."""

    value: Part | None
    key: Part | None
    headers: Headers | Callable[[Any], Headers] | None
    partition: Callable[[Any], int] | None


_TOPIC = replace(PART, instead="a name, or a function of the record")
_PART = AnyOf((PART, NONE))
_PAIRS = Each(Instance((tuple,), "a pair"), 'pairs, as in [("source", b"shop")]')
_HEADERS = AnyOf((_PAIRS, Instance((Mapping, Callable, NoneType), "a function of the record")))
_PARTITION = Instance((Callable, NoneType), "a function of the record")


class Message(NamedTuple):
    """A message to send; `partition` −1: the client chooses by the key, or any without one."""

    topic: str
    value: bytes | None
    key: bytes | None = None
    headers: list[Header] | None = None
    partition: int = -1


class Composer:
    r"""Makes messages of records.

    `value` and `key` are a field's name, or a function of the record; without a `value` the whole
    record is sent as a JSON object. bytes are sent unchanged, text as UTF-8, None as null (a
    tombstone in a compacted topic), anything else as JSON, with dates, decimals, UUIDs and Enums as
    docs/TOPOLOGIES.md says. `topic`, `headers` and `partition` may be functions of the record, too.
    In texts a lone surrogate, which UTF-8 cannot encode, becomes its escape, such as \udc80: in
    JSON this is the same value.
    """

    def __init__(
        self,
        where: str,
        topic: str | Callable[[Any], str],
        value: Part | None = None,
        key: Part | None = None,
        headers: Headers | Callable[[Any], Headers] | None = None,
        partition: Callable[[Any], int] | None = None,
    ) -> None:
        """`where`: the bolt, for messages."""
        _TOPIC.check("topic", topic)
        for name, part in (("value", value), ("key", key)):
            _PART.check(name, part)
        _HEADERS.check("headers", headers)
        _PARTITION.check("partition", partition)
        self.parts = RecordParts(where)
        self._topic = topic
        self._value, self._key = value, key
        self._headers = headers if callable(headers) else _listed(headers)
        self._partition = partition

    def check(self, schema: Schema) -> None:
        """Check that records have the fields. Raises UnknownField, RecordMismatch."""
        self.parts.check(schema, [self._value, *([] if self._key is None else [self._key])])

    def compose(self, record: Any) -> Message:
        """The message of a record. Raises what the functions raise, and TypeError or ValueError
        for a value that JSON cannot represent."""
        topic = self._topic if isinstance(self._topic, str) else self._topic(record)
        value = self._get_value(record)
        headers = _listed(self._headers(record)) if callable(self._headers) else self._headers
        partition = -1 if self._partition is None else self._partition(record)
        key = None if self._get_key is None else as_bytes(self._get_key(record))
        return Message(topic, as_bytes(value), key, headers, partition)

    @cached_property  # prepared for the first message: all inputs have been checked by then
    def _get_value(self) -> Callable[[Any], Any]:
        return self.parts.getter(self._value)

    @cached_property
    def _get_key(self) -> Callable[[Any], Any] | None:
        return None if self._key is None else self.parts.getter(self._key)


def as_bytes(value: Any) -> bytes | None:
    """Encode a key, value or header."""
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return utf8(value)
    return utf8(json_text(value))


def _listed(headers: Headers | None) -> list[Header] | None:
    if headers is None:
        return None
    return list(headers.items() if isinstance(headers, Mapping) else headers)
