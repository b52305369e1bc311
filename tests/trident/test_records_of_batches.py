"""Rows that go from batches to ordinary bolts: at least once, and before the batch is done."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple

import pytest

from sunshower import Bolt, Collector, Records, Topology, Tuple
from sunshower.errors import ClusterError, DuplicateComponent, TopologyError, TopologyFailed
from sunshower.runtime.plan import Layout
from sunshower.simulation.cluster import SimCluster
from sunshower.state import MemoryState
from sunshower.trident import BatchStream, FixedBatchSpout, InMemory, batches, count
from tests.seeds import seeds
from tests.trident.rigs.programs import SETTINGS, run

POEM = "the sun was shining on the sea shining with all his might and this was odd"
WORDS = POEM.split()


class Word(NamedTuple):
    word: str


def words_of(topology: Topology, **options: Any) -> BatchStream[Any]:
    spout = FixedBatchSpout([Word(word) for word in WORDS], 4, type=Word)
    return batches(topology, "words", spout, store=InMemory(), **options)


def watching(seen: list[Any]) -> Callable[[Any], None]:
    def watch(record: Any) -> None:
        seen.append(record)

    return watch


def test_each_row_is_a_tuple_of_an_ordinary_bolt() -> None:
    topology, seen, lengths = Topology("t"), list[Any](), list[Any]()
    words = words_of(topology)
    first = words.records("first").fields("word").bolt("seen", watching(seen), parallelism=2)
    assert first.component == "seen"

    def length(word: Word) -> Iterator[tuple[str, int]]:
        yield word.word, len(word.word)

    measured = words.shuffle(parallelism=2).records("again", parallelism=2).shuffle()
    measured.bolt("length", length, fields=("word", "length")).shuffle().bolt(
        "lengths", watching(lengths)
    )
    run(topology)
    assert Counter(seen) == Counter(map(Word, WORDS))
    assert all(type(record) is Word for record in seen)
    assert Counter(lengths) == Counter((word, len(word)) for word in WORDS)


def test_a_batch_is_done_when_its_rows_are_acked() -> None:
    topology, seen, state = Topology("t"), list[Any](), MemoryState()
    rows_then: list[int] = []
    words = words_of(topology, max_batches=2)
    words.records("left").shuffle().bolt("seen", watching(seen))
    total = words.aggregate(count(), state=state)
    total.peek(lambda value: rows_then.append(len(seen) - value[-1]))
    run(topology)
    assert len(rows_then) == 4
    assert min(rows_then) >= 0, "a batch was committed before all of its rows were seen"


def test_new_values_are_sent_when_their_batch_is_committed() -> None:
    topology, seen = Topology("t"), list[Any]()
    total = words_of(topology).aggregate(count(), state=MemoryState())
    both = total.merge(total.filter(lambda value: value[0] > 4))
    both.records("totals").global_().bolt("seen", watching(seen))
    run(topology)
    assert sorted(seen) == [(4,), (8,), (8,), (12,), (12,), (16,), (16,)]


def test_batches_and_ordinary_spouts_share_a_topology() -> None:
    topology, seen, state = Topology("t"), list[Any](), MemoryState()
    words = words_of(topology)
    words.group_by("word").aggregate(count(), state=state)
    ordinary = topology.spout("ordinary", Records([Word("ray")] * 5, type=Word))
    inputs = [words.records("left").shuffle(), ordinary.shuffle()]
    topology.bolt("seen", watching(seen), inputs)
    run(topology)
    assert Counter(seen) == Counter(map(Word, [*WORDS, *["ray"] * 5]))
    assert dict(state.items()) == Counter(WORDS)


def test_a_bolt_that_raises_receives_the_whole_batch_again_and_states_count_once() -> None:
    topology, seen, state = Topology("t"), list[Any](), MemoryState()

    def raise_once(word: Word) -> None:
        seen.append(word.word)
        if word.word == "might" and seen.count("might") == 1:
            raise ValueError("that is odd")

    words = words_of(topology)
    words.records("left").shuffle().bolt("seen", raise_once)
    words.group_by("word").aggregate(count(), state=state)
    run(topology)
    again = Counter(WORDS[8:12])
    assert Counter(seen) == Counter(WORDS) + again
    assert dict(state.items()) == Counter(WORDS)


class Refuses(Bolt[Word, None]):
    """Fails one word, as KafkaBolt fails what the broker refuses."""

    def execute(self, tuple: Tuple[Word], out: Collector[None]) -> None:
        if tuple.record.word == "might":
            out.fail(tuple, "that is too large")
        else:
            out.ack(tuple)


def test_a_row_that_an_ordinary_bolt_always_fails_halts_its_batches() -> None:
    topology = Topology("t")
    words_of(topology).records("left").shuffle().bolt("refuses", Refuses())
    with pytest.raises(TopologyFailed, match="that is too large"):
        run(topology)


class Recorder(Bolt[Word, None]):
    """Records its words in a list that survives its process."""

    def __init__(self, seen: list[str]) -> None:
        self.append = seen.append

    def __deepcopy__(self, memo: Any) -> Recorder:
        return self

    def process(self, record: Word) -> None:
        self.append(record.word)


@seeds(6, kinds=2)
def test_each_row_arrives_and_counts_once_when_workers_are_killed(seed: int) -> None:
    topology, seen, state = Topology("t", **SETTINGS), list[str](), MemoryState()
    words = words_of(topology, max_batches=1 + seed % 2, interval_s=0.5)
    words.shuffle(parallelism=2).records("left", parallelism=2).shuffle().bolt(
        "recorder", Recorder(seen)
    )
    words.group_by("word").aggregate(count(), state=state, parallelism=2)
    sim = SimCluster(seed, check=True).submit(topology.graph(), Layout.ISOLATE)
    for killed in range(3):
        sim.wait(0.4 + 0.13 * ((seed + killed) % 7))
        task = sim.plan.tasks_of(("left", "recorder", "words-2")[(seed + killed) % 3])[0]
        with suppress(ClusterError):  # it has just died
            sim.kill_worker(task.worker)
    assert sim.wait(600.0)
    assert sim.snapshot().restarts
    assert Counter(seen) >= Counter(WORDS)
    assert dict(state.items()) == Counter(WORDS)


def test_wrong_connections_of_batches_and_bolts_are_refused() -> None:
    topology = Topology("t")
    words = words_of(topology)
    bad: Any = words
    with pytest.raises(TopologyError, match=r"BatchStream is not an input; .*\.records"):
        topology.bolt("seen", watching([]), [bad])
    ordinary: Any = topology.spout("ordinary", Records([Word("sun")], type=Word))
    for source in (ordinary, ordinary.shuffle()):
        with pytest.raises(TopologyError, match=r"no batches .* give the spout that it comes from"):
            batches(topology, "more", source)
    words.records("left")
    with pytest.raises(DuplicateComponent, match="'left'"):
        words.records("left")
    with pytest.raises(TopologyError, match="parallelism is 0"):
        words.records("right", parallelism=0)
