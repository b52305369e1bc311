"""The constructor of a record runs once, whatever way its values take through a program."""

from __future__ import annotations

from ast import literal_eval
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from sunshower import (
    Bolt,
    Context,
    KeyState,
    Records,
    Topology,
    collect,
    count,
    max_,
    run_inline,
    sum_,
    tumbling,
)
from sunshower.clock import ManualClock
from sunshower.runtime.plan import Layout
from sunshower.simulation.cluster import SimCluster
from sunshower.state import MemoryState, SqliteState
from sunshower.trident import FixedBatchSpout, InMemory, batches

constructed: list[int] = []  # whose constructor has run


@dataclass
class Reading:
    """Sensors send °F."""

    number: int
    sensor: str
    at: float
    degrees: float
    tags: list[str] = field(default_factory=list, kw_only=True)
    label: str = field(init=False)

    def __post_init__(self) -> None:
        constructed.append(self.number)
        self.degrees = round((self.degrees - 32) * 5 / 9, 3)
        self.label = f"{self.sensor}-{self.number}"

    def __setattr__(self, name: str, value: Any) -> None:
        assert name not in vars(self) or name == "degrees", f"{name} is set again"
        object.__setattr__(self, name, value)


class Joined(NamedTuple):
    number: int
    sensor: str
    at: float
    degrees: float
    tags: list[str]
    label: str
    other_at: float
    other: Reading


class Other(NamedTuple):
    number: int
    sensor: str
    at: float
    other: Reading


class Pair(NamedTuple):
    number: int
    at: float
    other: Reading


def readings(total: int = 60) -> list[Reading]:
    return [Reading(n, "abc"[n % 3], n * 10.0, 212.0 + n, tags=[str(n)]) for n in range(total)]


class Kept(Bolt[Any, None]):
    def prepare(self, context: Context) -> None:
        self.seen: list[str] = []

    def process(self, record: Any) -> None:
        self.seen.append(repr(record))

    def result(self) -> list[str]:
        return self.seen


def same(reading: Reading) -> Reading:
    return reading


def latest(reading: Reading, state: KeyState[dict[str, Reading]]) -> Iterator[Reading]:
    """Each record together with the one before it, which was in the state."""
    before = (state.value or {}).get("last", reading)
    state.value = {"last": reading}
    yield before


Program = Callable[[Topology, list[Reading]], Any]


def hops(topology: Topology, records: list[Reading]) -> Any:
    stream: Any = topology.spout("readings", Records(records, type=Reading))
    for name in "abc":
        stream = stream.shuffle().stage(name, parallelism=2).map(same)
    return stream


def keyed_state(topology: Topology, records: list[Reading]) -> Any:
    stream = topology.spout("readings", Records(records, type=Reading))
    return stream.group_by("sensor").process(latest, parallelism=2)


def window_of_records(topology: Topology, records: list[Reading]) -> Any:
    others = [Other(reading.number, reading.sensor, reading.at, reading) for reading in records]
    stream = topology.spout("readings", Records(others, type=Other))
    windows = tumbling(seconds=100, field="at")
    return stream.group_by("sensor").window(windows, count(), collect("other"), parallelism=2)


def join_of_records(topology: Topology, records: list[Reading]) -> Any:
    left = topology.spout("left", Records(records, type=Reading))
    others = [Pair(reading.number, reading.at, reading) for reading in records]
    right = topology.spout("right", Records(others, type=Pair))
    how: dict[str, Any] = {"within": 50, "field": "at", "parallelism": 2, "fields": Joined}
    return left.join(right, "number", **how)


def totals(topology: Topology, records: list[Reading]) -> Any:
    stream = topology.spout("readings", Records(records, type=Reading))
    return stream.group_by("sensor").aggregate(sum_("degrees"), max_("degrees"), parallelism=2)


def batches_and_back(topology: Topology, records: list[Reading]) -> Any:
    spout = FixedBatchSpout(records, 7, type=Reading)
    stream = batches(topology, "batches", spout, store=InMemory())
    moved = stream.shuffle().map(same)
    latest_rows = moved.group_by("sensor").process(latest, state=MemoryState(), parallelism=2)
    return latest_rows.records("back")


PROGRAMS: list[Program] = [
    *(hops, keyed_state, window_of_records, join_of_records, totals, batches_and_back)
]


