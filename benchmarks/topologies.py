"""The topologies that are measured: the word count three ways, and constants into nothing."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.corpus import make_lines
from sunshower import BatchBolt, Bolt, Context, Derived, Spout, Topology, batch


class Line(NamedTuple):
    text: str


class Word(NamedTuple):
    word: str


class Total(NamedTuple):
    word: str
    times: int


class Prepared(Spout[Any]):
    """Records made before the start, so that only the runtime is measured.

    All tasks hold back until `start_s` on the machine's monotonic clock.
    """

    def __init__(self, words: int, start_s: float, record: Any, fields: Any) -> None:
        self.emits = fields
        self._words, self._start_s, self._record = words, start_s, record

    def open(self, context: Context) -> None:
        share = make_lines(self._words)[context.index :: context.parallelism]
        self._records = [self._record(line) for line in share]

    def records(self) -> Iterator[Any]:
        while time.monotonic() < self._start_s:
            yield None
        yield from self._records


def split_tuples(record: tuple[str]) -> Iterator[tuple[str]]:
    for word in record[0].split():
        yield (word,)


class CountTuples(Bolt[Any, Any]):
    """Counts, and says nothing."""

    def prepare(self, context: Context) -> None:
        self.counts: dict[str, int] = {}

    def process(self, record: Any) -> None:
        word = record[0]
        self.counts[word] = self.counts.get(word, 0) + 1

    def result(self) -> int:
        return sum(self.counts.values())


def split(line: Line) -> Iterator[Word]:
    for word in line.text.split():
        yield Word(word)


class CountWords(Bolt[Word, Total]):
    """Counts, and tells every new total: the classes of the design."""

    def prepare(self, context: Context) -> None:
        self.counts: Counter[str] = Counter()

    def process(self, record: Word) -> Iterator[Total]:
        self.counts[record.word] += 1
        yield Total(record.word, self.counts[record.word])

    def result(self) -> int:
        return self.counts.total()


@batch
def split_columns(lines: pa.Table) -> Derived:
    words = pc.split_pattern(lines["text"].combine_chunks(), " ")
    rows = pa.table({"word": pc.list_flatten(words)})
    return Derived(rows, pc.list_parent_indices(words).to_numpy())


class CountColumns(BatchBolt[Any, Any]):
    """Counts a table at a time; partial counts are merged now and then."""

    def prepare(self, context: Context) -> None:
        self.parts: list[pa.Table] = []
        self.rows = 0

    def process(self, table: pa.Table) -> None:
        counted = pc.value_counts(table["word"].combine_chunks())
        self.parts.append(pa.table(counted.flatten(), names=["word", "times"]))
        self.rows += len(counted)
        if self.rows > 500_000:
            self.merge()

    def merge(self) -> None:
        merged = pa.concat_tables(self.parts).group_by("word").aggregate([("times", "sum")])
        self.parts = [merged.rename_columns(["word", "times"])]
        self.rows = 0

    def result(self) -> int:
        self.merge()
        total: int = pc.sum(self.parts[0]["times"]).as_py()
        return total


def word_count(variant: str, words: int, start_s: float, **settings: Any) -> Topology:
    """`rows`: plain tuples, the count is silent; `classes`: NamedTuples, a Total for each word;
    `columns`: Arrow tables."""
    topology = Topology(f"word-count-{variant}", **settings)
    record, fields = (Line, Line) if variant == "classes" else (_one, ("text",))
    lines = topology.spout("lines", Prepared(words, start_s, record, fields), parallelism=2)
    near = lines.local_or_shuffle()
    if variant == "rows":
        parts = near.bolt("split", split_tuples, parallelism=2, fields=("word",))
        parts.fields("word").bolt("count", CountTuples, parallelism=2, fields=())
    elif variant == "classes":
        near.bolt("split", split, parallelism=2).fields("word").bolt(
            "count", CountWords, parallelism=2)
    else:
        parts = near.bolt("split", split_columns, parallelism=2, fields=("word",))
        parts.fields("word").bolt("count", CountColumns, parallelism=2, fields=())
    return topology


def _one(line: str) -> tuple[str]:
    return (line,)


class Numbers(Spout[Any]):
    """Numbers from `start_s` to `end_s` on the machine's monotonic clock."""

    emits = ("value",)

    def __init__(self, start_s: float, end_s: float) -> None:
        self._start_s, self._end_s = start_s, end_s

    def records(self) -> Iterator[Any]:
        while time.monotonic() < self._start_s:
            yield None
        value = 0
        while True:
            for value in range(value, value + 1000):
                yield (value,)
            value += 1
            if time.monotonic() >= self._end_s:
                return


def identity(record: Any) -> Iterator[Any]:
    yield record


class Null(Bolt[Any, Any]):
    """Takes everything in and does what the prototype does with it."""

    def prepare(self, context: Context) -> None:
        self.odd = 0

    def process(self, record: Any) -> None:
        self.odd += record[0] & 1


def constants(hops: int, start_s: float, end_s: float, **settings: Any) -> Topology:
    """const → null (one hop) or const → id → null (two), one task each."""
    topology = Topology(f"const-{hops}", **settings)
    stream = topology.spout("const", Numbers(start_s, end_s))
    if hops == 2:
        stream = stream.local_or_shuffle().bolt("id", identity, fields=("value",))
    stream.local_or_shuffle().bolt("null", Null, fields=())
    return topology
