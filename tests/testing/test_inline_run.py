"""Runs topologies inline: replaced components, captured streams, and errors."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from sunshower import Bolt, DeadLetter, Line, Records, Retry, Topology, count, run_inline
from sunshower.errors import (
    ClusterError,
    TopologyError,
    TopologyFailed,
    UnknownComponent,
    UnknownStream,
)
from sunshower.testing import Feeder, assert_counts, assert_lossless, run
from tests.testing.shop import LINES, WORDS, Count, Database, Store, Total, Word, counting, split


def ignore(record: Any) -> None: ...


def test_a_list_takes_the_place_of_a_source() -> None:
    done = run(counting(), {"lines": LINES})
    assert done.emitted("lines") == LINES
    assert done.acked("lines") == LINES
    assert done.failed("lines") == []
    assert_lossless(done)
    assert_counts(done.emitted("split"), [Word(word) for word in WORDS])
    assert sorted(done.emitted("split", "lengths")) == [(12,), (12,)]


def test_results_and_counters_of_a_run_can_be_read() -> None:
    done = run(counting(), {"lines": LINES})
    merged = {word: n for task in done.results("count") for word, n in task.items()}
    assert merged == {"rain": 1, "and": 2, "sun": 2, "wind": 1}
    assert (done.counts("split").executed, done.counts("count").executed) == (2, 6)
    assert "topology counting: finished<" in done._repr_html_()


def test_a_function_or_a_bolt_takes_the_place_of_a_bolt() -> None:
    seen: list[Total] = []
    run(counting(), {"lines": LINES, "store": seen.append})
    assert len(seen) == 6
    database = Database()
    run(counting(), {"lines": LINES, "store": Store(database)})
    assert database.totals == seen


def test_another_spout_takes_the_place_of_a_source() -> None:
    done = run(counting(), {"lines": Records(LINES, type=Line)})
    assert done.counts("lines").acked == 2
    with pytest.raises(TopologyError, match="component 'lines': it is not fed by the test"):
        done.acked("lines")


@dataclass(frozen=True)
class Frozen(Bolt[Any, None]):
    seen: list[Any]

    def process(self, record: Any) -> None:
        self.seen.append(record)


def test_a_bolt_may_be_a_frozen_dataclass() -> None:
    done = run(counting(), {"lines": LINES, "store": Frozen([])})
    assert done.counts("store").executed == 6


def test_captured_records_are_not_counted_as_transferred() -> None:
    topology = Topology("transfers")
    lines = topology.spout("lines", Records(LINES, type=Line), parallelism=2)
    words = lines.all().bolt("split", split, parallelism=2, streams={"lengths": ("length",)})
    words.fields("word").bolt("count", Count, parallelism=2)
    real, tested = run_inline(topology.graph()).snapshot, run(topology)
    for id in ("lines", "split", "count"):
        counts, expected = tested.counts(id), real.component(id)
        assert counts == expected
        assert counts.transferred_to == expected.transferred_to
    assert tested.counts("lines").transferred == 4  # two lines to two tasks


def test_a_feeder_is_for_one_spout_of_one_run() -> None:
    feeder = Feeder(*LINES)
    assert run(counting(), {"lines": feeder}).acked("lines") == LINES
    with pytest.raises(TopologyError, match="component 'lines': this Feeder already feeds a spout"):
        run(counting(), {"lines": feeder})


def test_a_topology_can_be_tested_many_times() -> None:
    topology = counting()
    for lines in (LINES, LINES[:1], []):
        assert run(topology, {"lines": lines}).acked("lines") == lines


def test_a_feeder_can_be_declared_as_a_source() -> None:
    topology, feeder = Topology("fed"), Feeder(*LINES, type=Line)
    topology.spout("lines", feeder, parallelism=2).shuffle().bolt("ignore", ignore)
    done = run(topology)
    assert sorted(feeder.acks) == sorted(LINES)
    assert feeder.pending == []
    assert done.feeders == {"lines": feeder}
    with pytest.raises(TopologyError, match="has ended"):
        feeder.feed(LINES[0])


def test_operators_have_streams_of_their_own_name() -> None:
    topology = Topology("words")
    lines = topology.spout("lines", Records([], type=Line))
    words = lines.flat_map(lambda line: [(w,) for w in line.text.split()], fields=["word"])
    totals = words.group_by("word").aggregate(count())
    totals.shuffle().bolt("store", ignore)
    done = run(topology, {"lines": LINES})
    last = dict(done.emitted("count"))
    assert last == {"rain": 1, "and": 2, "sun": 2, "wind": 1}
    assert done.emitted("count", "totals") == done.emitted("count")


def test_requests_are_answered() -> None:
    topology = Topology("asked")
    topology.requests("double", ["n"]).map(lambda row: (row[0] * 2,), fields=["n"]).answer()
    assert run(topology, requests={"double": [1, 4]}).answers("double") == [[(2,)], [(8,)]]


def test_failed_attempts_are_reported_with_their_records() -> None:
    letters: list[Any] = []
    topology = Topology("failing")
    retry = Retry(attempts=2, dead_letters=True)
    lines = topology.spout("lines", Records([], type=Line), retry=retry)

    def refuse(line: Line) -> None:
        if line == LINES[0]:
            raise ValueError("no rain")

    def keep(letter: DeadLetter) -> None:
        letters.append(letter)

    lines.shuffle().bolt("refuse", refuse)
    lines.stream("dead_letters").shuffle().bolt("letters", keep)
    done = run(topology, {"lines": LINES})
    assert [(line, failure.attempt) for line, failure in done.failed("lines")] == [
        (LINES[0], 1),
        (LINES[0], 2),
    ]
    assert done.emitted("lines", "dead_letters") == letters
    with pytest.raises(AssertionError, match="dead letters of spout 'lines': 1"):
        assert_lossless(done)


class Mutating(Bolt[Any, None]):
    def process(self, record: list[int]) -> None:
        record[0].append(1)  # type: ignore[attr-defined]


def test_a_bolt_that_changes_its_input_ends_the_test() -> None:
    topology = Topology("mutating")
    lists = topology.spout("lists", Records([], fields=["values"]))
    lists.shuffle().bolt("mutate", Mutating)
    with pytest.raises(TopologyFailed, match="check_mutation"):
        run(topology, {"lists": [([],)]})


def test_a_source_without_an_end_raises_an_error() -> None:
    def endless() -> Iterator[Line | None]:
        while True:
            yield None

    topology = Topology("endless")
    lines = topology.spout("lines", Records(endless, type=Line))
    lines.shuffle().bolt("ignore", ignore)
    with pytest.raises(ClusterError, match="the spouts never end"):
        run(topology, steps_max=50)


@pytest.mark.parametrize(
    ("replaced", "kind", "message"),
    [
        ({"line": LINES}, UnknownComponent, "no component 'line'; its components are: lines, s"),
        ({"lines": "rain"}, TopologyError, "'rain' is not a list of records"),
        ({"lines": 3}, TopologyError, "3 is not a list of records"),
        ({"lines": Store}, TopologyError, "Store is not a spout"),
        ({"store": Feeder()}, TopologyError, "is not a bolt"),
        ({"store": LINES}, TopologyError, "is not a bolt"),
    ],
)
def test_an_unsuitable_replacement_is_refused(
    replaced: dict[str, Any], kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message):
        run(counting(), replaced)


def test_an_unknown_stream_is_refused_with_the_names_of_the_captured_ones() -> None:
    done = run(counting(), {"lines": LINES})
    with pytest.raises(UnknownStream, match="captured are: 'default', 'lengths'"):
        done.emitted("split", "errors")
    with pytest.raises(UnknownStream, match="captured are: none"):
        done.emitted("store")
    with pytest.raises(UnknownComponent):
        done.counts("stores")


def test_the_tested_topology_is_not_changed() -> None:
    topology = counting()
    run(topology, {"lines": LINES})
    graph = topology.graph()
    assert set(graph.components) == {"lines", "split", "count", "store"}
    with pytest.raises(TopologyFailed, match="no real source"):
        run_inline(graph, steps_max=1000)
