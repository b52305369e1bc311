"""A correct topology: `mypy --strict` finds no error, and knows each stream's record type."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any, NamedTuple, Never, assert_type

from sunshower import (
    BatchBolt,
    Bolt,
    Collector,
    Counter,
    Derived,
    DirectStream,
    JsonLines,
    KeyState,
    KeyValueState,
    Line,
    Match,
    Number,
    OnStream,
    PatternStep,
    Records,
    Stdout,
    TextFiles,
    Topology,
    Tuple,
    asynchronous,
    batch,
)
from sunshower.topologies.streams import OrderedRows, Stream, WindowRows


class Word(NamedTuple):
    word: str


class Total(NamedTuple):
    word: str
    times: int


def split(line: Line) -> Iterator[Word | OnStream]:
    yield Word(line.text)
    yield OnStream("blank", line)


def maybe(line: Line) -> list[Word] | None:
    return [Word(line.text)] if line.text else None


def pairs(word: Word) -> Iterator[tuple[str, int]]:
    yield word.word, 1


def look(word: Word) -> None: ...


class CountWords(Bolt[Word, Total]):
    def process(self, record: Word) -> Iterator[Total]:
        yield Total(record.word, 1)


class Join(Bolt[Word | Line, Total]):
    def execute(self, tuple: Tuple[Word | Line], out: Collector[Total]) -> None:
        out.emit(Total("", len(tuple.record)), tuple)
        out.ack(tuple)


@batch
def split_columns(lines: Any) -> Derived | None: ...


class SplitColumns(BatchBolt[Line, Word]):
    def process(self, table: Any) -> Derived | None: ...


def is_long(word: Word) -> bool:
    return len(word.word) > 9


async def fetch(word: Word) -> Total:
    return Total(word.word, 1)


async def fetch_several(word: Word) -> list[Total] | None:
    return [Total(word.word, 1)]


async def pages(word: Word) -> AsyncIterator[Total]:
    yield Total(word.word, 1)


@asynchronous(concurrency=10)
async def is_known(word: Word) -> bool:
    return True


async def store(word: Word) -> None: ...


def numbered(word: Word, seen: KeyState[int]) -> Iterator[Total]:
    seen.value = (seen.value or 0) + 1
    yield Total(word.word, seen.value)


def remember(word: Word, last: KeyState[Word]) -> None:
    last.value = word


def is_other(word: Word, match: Match[Word]) -> bool:
    return word not in match["long"]


def total_of(match: Match[Word]) -> Total:
    return Total(match["long"][0].word, len(match["other"]))


class Seen(Bolt[Word, Total]):
    state: KeyValueState[str, int]

    def process(self, record: Word) -> Iterator[Total]:
        self.state[record.word] = self.state.get(record.word, 0) + 1
        yield Total(record.word, self.state[record.word])


def either(record: Word | Line) -> None: ...


def declare(path: str) -> Topology:
    topology = Topology("right", message_timeout_s=30, ackers=2)
    lines = assert_type(topology.spout("lines", TextFiles(path)), Stream[Line])
    words = lines.shuffle().bolt("split", split, parallelism=2, streams={"blank": Line})
    assert_type(words, Stream[Word])
    assert_type(words.stream("blank"), Stream[Any])
    assert_type(words.stream("blank", Line), Stream[Line])
    assert_type(lines.shuffle().bolt("maybe", maybe), Stream[Word])
    assert_type(words.branch(is_long), tuple[Stream[Word], Stream[Word]])
    assert_type(words.branch(is_long, is_long, is_long), tuple[Stream[Word], ...])
    assert_type(words.map(fetch), Stream[Total])
    assert_type(words.flat_map(fetch_several), Stream[Total])
    assert_type(words.flat_map(pages), Stream[Total])
    assert_type(words.filter(is_known).peek(store), Stream[Word])
    assert_type(words.shuffle().bolt("fetch", fetch_several), Stream[Total])
    assert_type(words.shuffle().bolt("pages", pages), Stream[Total])
    words.shuffle().bolt("async-store", store)
    keyed = words.group_by("word")
    assert_type(keyed.process(numbered, ttl_s=60, parallelism=2), Stream[Total])
    assert_type(keyed.process(remember, name="last"), Stream[Never])
    ordered = keyed.in_order("word", late=10)
    assert_type(ordered.process(remember, name="last"), OrderedRows[Never, Word])
    assert_type(ordered.process(numbered, ttl_s=60).late, Stream[Word])
    steps = [PatternStep("long", is_long), PatternStep("other", is_other)]
    assert_type(ordered.match(*steps, within=60, select=total_of), OrderedRows[Total, Word])
    ordered.match(
        PatternStep("long", lambda word: len(word.word) > 3, times=3),
        PatternStep("other", lambda word, match: word.word > match["long"][0].word, absent=True),
        within=60,
        select=lambda match: Total(match["long"][0].word, 1),
    )
    assert_type(words.fields("word").bolt("seen", Seen, 2, ttl_s=60, tick_s=1), Stream[Total])
    totals = assert_type(words.fields("word").bolt("count", CountWords), Stream[Total])
    assert_type(words.shuffle().bolt("instance", CountWords()), Stream[Total])
    assert_type(words.all().bolt("pairs", pairs, fields=("w", "n")), Stream[tuple[str, int]])
    assert_type(lines.none().bolt("columns", split_columns, fields=Word), Stream[Word])
    assert_type(lines.none().bolt("table", SplitColumns), Stream[Word])
    topology.bolt("either", either, [words.fields("word"), words.stream("blank", Line).all()])
    joined = topology.bolt("join", Join, inputs=[words.fields("word"), lines.shuffle()])
    assert_type(joined, Stream[Total])
    topology.bolt("late", CountWords, fields=DirectStream(Total))
    words.shuffle().into("late")
    watched = words.global_().bolt("look", look)
    totals.local_or_shuffle().bolt("store", JsonLines("totals.jsonl"))
    totals.shuffle().bolt("print", Stdout())
    assert_type(topology.spout("numbers", Counter()), Stream[Number])
    assert_type(topology.spout("few", Records([Word("a")], type=Word)), Stream[Word])
    assert watched.component == "look"
    return topology


def joins(lines: Stream[Line], words: Stream[Word], totals: Stream[Total]) -> None:
    semi = words.join(lines, "word", other_on="text", how="semi", keep=None)
    assert_type(semi, WindowRows[Word])
    near = totals.join(totals, "word", within=lambda total: (1, total.times), fields=Total)
    assert_type(near, WindowRows[Total])
    table = totals.group_by("word").table(field="times")
    assert_type(words.join(table, fields=Total), Stream[Total])
    assert_type(words.join(table, as_of="word", fields=Total), WindowRows[Total])
