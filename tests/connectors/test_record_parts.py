"""RecordParts, with which sinks read fields and other parts of records, also of plain tuples."""

from __future__ import annotations

from dataclasses import dataclass
from operator import attrgetter
from typing import NamedTuple

import pytest

from sunshower.errors import RecordMismatch
from sunshower.records import Schema
from sunshower.topologies.record_parts import Part, RecordParts

COUNTS, WEIGHTS = Schema(("word", "count")), Schema(("word", "weight"))


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


def test_a_getter_is_chosen_before_the_first_record() -> None:
    parts = RecordParts("here")
    parts.check(Schema.of(Word), ["word", str])
    assert parts.getter(str) is str
    assert isinstance(parts.getter("word"), attrgetter)


@pytest.mark.parametrize(("part", "found"), [(len, [2, 3]), ("word", ["a", "b"])])
def test_plain_tuples_may_differ_in_fields_that_are_not_read(
    part: Part, found: list[object]
) -> None:
    parts = RecordParts("here")
    for schema in (COUNTS, Schema(("word", "weight", "unit"))):
        parts.check(schema, [part])
    get = parts.getter(part)
    assert [get(("a", 1)), get(("b", 2.0, "kg"))] == found


def test_plain_tuples_must_have_a_field_that_is_read_at_the_same_position() -> None:
    parts = RecordParts("here")
    parts.check(COUNTS, ["word"])
    with pytest.raises(RecordMismatch, match=r"\(word, count\) and \(id, word\), with 'word' at d"):
        parts.check(Schema(("id", "word")), ["word"])


def test_plain_tuples_that_are_read_whole_must_have_the_same_fields() -> None:
    parts = RecordParts("here")
    parts.check(COUNTS, [None])
    with pytest.raises(
        RecordMismatch, match=r"^here: .* \(word, count\) and \(word, weight\); emit"
    ):
        parts.check(WEIGHTS, [None])
    get = parts.getter(None)
    assert get(("a", 1)) == get(Word("a", 1)) == {"word": "a", "count": 1}
    assert get(Line(1, "b")) == {"number": 1, "word": "b"}
