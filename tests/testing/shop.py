"""Declares the small topology that the tests of `sunshower.testing` run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from sunshower import Bolt, Line, OnStream, Records, Retry, Topology
from sunshower.testing import Shared

LINES = [Line("rain and sun"), Line("sun and wind")]
WORDS = ["rain", "and", "sun", "sun", "and", "wind"]


class Word(NamedTuple):
    word: str


class Total(NamedTuple):
    word: str
    times: int


class Database(Shared):
    """Holds all written totals, including those of processes that have died."""

    def __init__(self) -> None:
        self.totals: list[Total] = []


def split(line: Line) -> Iterator[Word | OnStream]:
    for word in line.text.split():
        yield Word(word)
    yield OnStream("lengths", (len(line.text),))


class Count(Bolt[Word, Total]):
    def __init__(self) -> None:
        self.counts: dict[str, int] = {}

    def process(self, record: Word) -> Iterator[Total]:
        if record.word == "poison":
            raise ValueError("poison")
        self.counts[record.word] = self.counts.get(record.word, 0) + 1
        yield Total(record.word, self.counts[record.word])

    def result(self) -> dict[str, int]:
        return self.counts


class Store(Bolt[Total, None]):
    def __init__(self, database: Database) -> None:
        self.database = database

    def process(self, record: Total) -> None:
        self.database.totals.append(record)


def unreachable() -> Iterator[Any]:
    raise ConnectionError("there is no real source in a test")
    yield


def counting(store: Any = None, retry: Retry | None = None) -> Topology:
    """Declare lines → split → count → store, whose source and store are replaced in tests."""
    topology = Topology("counting")
    lines = topology.spout("lines", Records(unreachable, type=Line), retry=retry)
    words = lines.shuffle().bolt("split", split, parallelism=2, streams={"lengths": ("length",)})
    totals = words.fields("word").bolt("count", Count, parallelism=2)
    totals.shuffle().bolt("store", store or Store(Database()))
    return topology
