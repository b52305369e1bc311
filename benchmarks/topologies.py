"""The measured topologies: word counts, constants that are discarded, and an idle one."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.corpus import read_lines
from benchmarks.start_signal import POLL_S, StartSignal
from sunshower import BatchBolt, Bolt, Context, Derived, Spout, Topology, batch, count
from sunshower.config import Internals
from sunshower.state import SqliteState


class Line(NamedTuple):
    text: str


class Word(NamedTuple):
    word: str


class Total(NamedTuple):
    word: str
    times: int


class WaitingSpout(Spout[Any]):
    """Emits no record before the start signal, and notes the time of the first one."""

    def __init__(self, signal: StartSignal) -> None:
        self._signal = signal
        self._begun_s: float | None = None
        self._is_ready = False

    def open(self, context: Context) -> None:
        self._is_ready, self.context = True, context

    def wait_for_start(self) -> Iterator[None]:
        while not self._signal.has_started:
            yield None
        self._begun_s = time.monotonic()

    def result(self) -> tuple[bool, float | None]:
        """(whether it is open, when the first record was emitted)."""
        return self._is_ready, self._begun_s


class Sink(Bolt[Any, Any]):
    """Notes when its last batch ended, which is the only end that untracked topologies have."""

    last_s = 0.0

    def flush(self) -> None:
        self.last_s = time.monotonic()


# ---- the word count -----------------------------------------------------------------------------


class LineSpout(WaitingSpout):
    """Emits records that were created before the start, so that only the runtime is measured."""

    def __init__(self, signal: StartSignal, path: Path, record: Any, fields: Any) -> None:
        super().__init__(signal)
        self.emits = fields
        self._path, self._record = path, record

    def open(self, context: Context) -> None:
        share = read_lines(self._path)[context.index :: context.parallelism]
        self._prepared = [self._record(line) for line in share]
        super().open(context)

    def records(self) -> Iterator[Any]:
        yield from self.wait_for_start()
        yield from self._prepared


class LineTableSpout(WaitingSpout):
    """Emits the same lines as one Arrow table; the runtime slices it."""

    emits = ("text",)

    def __init__(self, signal: StartSignal, path: Path) -> None:
        super().__init__(signal)
        self._path = path

    def open(self, context: Context) -> None:
        share = read_lines(self._path)[context.index :: context.parallelism]
        self._table = pa.table({"text": share})
        super().open(context)

    def tables(self) -> Iterator[Any]:
        yield from self.wait_for_start()
        yield self._table


def one_field(line: str) -> tuple[str]:
    return (line,)


def split_tuples(record: tuple[str]) -> Iterator[tuple[str]]:
    for word in record[0].split():
        yield (word,)


def split_list(record: tuple[str]) -> list[tuple[str]]:
    return [(word,) for word in record[0].split()]


def is_text(record: tuple[str]) -> bool:
    return bool(record[0])


def same_field(record: tuple[str]) -> tuple[str]:
    return (record[0],)


class CountTuples(Sink):
    """Counts words, and emits no records."""

    def prepare(self, context: Context) -> None:
        self.counts: dict[str, int] = {}

    def process(self, record: Any) -> None:
        word = record[0]
        self.counts[word] = self.counts.get(word, 0) + 1

    def result(self) -> tuple[int, float]:
        return sum(self.counts.values()), self.last_s


class KeepTotals(Sink):
    """Stores the last total of each word."""

    def prepare(self, context: Context) -> None:
        self.counts: dict[str, int] = {}

    def process(self, record: Any) -> None:
        self.counts[record[0]] = record[1]

    def result(self) -> tuple[int, float]:
        return sum(self.counts.values()), self.last_s


class KeepColumns(BatchBolt[Any, Any]):
    """Stores the last total of each word, from Arrow tables."""

    last_s = 0.0

    def prepare(self, context: Context) -> None:
        self.counts: dict[str, int] = {}

    def process(self, table: pa.Table) -> None:
        self.counts.update(zip(*(column.to_pylist() for column in table.columns), strict=True))

    def flush(self) -> None:
        self.last_s = time.monotonic()

    def result(self) -> tuple[int, float]:
        return sum(self.counts.values()), self.last_s


def split(line: Line) -> Iterator[Word]:
    for word in line.text.split():
        yield Word(word)


class CountWords(Bolt[Word, Total]):
    """Counts words, and emits each new total."""

    last_s = 0.0

    def prepare(self, context: Context) -> None:
        self.counts: Counter[str] = Counter()

    def process(self, record: Word) -> Iterator[Total]:
        self.counts[record.word] += 1
        yield Total(record.word, self.counts[record.word])

    def flush(self) -> None:
        self.last_s = time.monotonic()

    def result(self) -> tuple[int, float]:
        return self.counts.total(), self.last_s


@batch
def split_columns(lines: pa.Table) -> Derived:
    words = pc.split_pattern(lines["text"].combine_chunks(), " ")
    rows = pa.table({"word": pc.list_flatten(words)})
    return Derived(rows, pc.list_parent_indices(words).to_numpy())


class CountColumns(BatchBolt[Any, Any]):
    """Counts a table at a time, and merges the partial counts when they have 500,000 rows."""

    last_s = 0.0

    def prepare(self, context: Context) -> None:
        self.parts: list[pa.Table] = []
        self.rows = 0

    def process(self, table: pa.Table) -> None:
        counted = pc.value_counts(table["word"].combine_chunks())
        self.parts.append(pa.table(counted.flatten(), names=["word", "times"]))
        self.rows += len(counted)
        if self.rows > 500_000:
            self.merge()

    def flush(self) -> None:
        self.last_s = time.monotonic()

    def merge(self) -> None:
        merged = pa.concat_tables(self.parts).group_by("word").aggregate([("times", "sum")])
        self.parts = [merged.select(["word", "times_sum"]).rename_columns(["word", "times"])]
        self.rows = 0

    def result(self) -> tuple[int, float]:
        total = sum(pc.sum(part["times"]).as_py() for part in self.parts)
        return total, self.last_s


def word_count(
    variant: str, path: Path, signal: StartSignal, state: SqliteState | None = None, **settings: Any
) -> Topology:
    """`rows`: plain tuples, the count emits nothing; `classes`: NamedTuples, a Total for each word;
    `columns`: Arrow tables; `operators`: plain tuples, totals that a sink stores;
    `operators-list`: the same with a function that returns a list, as in the README;
    `operators-chain`: with further functions around it; `operators-columns`: the same operators on
    Arrow tables. `state`: of the operators' totals."""
    topology = Topology(
        f"word-count-{variant}", internals=Internals(idle_poll_s=POLL_S), **settings
    )
    if variant.endswith("columns"):
        source: WaitingSpout = LineTableSpout(signal, path)
    elif variant == "classes":
        source = LineSpout(signal, path, Line, Line)
    else:
        source = LineSpout(signal, path, one_field, ("text",))
    near = topology.spout("source", source, parallelism=2).local_or_shuffle()
    if variant == "rows":
        parts = near.bolt("split", split_tuples, parallelism=2, fields=("word",))
        parts.fields("word").bolt("sink", CountTuples, parallelism=2, fields=())
    elif variant.startswith("operators"):
        words = _words(near.stage("split", parallelism=2), variant)
        totals = words.group_by("word").aggregate(count(), state=state, parallelism=2)
        keep: Any = KeepColumns if variant == "operators-columns" else KeepTotals
        totals.local_or_shuffle().bolt("sink", keep, parallelism=2, fields=())
    elif variant == "classes":
        words = near.bolt("split", split, parallelism=2)
        words.fields("word").bolt("sink", CountWords, parallelism=2)
    else:
        parts = near.bolt("split", split_columns, parallelism=2, fields=("word",))
        parts.fields("word").bolt("sink", CountColumns, parallelism=2, fields=())
    return topology


