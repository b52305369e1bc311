"""A new run replaces the files of JsonLines, unless it goes on where a former run has stopped."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from sunshower import (
    Bolt,
    Counter,
    JsonLines,
    Number,
    Records,
    Retry,
    Spout,
    SpoutCollector,
    Topology,
)
from sunshower.errors import TopologyError
from sunshower.runtime.inline import InlineTopology, run_inline
from sunshower.simulation import SimCluster
from sunshower.trident import FixedBatchSpout, InMemory, InSqlite, batches


class Word(NamedTuple):
    word: str


class Queue(Spout[Number]):
    """A source that a run takes from: the next run finds what is left."""

    left: list[int]

    def next_tuple(self, out: SpoutCollector[Number]) -> bool:
        if Queue.left:
            out.emit(Number(Queue.left.pop(0)), message_id=1)
        return bool(Queue.left)


def values(path: Path) -> list[Any]:
    return [next(iter(json.loads(line).values())) for line in path.read_text().splitlines()]


def numbers_to(sink: JsonLines, count: int = 3, parallelism: int = 1) -> Topology:
    topology = Topology("numbers")
    topology.spout("numbers", Counter(count)).shuffle().bolt("out", sink, parallelism=parallelism)
    return topology


def test_a_new_run_replaces_the_file(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    run_inline(numbers_to(JsonLines(path), 5).graph())
    run_inline(numbers_to(JsonLines(path), 2).graph())
    assert values(path) == [0, 1]
    with InlineTopology(numbers_to(JsonLines(path), 4).graph()) as run:
        run.work(60)
    assert values(path) == [0, 1, 2, 3]


def test_the_files_of_all_tasks_are_replaced_also_of_one_that_writes_nothing(
    tmp_path: Path,
) -> None:
    path = tmp_path / "out.jsonl"
    for count in (10, 1):
        run_inline(numbers_to(JsonLines(path), count, parallelism=2).graph())
    assert values(tmp_path / "out.0.jsonl") + values(tmp_path / "out.1.jsonl") == [0]


def test_with_append_no_run_replaces_it(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    for _ in range(2):
        run_inline(numbers_to(JsonLines(path, append=True)).graph())
    assert values(path) == [0, 1, 2, 0, 1, 2]


@pytest.mark.parametrize(("append", "expected"), [(None, [0, 1, 2, 3]), (False, [2, 3])])
def test_a_source_that_goes_on_where_it_stopped_adds_to_the_file(
    append: bool | None, expected: list[int], tmp_path: Path
) -> None:
    path = tmp_path / "out.jsonl"
    for left in ([0, 1], [2, 3]):
        Queue.left = left
        topology = Topology("queue")
        stream = topology.spout("numbers", Queue)
        stream.map(lambda n: (n.value,), fields=["n"]).shuffle().bolt(
            "out", JsonLines(path, append=append)
        )
        with InlineTopology(topology.graph()) as run:
            run.work(0.2)
            run.drain()
            run.work(60)
    assert values(path) == expected


@pytest.mark.parametrize(
    "store", [lambda _: InMemory(), lambda folder: InSqlite(folder / "batches.db")]
)
def test_batches_add_to_the_file_if_their_progress_is_stored(
    store: Callable[[Path], Any], tmp_path: Path
) -> None:
    path, place = tmp_path / "out.jsonl", store(tmp_path)

    def run(words: str) -> None:
        topology = Topology("batches")
        spout = FixedBatchSpout([Word(word) for word in words], 1, type=Word)
        words_of = batches(topology, "words", spout, store=place)
        words_of.records("rows").shuffle().bolt("out", JsonLines(path))
        run_inline(topology.graph())

    run("a")
    run("ab")
    assert values(path) == ["a", "b"], "the second run goes on"
    (tmp_path / "new").mkdir()
    place = store(tmp_path / "new")
    run("a")
    assert values(path) == ["a"], "without progress it begins again"


def test_dead_letters_of_former_runs_stay(tmp_path: Path) -> None:
    path = tmp_path / "dead.jsonl"

    def fail(number: Number) -> None:
        raise ValueError("always")

    for _ in range(2):
        topology = Topology("failing")
        retry = Retry(attempts=1, dead_letters=path)
        topology.spout("numbers", Counter(1), retry=retry).shuffle().bolt("fail", fail)
        run_inline(topology.graph())
    assert len(path.read_text().splitlines()) == 2


def test_neither_a_death_nor_a_rebalance_nor_a_savepoint_replaces_it(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    path.write_text('{"value": "of a former run"}\n')
    topology = numbers_to(JsonLines(path), 20_000)
    with SimCluster(1) as cluster:
        run = cluster.submit(topology.graph())
        while not path.stat().st_size:
            run.wait(0.001)
        run.kill_worker(run.plan.tasks_of("out")[0].worker)
        run.wait(0.001)
        run.rebalance(1)
        assert not run.finished()
        savepoint = run.keep()
        run.kill()
        cluster.submit(topology.graph(), resume=savepoint).wait()
    assert set(values(path)) == set(range(20_000))


def test_a_resumed_run_adds_to_the_file(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    topology = numbers_to(JsonLines(path), 100_000)
    with SimCluster(2) as cluster:
        run = cluster.submit(topology.graph())
        while not path.exists() or not path.stat().st_size:
            run.wait(0.01)
        savepoint = run.keep()
        before = values(path)
        run.kill()
        cluster.submit(topology.graph(), resume=savepoint)
        assert values(path)[: len(before)] == before


def test_what_is_no_ordinary_file_is_left_alone(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    sink = JsonLines(tmp_path / "pipe")
    sink.__sunshower_begin__(1, continues=False)
    assert (tmp_path / "pipe").is_fifo()


def test_a_file_that_cannot_be_replaced_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "out.jsonl"
    path.write_text("{}\n")

    def refuse(*_: object) -> None:
        raise PermissionError(1, "not permitted")

    monkeypatch.setattr(os, "truncate", refuse)
    with pytest.raises(TopologyError, match=r"out\.jsonl.*append=True"):
        run_inline(numbers_to(JsonLines(path)).graph())


def test_a_bolt_class_and_other_bolts_are_not_asked() -> None:
    class Sink(Bolt[Number, None]):
        def process(self, record: Number) -> None:
            pass

    topology = Topology("classes")
    topology.spout("numbers", Records([Number(1)], type=Number)).shuffle().bolt("out", Sink)
    topology.graph().begin_outputs()
