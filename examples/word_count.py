"""A word count: every word of some text files with its current total, as JSON lines.

    sunshower run examples/word_count.py

It reads the Python files of this repository and writes `word_count.0.jsonl` and
`word_count.1.jsonl` in the working directory, one file for each of the two `store` tasks. A second
run starts at zero, and replaces these files.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from sunshower import Bolt, Context, JsonLines, Line, TextFiles, Topology

REPOSITORY = Path(__file__).resolve().parents[1]


class Word(NamedTuple):
    word: str


class Total(NamedTuple):
    word: str
    times: int


def split(line: Line) -> Iterator[Word]:  # yield = emit, return = ack, raise = fail
    for word in line.text.split():
        yield Word(word)


class CountWords(Bolt[Word, Total]):  # with state: prepare() once, process() per record
    def prepare(self, context: Context) -> None:
        self.counts: Counter[str] = Counter()

    def process(self, record: Word) -> Iterator[Total]:
        self.counts[record.word] += 1
        yield Total(record.word, self.counts[record.word])


topology = Topology("word-count")
lines = topology.spout("lines", TextFiles(REPOSITORY / "sunshower/**/*.py"))
words = lines.shuffle().bolt("split", split, parallelism=2)
totals = words.fields("word").bolt("count", CountWords, parallelism=2)
totals.local_or_shuffle().bolt("store", JsonLines("word_count.jsonl"), parallelism=2)
