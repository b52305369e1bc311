"""Tests of RecordParts, which sinks use to read parts of records, also of plain tuples."""

from __future__ import annotations

from dataclasses import dataclass
from operator import attrgetter
from typing import NamedTuple

from sunshower.records import RecordParts, Schema


class Word(NamedTuple):
    word: str
    count: int


@dataclass
class Line:
    number: int
    word: str


def test_a_field_is_read_from_every_kind_of_record() -> None:
    parts = RecordParts("here")
    for schema in (Schema.of(Word), Schema.of(Line), Schema(("count", "word"))):
        parts.check(schema, ["word"])
    get = parts.getter("word")
    assert [get(Word("a", 1)), get(Line(1, "b")), get((1, "c"))] == ["a", "b", "c"]


def test_no_call_looks_for_what_was_known_before() -> None:
    parts = RecordParts("here")
    parts.check(Schema.of(Word), ["word", str])
    assert parts.getter(str) is str
    assert isinstance(parts.getter("word"), attrgetter)
