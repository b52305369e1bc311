"""A word count of a few fixed lines, which `make simulate` runs with many faults.

    sunshower simulate examples/simulated_word_count.py --seeds 1000

It has the structure of most topologies: a source, a bolt that makes several tuples from each line,
and a bolt with state. Its code does not depend on the simulator.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from sunshower import Bolt, Context, Line, Records, Topology

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


class CountWords(Bolt[Word, Total]):
    def prepare(self, context: Context) -> None:
        self.context = context
        self.counts: Counter[str] = Counter()

    def process(self, record: Word) -> Iterator[Total]:
        self.counts[record.word] += 1
        self.context.wrote(record.word, self.counts[record.word])  # for the history
        yield Total(record.word, self.counts[record.word])

    def snapshot(self) -> Counter[str]:
        return self.counts  # so that a rebalance can move the task

    def restore(self, state: Counter[str]) -> None:
        self.counts = state


topology = Topology("simulated-word-count", message_timeout_s=5, ackers=2)
lines = topology.spout("lines", Records(LINES * 10, type=Line))
words = lines.shuffle().bolt("split", split, parallelism=2)
words.fields("word").bolt("count", CountWords, parallelism=2)
