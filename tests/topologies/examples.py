"""Records and components that the tests of declarations share."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from sunshower import Bolt, Collector, Records, Spout, SpoutCollector, Tuple


class Word(NamedTuple):
    word: str


class Total(NamedTuple):
    word: str
    times: int


@dataclass(frozen=True)
class Order:
    id: int
    price: float


def words() -> Records[Word]:
    return Records([Word("rain"), Word("sun")], type=Word)


def count(word: Word) -> Iterator[Total]:
    yield Total(word.word, 1)


class Count(Bolt[Word, Total]):
    def process(self, record: Word) -> Iterator[Total]:
        yield Total(record.word, 1)


class Manual(Bolt[Word, Total]):
    def execute(self, tuple: Tuple[Word], out: Collector[Total]) -> None:
        out.ack(tuple)


class ManualSpout(Spout[Word]):
    def next_tuple(self, out: SpoutCollector[Word]) -> None:
        out.finish()


class Everything(Bolt[Any, None]):
    def process(self, record: Any) -> None: ...
