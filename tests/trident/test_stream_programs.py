"""Whole stream programs: word counts that are exact, also when workers are killed."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from sunshower import Line, Topology
from sunshower.errors import TopologyError, TopologyFailed
from sunshower.runtime.plan import Layout
from sunshower.simulation.cluster import SimCluster
from sunshower.state import MemoryState, SqliteState
from sunshower.trident import (
    BatchStream,
    CombinerAggregator,
    FixedBatchSpout,
    InMemory,
    InSqlite,
    Skip,
    batches,
    count,
    sum_,
    tumbling,
)
from tests.seeds import seeds
from tests.trident.rigs.programs import SETTINGS, kill_three, run

POEM = """
The sun was shining on the sea
Shining with all his might
He did his very best to make
The billows smooth and bright
And this was odd because it was
The middle of the night
"""
LINES = [Line(text) for text in POEM.lower().strip().splitlines()] * 3
WORDS = Counter(word for line in LINES for word in line.text.split())


class Word(NamedTuple):
    word: str


class Times(NamedTuple):
    word: str
    times: int


def split(line: Line) -> Iterator[Word]:
    for word in line.text.split():
        yield Word(word)


def poem(topology: Topology, **options: Any) -> BatchStream[Any]:
    spout = FixedBatchSpout(LINES, 4, type=Line)
    return batches(topology, "poem", spout, store=options.pop("store", InMemory()), **options)


def word_count(topology: Topology, state: Any, **options: Any) -> Any:
    words = poem(topology, **options).shuffle(parallelism=2).flat_map(split)
    return words.group_by("word").aggregate(count(), state=state, parallelism=2, fields=Times)


@pytest.mark.parametrize("max_batches", [1, 4])
def test_a_word_count_in_one_process(max_batches: int) -> None:
    topology, state = Topology("words", check_mutation=True), MemoryState()
    word_count(topology, state, max_batches=max_batches)
    graph = topology.graph()
    assert {"poem", "poem-2", "poem-3"} <= graph.components.keys()
    run(topology)
    assert dict(state.items()) == WORDS


def test_a_later_run_continues_where_the_last_one_ended(tmp_path: Path) -> None:
    state, store = SqliteState(tmp_path / "counts.db"), InSqlite(tmp_path / "batches.db")
    for _ in range(2):
        topology = Topology("words")
        word_count(topology, state, store=store)
        run(topology)
        assert dict(SqliteState(tmp_path / "counts.db").items()) == WORDS


@pytest.mark.parametrize("change", ["store", "spout"])
def test_batches_that_are_numbered_from_the_start_again_are_not_taken_for_repeats(
    change: str, tmp_path: Path
) -> None:
    """Each run has one batch, so both batches have the txid 1."""
    state, file = SqliteState(tmp_path / "counts.db"), tmp_path / "batches.db"

    def run_lines(id: str, *lines: str) -> None:
        topology = Topology("words")
        spout = FixedBatchSpout([Line(line) for line in lines], 4, type=Line)
        words = batches(topology, id, spout, store=InSqlite(file)).flat_map(split)
        words.group_by("word").aggregate(count(), state=state)
        run(topology)

    run_lines("poem", "storm ray")
    if change == "store":
        for part in tmp_path.glob("batches.db*"):
            part.unlink()
    with pytest.raises(TopologyFailed, match="batches are counted elsewhere"):
        run_lines("poem" if change == "store" else "other", "sun")
    assert dict(state.items()) == {"storm": 1, "ray": 1}


def windowed(topology: Topology, state: MemoryState, fired: MemoryState, **options: Any) -> None:
    """Declare a word count, windows over the words, and a count over all windows."""
    words = poem(topology, **options).shuffle(parallelism=2).flat_map(split).group_by("word")
    words.aggregate(count(), state=state, parallelism=2, fields=Times)
    windows = words.window(tumbling(count=3), count(), state=MemoryState(), parallelism=2)
    windows.aggregate(sum_("count"), state=fired)


@cache
def fired_without_faults() -> dict[Any, Any]:
    topology, fired = Topology("words"), MemoryState()
    windowed(topology, MemoryState(), fired)
    run(topology)
    return dict(fired.items())


@seeds(12, kinds=2)
def test_each_word_and_each_window_counts_once_when_workers_are_killed(seed: int) -> None:
    layout = (Layout.ISOLATE, Layout.PACK)[seed % 2]
    topology, state, fired = Topology("words", **SETTINGS), MemoryState(), MemoryState()
    windowed(topology, state, fired, max_batches=1 + seed % 3, interval_s=0.5)
    sim = SimCluster(seed, check=True, nodes=1 + seed % 2).submit(topology.graph(), layout)
    kill_three(sim, seed, lambda number: 0.4 + 0.13 * (number % 7))
    assert sim.wait(600.0)
    assert sim.snapshot().restarts
    assert dict(state.items()) == WORDS
    assert dict(fired.items()) == fired_without_faults()


def test_branches_of_a_program_are_joined_within_a_batch() -> None:
    topology, totals, pairs = Topology("words"), MemoryState(), MemoryState(name="pairs")
    lines = poem(topology, max_batches=2)
    words = lines.flat_map(split)
    counts = words.group_by("word").aggregate(count(), fields=Times, parallelism=2)
    long = words.filter(lambda word: len(word.word) > 4)
    joined = counts.join(long, "word", parallelism=2)
    joined.group_by("word").aggregate(sum_("times"), state=pairs)
    again = lines.shuffle(parallelism=2).flat_map(split).merge(words)
    again.aggregate(count(), state=totals)
    run(topology)
    expected: Counter[str] = Counter()
    for start in range(0, len(LINES), 4):
        batch = Counter(word for line in LINES[start : start + 4] for word in line.text.split())
        expected += Counter({word: n * n for word, n in batch.items() if len(word) > 4})
    assert dict(pairs.items()) == expected
    assert dict(totals.items()) == {"$GLOBAL$": 2 * WORDS.total()}


class RaisesForOdd(CombinerAggregator[Word, int]):
    def init(self, record: Word) -> int:
        if record.word == "odd":
            raise ValueError("that is odd")
        return 1

    def combine(self, first: int, second: int) -> int:
        return first + second

    def zero(self) -> int:
        return 0


def test_an_aggregator_that_raises_halts_the_program_and_writes_nothing_of_its_batch() -> None:
    topology, state = Topology("words"), MemoryState()
    poem(topology).flat_map(split).group_by("word").aggregate(RaisesForOdd(), state=state)
    with pytest.raises(TopologyFailed, match="that is odd"):
        run(topology)
    first = Counter(word for line in LINES[:4] for word in line.text.split())
    assert dict(state.items()) == first


def test_a_batch_that_keeps_failing_is_skipped_and_the_others_count(tmp_path: Path) -> None:
    topology, state = Topology("words"), MemoryState()
    skip = Skip(attempts=2, dead_letters=tmp_path / "dead.jsonl")
    words = poem(topology, skip=skip).flat_map(split)
    words.group_by("word").aggregate(RaisesForOdd(), state=state)
    run(topology)
    batches_of_words = [
        [word for line in LINES[start : start + 4] for word in line.text.split()]
        for start in range(0, len(LINES), 4)
    ]
    good = Counter(word for batch in batches_of_words if "odd" not in batch for word in batch)
    assert dict(state.items()) == good
    (file,) = tmp_path.glob("dead*")
    dead = [json.loads(line) for line in file.read_text().splitlines()]
    bad = [4 * index for index, batch in enumerate(batches_of_words) if "odd" in batch]
    assert bad, "no batch fails, so nothing is tested"
    lines = [line.text for start in bad for line in LINES[start : start + 4]]
    assert [letter["record"]["text"] for letter in dead] == lines
    assert {(letter["reason"], letter["attempts"]) for letter in dead} == {
        ("ValueError: that is odd (step `RaisesForOdd.init`, record Word(word='odd'))", 2)
    }


def test_a_stream_cannot_be_used_after_its_topology_was_built() -> None:
    topology = Topology("words")
    lines = poem(topology)
    words = lines.flat_map(split)
    words.aggregate(count(), state=MemoryState())
    graph = topology.graph()
    assert topology.graph().components == graph.components
    for late in (
        lambda: words.peek(print),
        words.shuffle,
        lambda: words.group_by("word").aggregate(count(name="times"), state=MemoryState()),
        lambda: batches(topology, "more", FixedBatchSpout([], 1, type=Line)),
    ):
        with pytest.raises(TopologyError, match="used after its topology was built"):
            late()
