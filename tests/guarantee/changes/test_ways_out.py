"""What a refused change says can be done instead is done: it works, and loses nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from sunshower import Bolt, Context, KeyState, KeyValueState, Spout, Topology
from sunshower.errors import LifecycleError
from sunshower.simulation.cluster import SimCluster, SimRun
from sunshower.state import SqliteState
from sunshower.topologies.graph import Graph
from sunshower.trident import FixedBatchSpout, InSqlite, batches

TOTAL, KEYS = 40, "abcd"


class Click(NamedTuple):
    user: str
    at: int


class Clicks(Spout[Click]):
    """`TOTAL` clicks over two seconds."""

    def open(self, context: Context) -> None:
        self.clock = context.clock

    def records(self) -> Iterator[Click | None]:
        begun_s = self.clock.now()
        for number in range(TOTAL):
            while self.clock.now() < begun_s + number / 20:
                yield None
            yield Click(KEYS[number % len(KEYS)], number)


def counted(click: Click, state: KeyState[int]) -> list[Click]:
    state.value = (state.value or 0) + 1
    return [click]


def counted_in_list(click: Click, state: KeyState[list[int]]) -> list[Click]:
    state.value = [(state.value or [0])[0] + 1]
    return [click]


class Kept(Bolt[Click, None]):
    """A bolt with a state, whose keys are those of the grouping."""

    state: KeyValueState[str, int]

    def process(self, click: Click) -> None:
        self.state[click.user] = (self.state.get(click.user) or 0) + 1


class Held(Bolt[Click, None]):
    """A bolt that may keep something in memory."""

    def process(self, click: Click) -> None: ...


class KeepsNothing(Held):
    def snapshot(self) -> None: ...

    def restore(self, state: None) -> None: ...


Declare = Callable[[Any, Path], Any]


def counts(function: Any = counted, file: str = "counts.db", **options: Any) -> Declare:
    settings = {"name": "counts", **options}
    return lambda clicks, folder: clicks.group_by("user").process(
        function, state=SqliteState(folder / file), **settings
    )


def in_memory(clicks: Any, folder: Path) -> Any:
    return clicks.group_by("user").process(counted, name="counts")


def bolt(code: Any, tasks: int = 1, file: str | None = None) -> Declare:
    options = {} if file is None else {"file": file}

    def declare(clicks: Any, folder: Path) -> Any:
        state = {name: SqliteState(folder / name) for name in options.values()}
        settings = {"state": next(iter(state.values()))} if state else {}
        return clicks.fields("user").bolt("counts", code, tasks, **settings)

    return declare


def nothing(clicks: Any, folder: Path) -> None: ...


def ordinary(declare: Declare, folder: Path, **config: Any) -> Graph:
    topology = Topology("clicks", **config)
    declare(topology.spout("clicks", Clicks()), folder)
    return topology.graph()


def in_batches(declare: Declare, folder: Path, **config: Any) -> Graph:
    topology, store = Topology("clicks", **config), InSqlite(folder / "batches.db")
    rows = [Click(KEYS[number % len(KEYS)], number) for number in range(TOTAL)]
    spout = FixedBatchSpout(rows, 2, type=Click)
    declare(batches(topology, "clicks", spout, store=store, interval_s=0.1), folder)
    return topology.graph()


def submitted_again(run: SimRun, cluster: SimCluster, graph: Graph) -> SimRun:
    """Kill the topology and submit it, as the message says."""
    run.kill()
    return cluster.submit(graph)


@pytest.mark.parametrize("program", [ordinary, in_batches])
@pytest.mark.parametrize(
    ("before", "after", "says", "way_out"),
    [
        (counts(), nothing, "keep the component and the name of its state", counts()),
        (counts(), counts(counted_in_list, "other.db"), "set that back", counts()),
        (
            counts(),
            counts(counted_in_list, "other.db"),
            "give the state another name, and kill the topology and submit it",
            counts(counted_in_list, "other.db", name="lists"),
        ),
    ],
)
def test_an_upgrade(
    tmp_path: Path, program: Any, before: Declare, after: Declare, says: str, way_out: Declare
) -> None:
    with SimCluster(1, latency_s=0.01) as cluster:
        run = cluster.submit(program(before, tmp_path))
        run.wait(0.5)
        with pytest.raises(LifecycleError, match=says):
            run.upgrade(program(after, tmp_path))
        if "another name" in says:
            run = submitted_again(run, cluster, program(way_out, tmp_path))
        else:
            run.upgrade(program(way_out, tmp_path))
        assert run.wait(60.0), run._describe()
    if "another name" not in says:
        totals = dict(SqliteState(tmp_path / "counts.db").items())
        assert totals == dict.fromkeys(KEYS, TOTAL // len(KEYS))


@pytest.mark.parametrize(
    ("before", "after", "says", "way_out"),
    [
        (counts(), counts(counted_in_list, version=2, migrate=lambda _, n: [n]), "kill the", None),
        (in_memory, in_memory, "give it a state= in a store", counts()),
        (bolt(Held), bolt(Held), "or kill the topology and submit it", None),
        (bolt(Kept, 1, "kept.db"), bolt(Kept, 2, "kept.db"), "If it uses those", None),
    ],
)
def test_what_needs_a_kill(
    tmp_path: Path, before: Declare, after: Declare, says: str, way_out: Declare | None
) -> None:
    with SimCluster(1, latency_s=0.01) as cluster:
        run = cluster.submit(ordinary(before, tmp_path))
        run.wait(0.5)
        with pytest.raises(LifecycleError, match=says):
            run.upgrade(ordinary(after, tmp_path))
        run = submitted_again(run, cluster, ordinary(way_out or after, tmp_path))
        run.wait(0.2)
        if way_out is not None or before is not in_memory:
            run.rebalance(workers=3)
        assert run.wait(60.0), run._describe()


@pytest.mark.parametrize("config", [{"worker_timeout_s": 60.0}, {"ackers": 0}])
def test_a_setting_changes_with_a_kill(tmp_path: Path, config: Any) -> None:
    with SimCluster(1, latency_s=0.01) as cluster:
        run = cluster.submit(in_batches(counts(), tmp_path))
        run.wait(0.5)
        if "worker_timeout_s" in config:
            with pytest.raises(LifecycleError, match="kill the topology and submit it: what is in"):
                run.upgrade(in_batches(counts(), tmp_path, **config))
            run = submitted_again(run, cluster, in_batches(counts(), tmp_path, **config))
        assert run.wait(60.0)
    totals = dict(SqliteState(tmp_path / "counts.db").items())
    assert totals == dict.fromkeys(KEYS, TOTAL // len(KEYS))


def test_a_rebalance_of_what_may_keep_something_says_what_to_write(tmp_path: Path) -> None:
    for code, says in ((Held, "write a snapshot"), (KeepsNothing, "")):
        with SimCluster(1, latency_s=0.01) as cluster:
            run = cluster.submit(ordinary(bolt(code), tmp_path))
            run.wait(0.2)
            if says:
                with pytest.raises(LifecycleError, match=says):
                    run.rebalance(tasks={"counts": 2})
            else:
                run.rebalance(tasks={"counts": 2})
                assert len(run.plan.tasks_of("counts")) == 2
            assert run.wait(60.0)


def test_a_class_with_a_state_gets_other_tasks_with_a_kill(tmp_path: Path) -> None:
    with SimCluster(1, latency_s=0.01) as cluster:
        run = cluster.submit(ordinary(bolt(Kept, 1, "kept.db"), tmp_path))
        run.wait(0.5)
        with pytest.raises(LifecycleError, match="kill the topology and submit it with another p"):
            run.rebalance(tasks={"counts": 2})
        run = submitted_again(run, cluster, ordinary(bolt(Kept, 2, "kept.db"), tmp_path))
        assert len(run.plan.tasks_of("counts")) == 2
        assert run.wait(60.0)
    assert dict(SqliteState(tmp_path / "kept.db").items()).keys() == {*KEYS}
