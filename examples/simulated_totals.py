"""A word count with operators, for the simulator: records are combined before they are sent.

sunshower simulate examples/simulated_totals.py --seeds 1000
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from sunshower import Bolt, Context, Line, Records, Topology, count

POEM = """
The sun was shining on the sea
Shining with all his might
He did his very best to make
The billows smooth and bright
And this was odd because it was
The middle of the night
"""
LINES = [Line(text) for text in POEM.strip().splitlines()]


class Word(NamedTuple):
    word: str


class Total(NamedTuple):
    word: str
    times: int


def split(line: Line) -> Iterator[Word]:
    for word in line.text.lower().split():
        yield Word(word)


class Store(Bolt[Total, None]):
    def prepare(self, context: Context) -> None:
        self.context = context

    def process(self, record: Total) -> None:
        self.context.wrote(record.word, record.times)


topology = Topology("simulated-totals", message_timeout_s=5, ackers=2)
lines = topology.spout("lines", Records(LINES * 10, type=Line))
words = lines.shuffle().stage("split", parallelism=2).flat_map(split)
totals = words.group_by("word").aggregate(count(), fields=Total, parallelism=2)
totals.shuffle().bolt("store", Store)
