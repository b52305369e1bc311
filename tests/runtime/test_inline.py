"""`run_inline` runs a whole topology in this process and thread, to its end or its error."""

from __future__ import annotations

from collections import Counter as Multiset
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from sunshower import Bolt, Collector, Context, Records, Topology, Tuple
from sunshower.clock import ManualClock
from sunshower.errors import ClusterError, TopologyFailed
from sunshower.runtime.inline import run_inline
from tests.runtime.rig import Word


class Line(NamedTuple):
    text: str


LINES = [Line("it rains"), Line(""), Line("it rains it shines")]


def split(line: Line) -> Iterator[Word]:
    yield from map(Word, line.text.split())


class CountWords(Bolt[Word, None]):
    def prepare(self, context: Context) -> None:
        self.counts: Multiset[str] = Multiset()

    def process(self, record: Word) -> None:
        self.counts[record.word] += 1

    def result(self) -> Multiset[str]:
        return self.counts


def word_count(impl: Any = CountWords, **settings: Any) -> Topology:
    topology = Topology("count", **settings)
    words = (
        topology.spout("lines", Records(LINES, type=Line))
        .shuffle()
        .bolt("split", split, parallelism=2)
    )
    words.fields("word").bolt("count", impl, parallelism=3)
    return topology


@pytest.mark.parametrize("ackers", [0, 1, 2])
def test_words_are_counted_once_each_and_together(ackers: int) -> None:
    finished = run_inline(word_count(ackers=ackers).graph())
    counts = finished.results["count"]
    assert sum(counts, Multiset()) == {"it": 3, "rains": 2, "shines": 1}
    assert sum(len(count) for count in counts) == 3, "each word has one owner"
    lines = finished.snapshot.component("lines")
    assert (lines.emitted, lines.acked) == (3, 3 if ackers else 0)


def test_same_seed_gives_the_same_run() -> None:
    runs = [run_inline(word_count().graph(), seed=7, clock=ManualClock()) for _ in range(2)]
    assert runs[0].results == runs[1].results
    assert (
        runs[0].snapshot.workers[0].tasks[1].counts == runs[1].snapshot.workers[0].tasks[1].counts
    )


def test_record_that_fails_once_is_replayed() -> None:
    class Hiccup(CountWords):
        def process(self, record: Word) -> None:
            super().process(record)
            if self.counts[record.word] == 1:
                raise ValueError("not yet")

    finished = run_inline(word_count(Hiccup).graph())
    lines = finished.snapshot.component("lines")
    assert lines.acked == 3
    assert lines.failed == lines.replayed > 0


def test_record_that_always_fails_ends_the_run_with_the_line_that_raised() -> None:
    class Broken(CountWords):
        def process(self, record: Word) -> None:
            raise ValueError(f"no {record.word}")

    with pytest.raises(TopologyFailed, match=r"(?s)spout 'lines' failed 5 times.*no .*in process"):
        run_inline(word_count(Broken).graph())


def test_bolt_that_forgets_to_ack_is_reported_after_steps_max() -> None:
    class Forgets(Bolt[Word, None]):
        def execute(self, tuple: Tuple[Word], out: Collector[Any]) -> None: ...

    with pytest.raises(ClusterError, match="not finished after 100 steps: a bolt forgets to ack"):
        run_inline(word_count(Forgets).graph(), clock=ManualClock(), steps_max=100)


def test_every_task_is_closed_even_after_an_error() -> None:
    closed = []

    class BreaksAndCloses(CountWords):
        def cleanup(self) -> None:
            closed.append("bolt")

        def process(self, record: Word) -> None:
            raise ValueError("no")

    with pytest.raises(TopologyFailed):
        run_inline(word_count(BreaksAndCloses).graph())
    assert closed == ["bolt"] * 3


def test_exception_in_prepare_ends_the_run_naming_its_place() -> None:
    class Unprepared(CountWords):
        def prepare(self, context: Context) -> None:
            raise OSError("no such dictionary")

    with pytest.raises(TopologyFailed, match=r"prepare of count\[0\] raised OSError: no such dict"):
        run_inline(word_count(Unprepared).graph())
