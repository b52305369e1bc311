"""A right stream program: `mypy --strict` knows the record type of each stream."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, assert_type

import pyarrow as pa

from sunshower import Derived, TextFiles, Topology, batch
from sunshower import Line as LineOfText
from sunshower.state import SqliteState, StaticState
from sunshower.trident import (
    BatchStream,
    FixedBatchSpout,
    StateFactory,
    TridentSpout,
    batches,
    count,
    sum_,
    tumbling,
)


class Line(NamedTuple):
    text: str


class Word(NamedTuple):
    word: str


class Total(NamedTuple):
    word: str
    times: int


def split(line: Line) -> Iterator[Word]:
    yield Word(line.text)


def maybe(line: Line) -> list[Word] | None:
    return [Word(line.text)] if line.text else None


def upper(word: Word) -> Word:
    return Word(word.word.upper())


@batch
def columns(table: pa.Table) -> Derived | None:
    return None


async def fetch(word: Word) -> Total:
    return Total(word.word, 1)


async def pages(word: Word) -> list[Total]:
    return [Total(word.word, 1)]


async def is_known(word: Word) -> bool:
    return True


def longest(words: BatchStream[Word]) -> BatchStream[Word]:
    return words.max_by("word")


def declare(spout: TridentSpout, state: StateFactory) -> None:
    topology = Topology("right")
    lines = batches(topology, "lines", spout)
    files = batches(topology, "files", TextFiles("*.txt"), parallelism=2)
    assert_type(files.shuffle(), BatchStream[LineOfText])
    fixed = batches(topology, "fixed", FixedBatchSpout([Line("a")], 3, type=Line), group="g")
    fixed.flat_map(split).aggregate(count(), state=SqliteState("counts.db"))
    fixed.flat_map(split).state_query(StaticState({"a": 1}))
    words = lines.flat_map(split)
    assert_type(words, BatchStream[Word])
    assert_type(lines.flat_map(maybe), BatchStream[Word])
    assert_type(words.map(upper).filter(lambda word: bool(word.word)), BatchStream[Word])
    assert_type(words.peek(print).shuffle(parallelism=2), BatchStream[Word])
    assert_type(words.flat_map(columns, fields=Total), BatchStream[Total])
    assert_type(words.merge(words), BatchStream[Word])
    assert_type(words.apply(longest), BatchStream[Word])
    grouped = words.group_by("word")
    assert_type(grouped.aggregate(count(), fields=Total), BatchStream[Total])
    assert_type(words.map(fetch), BatchStream[Total])
    assert_type(words.flat_map(pages), BatchStream[Total])
    assert_type(words.filter(is_known), BatchStream[Word])
    totals = grouped.aggregate(count(), state=state, fields=Total)
    assert_type(totals, BatchStream[Total])
    assert_type(totals.max_by("times"), BatchStream[Total])
    assert_type(grouped.aggregate(count()), BatchStream[tuple[Any, ...]])
    grouped.window(tumbling(seconds=60), sum_("word"), state=state)