def _words(lines: Any, variant: str) -> Any:
    """The words of lines, by operators."""
    fields = ("word",)
    if variant == "operators-chain":
        texts = lines.filter(is_text).map(same_field, fields=("text",))
        return texts.flat_map(split_tuples, fields=fields).filter(is_text)
    functions = {"operators-list": split_list, "operators-columns": split_columns}
    return lines.flat_map(functions.get(variant, split_tuples), fields=fields)


# ---- constants ----------------------------------------------------------------------------------


class Numbers(WaitingSpout):
    """Emits numbers for `seconds`."""

    emits = ("value",)

    def __init__(self, signal: StartSignal, seconds: float) -> None:
        super().__init__(signal)
        self._seconds = seconds

    def records(self) -> Iterator[Any]:
        yield from self.wait_for_start()
        first, end_s = 0, time.monotonic() + self._seconds
        while time.monotonic() < end_s:
            for value in range(first, first + 1000):
                yield (value,)
            first += 1000


def identity(record: Any) -> Iterator[Any]:
    yield record


class NullBolt(Sink):
    """Discards records, with as little work as the bare actors do."""

    def prepare(self, context: Context) -> None:
        self.odd = 0

    def process(self, record: Any) -> None:
        self.odd += record[0] & 1

    def result(self) -> tuple[None, float]:
        return None, self.last_s


def constants(
    hops: int,
    signal: StartSignal,
    seconds: float,
    frame_records_max: int = Internals.frame_records_max,
    **settings: Any,
) -> Topology:
    """One hop, const → null, or two, const → id → null; one task each."""
    internals = Internals(idle_poll_s=POLL_S, frame_records_max=frame_records_max)
    topology = Topology(f"constants-{hops}", internals=internals, **settings)
    stream = topology.spout("source", Numbers(signal, seconds))
    if hops == 2:
        stream = stream.local_or_shuffle().bolt("id", identity, fields=("value",))
    stream.local_or_shuffle().bolt("sink", NullBolt, fields=())
    return topology


# ---- an idle topology ---------------------------------------------------------------------------


class IdleSpout(Spout[Any]):
    """Never has a record, and never ends."""

    emits = ("value",)

    def records(self) -> Iterator[Any]:
        while True:
            yield None


def idle() -> Topology:
    """A spout without records, four bolts in a row, and an acker: six tasks."""
    topology = Topology("idle")
    stream = topology.spout("source", IdleSpout())
    for number in range(3):
        stream = stream.shuffle().bolt(f"id-{number}", identity, fields=("value",))
    stream.shuffle().bolt("sink", NullBolt, fields=())
    return topology