def topology_of(program: Program, workers: int, total: int = 60) -> Topology:
    topology = Topology("records", workers=workers, ackers=1)
    program(topology, readings(total)).shuffle().bolt("kept", Kept)
    constructed.clear()
    return topology


def in_one_process(program: Program) -> list[str]:
    graph = topology_of(program, 1).graph()
    parts = run_inline(graph, clock=ManualClock(), steps_max=99_999).results["kept"]
    assert constructed == [], "inline"
    return sorted(line for part in parts for line in part)


def last_totals(lines: list[str]) -> list[Any]:
    totals: dict[str, Any] = {}
    for sensor, sum_of_it, highest in map(literal_eval, lines):
        totals[sensor] = max(totals.get(sensor, (0, 0)), (round(sum_of_it, 6), highest))
    return sorted(totals.items())


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_on_several_workers_gives_what_it_gives_in_one_process(program: Program) -> None:
    expected = in_one_process(program)
    assert expected
    with SimCluster(1) as cluster:
        run = cluster.submit(topology_of(program, 3).graph(), layout=Layout.ISOLATE)
        assert run.wait(600)
        lines = sorted(line for part in run.results("kept") for line in part)
    if program is totals:  # the last ones: those before depend on the order of arrival
        lines, expected = last_totals(lines), last_totals(expected)
    elif program in (keyed_state, batches_and_back):
        lines, expected = sorted(set(lines)), sorted(set(expected))
    assert lines == expected
    assert constructed == []


@pytest.mark.parametrize("program", [hops, keyed_state, window_of_records, join_of_records])
def test_no_constructor_runs_in_a_rebalance_or_after_a_worker_died(program: Program) -> None:
    with SimCluster(3) as cluster:
        run = cluster.submit(topology_of(program, 3, 300).graph(), layout=Layout.ISOLATE)
        run.rebalance(workers=2, layout=Layout.PACK, wait_s=0.1)
        run.rebalance(layout=Layout.ISOLATE, wait_s=0.1)
        (kept_task,) = run.plan.tasks_of("kept")
        busy = next(task.worker for task in run.plan.tasks if task.worker != kept_task.worker)
        run.kill_worker(busy)
        assert run.wait(600)
        lines = {line for part in run.results("kept") for line in part}
    assert constructed == []
    if program is hops:
        assert lines == {repr(reading) for reading in readings(300)}


# ---- a stored record that gains fields ----------------------------------------------------------


@dataclass
class Visit:
    number: int

    def __post_init__(self) -> None:
        constructed.append(self.number)
        self.number *= 2


@dataclass
class LaterVisit:
    number: int
    place: str = "here"
    tags: list[str] = field(default_factory=lambda: ["new"])

    def __post_init__(self) -> None:
        constructed.append(self.number)
        self.number *= 2


LaterVisit.__qualname__ = LaterVisit.__name__ = "Visit"  # the same class in the next release


def visited(number: tuple[str, int], state: KeyState[Visit]) -> Iterator[tuple[str]]:
    state.value = state.value or Visit(number[1])
    yield (repr(state.value),)


def visited_later(number: tuple[str, int], state: KeyState[LaterVisit]) -> Iterator[tuple[str]]:
    assert state.value is not None
    state.value.tags.append("again")
    yield (repr(state.value),)


@pytest.mark.parametrize("workers", [1, 3])
def test_a_stored_record_that_gains_fields_has_their_defaults(workers: int, tmp_path: Path) -> None:
    shown: list[set[str]] = []
    for release in (visited, visited_later, visited_later):
        topology = Topology("visits", workers=workers)
        numbers = topology.spout("numbers", Records([("a", 3), ("b", 4)], fields=["key", "number"]))
        store = SqliteState(tmp_path / "visits.db")
        visits = numbers.group_by("key").process(release, state=store, fields=["text"], name="kept")
        visits.shuffle().bolt("seen", Kept)
        constructed.clear()
        with SimCluster(1) as cluster:
            run = cluster.submit(topology.graph())
            assert run.wait(600)
            shown.append({line for part in run.results("seen") for line in part})
        assert sorted(constructed) == ([3, 4] if release is visited else [])
    numbers_of = [{"6" in line for line in lines} for lines in shown]
    assert numbers_of == [{True, False}] * 3
    assert any("place='here', tags=['new', 'again']" in line for line in shown[1])
    assert all("tags=['new', 'again', 'again']" in line for line in shown[2])
