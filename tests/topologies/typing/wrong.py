"""A wrong topology: `mypy --strict` finds errors in exactly the lines with a comment `wrong`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from sunshower import (
    Bolt,
    Counter,
    JsonLines,
    KeyState,
    KeyValueState,
    Line,
    Match,
    PatternStep,
    Records,
    TextFiles,
    Topology,
)


class Word(NamedTuple):
    word: str


class Total(NamedTuple):
    word: str
    times: int


def split(line: Line) -> Iterator[Word]:
    yield Word(line.text)


def look(word: Word) -> None: ...


def either(record: Word | Line) -> None: ...


def first(match: Match[Word]) -> Word:
    return match["a"][0]


def numbered(word: Word, seen: KeyState[int]) -> Iterator[Total]:
    seen.value = word.word  # wrong: an int
    yield Total(word.word, 1)


class CountWords(Bolt[Word, Total]):
    def process(self, record: Word) -> Iterator[Total]:
        yield Total(record.word, 1)


class CountLines(Bolt[Line, Total]):
    def process(self, record: Word) -> Iterator[Total]:  # wrong: the class declares Line
        yield Total(record.word, 1)


class Seen(Bolt[Word, None]):
    state: KeyValueState[str, int]

    def process(self, record: Word) -> None:
        self.state[record.word] = "1"  # wrong: an int


async def of_word(word: Word) -> Word:
    return word


def declare(path: str) -> None:
    topology = Topology("wrong", ackers="2")  # wrong: a number
    lines = topology.spout("lines", TextFiles(path))
    numbers = topology.spout("numbers", Counter())
    words = lines.shuffle().bolt("split", split)
    lines.shuffle().bolt("count", CountWords)  # wrong: it reads Word, the stream has Line
    lines.shuffle().bolt("count", CountWords())  # wrong: the same as an instance
    lines.shuffle().bolt("look", look)  # wrong: the same for a sink
    words.fields("word").bolt("again", split)  # wrong: it reads Line, the stream has Word
    topology.bolt("pair", CountWords, inputs=[words.shuffle(), lines.all()])  # wrong: Line too
    topology.bolt("either", either, inputs=[words.shuffle(), numbers.all()])  # wrong: Number
    topology.bolt("bare", split, inputs=[lines])  # wrong: no grouping
    lines.map(of_word)  # wrong: it reads Word, the stream has Line
    lines.filter(of_word)  # wrong: the same, and it returns no bool
    lines.shuffle().bolt("later", of_word)  # wrong: the same, and it returns one record
    words.branch(look)  # wrong: no predicate
    lines.group_by("text").process(numbered)  # wrong: it reads Word, the stream has Line
    words.group_by("word").process(numbered, ttl="1")  # wrong: no such setting
    words.group_by("word").process(split)  # wrong: it takes no state
    words.process(numbered)  # wrong: no group
    ordered = words.group_by("word").in_order("word", late="1")  # wrong: a number
    ordered.process(numbered, event_time="word")  # wrong: a setting of in_order
    ordered.match(PatternStep("a", either, time=3), within=1, select=first)  # wrong: a setting
    ordered.match(PatternStep("a", lambda w: w.text), within=1, select=first)  # wrong: a field
    both = words.group_by("word").connect(lines.group_by("text"))
    both.process(numbered)  # wrong: it reads Word, one stream has Line
    words.fields("word").bolt("seen", Seen, ttl="1")  # wrong: no such setting
    words.bolt("count", CountWords)  # wrong: no grouping
    words.shuffle().bolt("spout", Counter())  # wrong: a spout
    topology.spout("bolt", CountWords)  # wrong: a bolt
    topology.spout("few", Records([Line("a")], type=Word))  # wrong: these are Line
    words.shuffle().bolt("count", CountWords, parallelism="2")  # wrong: a number
    sunk = words.shuffle().bolt("store", JsonLines("words.jsonl"))
    sunk.shuffle().bolt("count", CountWords)  # wrong: a sink emits nothing
