"""Each query of Nexmark by operators has the rows of a plain program, whatever the disorder."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from examples.nexmark.events import BEGIN, DISORDER, Auction, Bid, Nexmark, Person, events
from examples.nexmark.inputs import Inputs, declare
from examples.nexmark.queries import QUERIES
from sunshower import Bolt, Topology, run_inline
from sunshower.clock import ManualClock
from sunshower.simulation import SimCluster
from tests.examples.plain_nexmark import PLAIN, Row, Sorted
from tests.seeds import seeds

FOLDER = Path(__file__).resolve().parents[2] / "examples/nexmark"
FILES = Inputs.folder
COUNT, RATE = 2_000, 10
# Queries whose answer is the last row of each key, and the number of fields in this.
KEYS = {"q4": 1, "q6": 1, "q9": 1, "q15": 1, "q16": 2, "q17": 2, "q18": 2, "q19": 2}


class Rows(Bolt[Any, None]):
    """Keeps what it gets, in the order in which it comes."""

    def prepare(self, _context: object) -> None:
        self.rows: list[Row] = []

    def process(self, record: Any) -> None:
        self.rows.append(tuple(record))

    def result(self) -> list[Row]:
        return self.rows


@cache
def expected(name: str, seed: int) -> Counter[Row]:
    return Counter(PLAIN[name](Sorted(events(COUNT, seed, RATE))))


def declared(name: str, seed: int, tasks: int) -> Topology:
    topology = Topology(name)
    events = topology.spout("events", Nexmark(COUNT, seed, RATE), parallelism=2)
    QUERIES[name](declare(topology, events, tasks)).shuffle().bolt("rows", Rows)
    return topology


def bids_in_files(partitions: Iterable[str]) -> Iterator[Row]:
    """The bids in the files of these partitions, which are complete."""
    for partition in partitions:
        folder = Path(FILES, partition)
        assert (folder / "_SUCCESS").exists()
        for file in folder.glob("*.jsonl"):
            for line in file.read_text(encoding="utf-8").splitlines():
                yield partition, *json.loads(line).values()


def answer(name: str, rows: Iterable[Row]) -> Counter[Row]:
    if name == "q10":
        return Counter(bids_in_files({partition for partition, _files, _late in rows}))
    if name in KEYS:
        return Counter({row[: KEYS[name]]: tuple(row) for row in rows}.values())
    if name == "q12":
        bids = Counter[int]()
        for bidder, _window, count in rows:
            bids[bidder] += count
        return Counter(bids.items())
    return Counter(map(tuple, rows))


@pytest.mark.parametrize("tasks", [1, 3])
@pytest.mark.parametrize("name", QUERIES)
def test_a_query_has_the_rows_of_the_plain_program(
    name: str, tasks: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = run_inline(declared(name, 1, tasks).graph(), seed=tasks, clock=ManualClock())
    rows = answer(name, done.results["rows"][0])
    wanted = expected(name, 1)
    assert wanted
    assert (wanted - rows, rows - wanted) == (Counter(), Counter())


@seeds(4)
@pytest.mark.parametrize("name", ["q5", "q8", "q9", "q20"])
def test_the_same_between_processes(name: str, seed: int) -> None:
    with SimCluster(seed) as cluster:
        run = cluster.submit(declared(name, 1, 3).graph())
        run.wait()
        assert answer(name, run.results("rows")[0]) == expected(name, 1)


def test_the_events_of_a_seed_are_the_same_and_come_with_bounded_disorder() -> None:
    generated = events(COUNT, 1, RATE)
    events.cache_clear()
    assert events(COUNT, 1, RATE) == generated != events(COUNT, 2, RATE)
    newest = [max(event.at for event in generated[: number + 1]) for number in range(COUNT)]
    behind = [newest[number] - event.at for number, event in enumerate(generated)]
    assert 0 < max(behind) <= DISORDER
    assert {event.at for event in generated} == {BEGIN + 1_000 * n // RATE for n in range(COUNT)}
    kinds = (Person, Auction, Bid)
    count = {
        kind: sum(isinstance(part, kind) for event in generated for part in event) for kind in kinds
    }
    assert count == {Person: COUNT // 50, Auction: COUNT // 50 * 3, Bid: COUNT // 50 * 46}


def test_the_queries_are_short_and_each_has_its_plain_program() -> None:
    assert {*QUERIES} == {*PLAIN}
    files = [file for file in FOLDER.glob("*.py") if file.name != "events.py"]
    assert sum(len(file.read_text(encoding="utf-8").splitlines()) for file in files) < 700
