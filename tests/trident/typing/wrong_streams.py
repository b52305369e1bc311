"""A wrong stream program: `mypy --strict` reports exactly the lines that a comment marks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from sunshower import Topology
from sunshower.trident import BatchStream, TridentSpout, batches, count


class Line(NamedTuple):
    text: str


class Word(NamedTuple):
    word: str


class Total(NamedTuple):
    word: str
    times: int


def split(line: Line) -> Iterator[Word]:
    yield Word(line.text)


def is_many(total: Total) -> bool:
    return total.times > 1


def is_short(word: Word) -> bool:
    return len(word.word) < 5


def declare(spout: TridentSpout) -> None:
    lines = batches(Topology("wrong"), "lines", spout)
    words = lines.flat_map(split)
    words.filter(is_many)  # wrong: it takes Total, and these are Word
    _, _ = words.branch(is_short, is_short)  # wrong: it returns a third stream with the rest
    words.map(split)  # wrong: it takes Line
    words.flat_map(is_many)  # wrong: it returns no records
    totals: BatchStream[Line] = words.group_by("word").aggregate(
        count(),
        fields=Total,  # wrong: they are Total
    )
    totals.filter(is_many)  # wrong: totals are declared as Line
    words.aggregate(count(), state="counts.db")  # wrong: not a state
    words.group_by("word").aggregate("count")  # wrong: not an aggregator
