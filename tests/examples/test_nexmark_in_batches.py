"""Queries of Nexmark have the same rows in exactly-once batches, each once."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest

from examples.nexmark.events import events
from examples.nexmark.inputs import declare
from examples.nexmark.queries import QUERIES
from sunshower import Topology, run_inline
from sunshower.clock import ManualClock
from sunshower.errors import ClusterError
from sunshower.simulation import SimCluster
from sunshower.state import MemoryState
from sunshower.trident import InMemory, batches
from tests.examples.test_nexmark import COUNT, RATE, Row, Rows, answer, expected
from tests.seeds import seeds
from tests.trident.rigs.moving_states import keep_rows
from tests.trident.rigs.numbers import OpaqueRowBatches, RowBatches
from tests.trident.rigs.programs import SETTINGS


def declared(
    name: str, tasks: int, kind: type[Any] = RowBatches, rows: int = 50, **config: Any
) -> tuple[Topology, Any]:
    topology = Topology(name, **config)
    spout = kind(events(COUNT, 1, RATE), rows, partitions=2)
    about: Any = {"parallelism": 2, "store": InMemory(), "max_batches": 2}
    stream: Any = batches(topology, "events", spout, **about)
    return topology, QUERIES[name](declare(topology, stream, tasks, MemoryState()))


@pytest.mark.parametrize("tasks", [1, 3])
@pytest.mark.parametrize("name", QUERIES)
def test_a_query_has_the_rows_of_the_plain_program(
    name: str, tasks: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    topology, rows = declared(name, tasks)
    rows.records("out").shuffle().bolt("rows", Rows)
    done = run_inline(topology.graph(), seed=tasks, clock=ManualClock(), steps_max=200_000)
    rows_found, wanted = answer(name, done.results["rows"][0]), expected(name, 1)
    assert (wanted - rows_found, rows_found - wanted) == (Counter(), Counter())


def stored_rows(name: str, tasks: int, seed: int) -> list[Any]:
    """What a state that has the rows of each batch once has, after workers were killed."""
    draw, kind = Random(seed), (RowBatches, OpaqueRowBatches)[(seed + seed // 4) % 2]
    topology, rows = declared(name, tasks, kind, 60, workers=3, **SETTINGS)
    stored = MemoryState()
    rows.global_().partition_persist(stored, keep_rows, name="kept")
    with SimCluster(seed) as cluster:
        run = cluster.submit(topology.graph())
        for _ in range(4):
            run.wait(draw.uniform(0.05, 0.5))
            with suppress(ClusterError):  # it is dead already
                run.kill_worker(draw.randrange(3))
        assert run.wait(300.0)
    return list(dict(stored.items())["rows"])


@seeds(40, kinds=4)
def test_each_row_is_there_once_although_workers_are_killed(seed: int) -> None:
    name = ("q5", "q7", "q11", "q12")[seed % 4]
    result = [tuple(map(int, row)) for row in stored_rows(name, 3, seed)]
    assert answer(name, result) == as_numbers(expected(name, 1))


@seeds(40, kinds=4)
def test_each_pair_and_match_is_there_once_although_workers_are_killed(seed: int) -> None:
    name = ("q20", "q9", "p1", "q8")[seed % 4]
    counts = Counter(map(tuple, stored_rows(name, 2, seed)))
    texts = Counter[Row]()
    for row, count in expected(name, 1).items():
        texts[tuple(map(str, row))] += count
    if name == "q9":  # it has a row of each change of a total, the last one included
        assert texts - counts == Counter()
    else:
        assert counts == texts


def as_numbers(rows: Counter[Row]) -> Counter[Row]:
    return Counter({tuple(map(int, row)): count for row, count in rows.items()})
