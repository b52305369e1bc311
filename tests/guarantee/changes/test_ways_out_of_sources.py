"""What a refused change of a source, of its readers, or of a savepoint says instead is done."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from sunshower import (
    Bolt,
    Collector,
    Context,
    DirectStream,
    Layout,
    LogSpout,
    Polled,
    Spout,
    SpoutCollector,
    Topology,
    Tuple,
    count,
)
from sunshower.errors import LifecycleError
from sunshower.runtime.control.lifecycle import State
from sunshower.simulation.cluster import SimCluster, SimRun
from sunshower.state import SqliteState
from sunshower.topologies.graph import Graph
from sunshower.trident import InSqlite, batches
from tests.guarantee.changes.test_ways_out import Click, Clicks, Held, KeepsNothing, counted
from tests.trident.rigs.moving_states import Transactional, events_of, keep_rows


class Taps(Spout[Click]):
    """A source that Storm's way emits: `left` clicks."""

    def open(self, context: Context) -> None:
        self.left = 40

    def next_tuple(self, out: SpoutCollector[Click]) -> None:
        if self.left:
            self.left -= 1
            out.emit(Click("a", self.left), self.left)


class PortableTaps(Taps):
    def snapshot(self) -> None: ...

    def restore(self, state: None) -> None: ...


class Reader(LogSpout[Click]):
    """A log of 40 clicks, which stores no offsets."""

    def open(self, context: Context) -> None:
        self.left = [*range(40)]

    def poll(self, limit: int) -> Polled[Click]:
        numbers, self.left = self.left[:limit], self.left[limit:]
        return Polled(np.array(numbers, np.int64), [Click("a", number) for number in numbers])

    def acked(self, numbers: Any) -> None: ...


class OtherReader(Reader):
    pass


def quiet(click: Click) -> None: ...


def reads(source: Any, parallelism: int = 1, name: str = "clicks", **config: Any) -> Graph:
    topology = Topology("clicks", **config)
    topology.spout(name, source, parallelism).shuffle().bolt("quiet", quiet)
    return topology.graph()


def submitted_again(run: SimRun, cluster: SimCluster, graph: Graph) -> SimRun:
    run.kill(0.0)
    return cluster.submit(graph)


def assert_works(run: SimRun) -> None:
    run.wait(3.0)
    snapshot, (spout,) = run.snapshot(), run.plan.spouts
    assert snapshot.state in (State.ACTIVE, State.FINISHED)
    assert snapshot.component(spout.component).emitted >= 40


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        (reads(Clicks()), reads(Clicks(), name="taps"), "would be left without it; kill the topo"),
        (reads(Clicks()), reads(Taps()), "another kind of source.*; kill the topology and submit"),
        (reads(Reader()), reads(OtherReader()), "instead of a .*; kill the topology and submit it"),
        (reads(Taps()), reads(Taps()), "in memory.*; or kill the topology and submit it"),
        (reads(Clicks()), reads(Clicks(), ackers=0), "ackers=0 cannot .*; kill the topology and s"),
    ],
)
def test_a_source_is_replaced_with_a_kill(before: Graph, after: Graph, says: str) -> None:
    with SimCluster(1, latency_s=0.01) as cluster:
        run = cluster.submit(before)
        run.wait(0.5)
        with pytest.raises(LifecycleError, match=says):
            run.upgrade(after)
        run = submitted_again(run, cluster, after)
        assert_works(run)


@pytest.mark.parametrize(
    ("before", "after", "says", "way_out"),
    [
        (reads(Clicks()), reads(Clicks(), 2), "keep their number", reads(Clicks())),
        (reads(Taps()), reads(Taps()), r"write a snapshot\(\) that returns None", None),
    ],
)
def test_a_source_is_upgraded_as_its_refusal_says(
    before: Graph, after: Graph, says: str, way_out: Graph | None
) -> None:
    with SimCluster(1, latency_s=0.01) as cluster:
        run = cluster.submit(before)
        run.wait(0.5)
        with pytest.raises(LifecycleError, match=says):
            run.upgrade(after)
        if way_out is None:  # "in the running code, too"
            run = submitted_again(run, cluster, reads(PortableTaps()))
            run.wait(0.5)
            way_out = reads(PortableTaps())
        run.upgrade(way_out)
        assert_works(run)


# ---- numbers of tasks ----------------------------------------------------------------------------


class Chooser(Bolt[Click, Click]):
    """Sends to the tasks of `chosen` directly."""

    def prepare(self, context: Context) -> None:
        self.tasks = context.tasks["chosen"]

    def execute(self, tuple: Tuple[Click], out: Collector[Click]) -> None:
        out.emit_direct(self.tasks[tuple.record.at % len(self.tasks)], tuple.record, [tuple])
        out.ack(tuple)


class PortableChooser(Chooser):
    def snapshot(self) -> None: ...

    def restore(self, state: None) -> None: ...


def chosen(chooser: type[Chooser], tasks: int) -> Graph:
    topology = Topology("clicks")
    clicks = topology.spout("clicks", Clicks()).shuffle()
    clicks.bolt("chooser", chooser, fields=DirectStream(Click)).direct().bolt(
        "chosen", quiet, tasks
    )
    return topology.graph()


def in_batches(folder: Path, tasks: int = 1, *, by_key: bool = False) -> Graph:
    topology = Topology("clicks")
    source = Transactional(events_of(Random(1)), Random(1))
    store = InSqlite(folder / "batches.db")
    rows = batches(topology, "clicks", source, store=store, parallelism=tasks, interval_s=0.1)
    state = SqliteState(folder / "states.db")
    if by_key:
        rows.group_by("key").aggregate(count(), state=state, name="counts")
    else:
        rows.partition_by("key").partition_persist(state, keep_rows, name="counts")
    return topology.graph()


Make = Callable[[Path], Graph]


@pytest.mark.parametrize(
    ("before", "tasks", "says", "way_out"),
    [
        (
            lambda _: reads(Clicks()),
            {"clicks": 2},
            "Kill the topology, and submit it with another parallelism",
            lambda _: reads(Clicks(), 2),
        ),
        (
            lambda _: chosen(PortableChooser, 2),
            {"chosen": 1},
            "Kill the topology and submit it with another parallelism",
            lambda _: chosen(PortableChooser, 1),
        ),
        (
            in_batches,
            {"clicks": 2},
            "Kill the topology and submit it with another parallelism",
            lambda folder: in_batches(folder, 2),
        ),
    ],
)
def test_a_number_of_tasks_changes_with_a_kill(
    tmp_path: Path, before: Make, tasks: Mapping[str, int], says: str, way_out: Make
) -> None:
    with SimCluster(1, latency_s=0.01) as cluster:
        run = cluster.submit(before(tmp_path))
        run.wait(0.5)
        with pytest.raises(LifecycleError, match=says):
            run.rebalance(tasks=tasks)
        run = submitted_again(run, cluster, way_out(tmp_path))
        assert {name: len(run.plan.tasks_of(name)) for name in tasks} == tasks
        assert run.wait(120.0), run._describe()


@pytest.mark.parametrize(
    ("before", "names", "says", "way_out"),
    [
        (
            lambda _: chosen(Chooser, 2),
            {"chosen"},
            r"write snapshot\(\) and restore\(state\) for it",
            lambda _: chosen(PortableChooser, 2),
        ),
        (
            in_batches,
            {"clicks-2", "counts"},
            "Use aggregate, or process, of groups",
            lambda folder: in_batches(folder / "other", by_key=True),
        ),
    ],
)
def test_a_program_written_as_the_refusal_says_gets_other_tasks_while_it_runs(
    tmp_path: Path, before: Make, names: set[str], says: str, way_out: Make
) -> None:
    (tmp_path / "other").mkdir()
    with SimCluster(1, latency_s=0.01) as cluster:
        run = cluster.submit(before(tmp_path))
        run.wait(0.5)
        (id,) = [id for id in run.plan.graph.components if id in names]
        with pytest.raises(LifecycleError, match=says):
            run.rebalance(tasks={id: 3})
        run = submitted_again(run, cluster, way_out(tmp_path))
        run.wait(0.5)
        (id,) = [id for id in run.plan.graph.components if id in names]
        run.rebalance(tasks={id: 3})
        assert len(run.plan.tasks_of(id)) == 3
        assert run.wait(120.0), run._describe()


def test_a_layout_says_how_many_workers_there_are() -> None:
    with SimCluster(1, latency_s=0.01) as cluster:
        run = cluster.submit(reads(Clicks()))
        run.wait(0.2)
        with pytest.raises(LifecycleError, match="leave out the number, or use the layout pack"):
            run.rebalance(2, Layout.ISOLATE)
        run.rebalance(layout=Layout.ISOLATE)
        run.rebalance(2, Layout.PACK)
        assert len(run.plan.workers) == 2


@pytest.mark.parametrize("code", [Held, KeepsNothing])
def test_tasks_in_memory_stay_where_they_are(code: Any) -> None:
    """Without a snapshot they need as many workers as they have."""

    def declared(bolt: Any) -> Graph:
        topology = Topology("clicks", workers=2)
        topology.spout("clicks", Clicks()).shuffle().bolt("held", bolt, 4)
        return topology.graph()

    with SimCluster(1, latency_s=0.01) as cluster:
        run = cluster.submit(declared(code))
        run.wait(0.2)
        if code is Held:
            with pytest.raises(LifecycleError, match="or ask for more workers"):
                run.rebalance(1)
            run.rebalance(3)
            assert len(run.plan.workers) == 3
        else:  # "Write snapshot() and restore(state)"
            run.rebalance(1)
            assert len(run.plan.workers) == 1
        assert run.wait(60.0)


# ---- savepoints ----------------------------------------------------------------------------------


def with_count(folder: Path, function: Any = counted) -> Graph:
    topology = Topology("clicks")
    clicks = topology.spout("clicks", Clicks())
    clicks.group_by("user").process(
        function, state=SqliteState(folder / "counts.db"), name="counts"
    )
    return topology.graph()


def test_a_topology_without_a_savepoint_is_killed_without_one_or_gets_a_snapshot() -> None:
    def holds(bolt: Any) -> Graph:
        topology = Topology("clicks")
        topology.spout("clicks", Clicks()).shuffle().bolt("held", bolt)
        return topology.graph()

    with SimCluster(1, latency_s=0.01) as cluster:
        run = cluster.submit(holds(Held))
        run.wait(0.5)
        says = r"Write snapshot\(\) and restore\(state\) for 'held', or kill .* without --keep"
        with pytest.raises(LifecycleError, match=says):
            run.keep()
        run = submitted_again(run, cluster, holds(KeepsNothing))
        run.wait(0.5)
        savepoint = run.keep()
        run.kill(0.0)
        assert cluster.submit(holds(KeepsNothing), resume=savepoint).wait(60.0)


def test_a_savepoint_continues_with_the_code_that_fits_or_the_program_starts_over(
    tmp_path: Path,
) -> None:
    with SimCluster(1, latency_s=0.01) as cluster:
        run = cluster.submit(with_count(tmp_path))
        run.wait(0.5)
        savepoint = run.keep()
        run.kill(0.0)
        says = "Give it the code that fits, or submit the topology without --resume to start over"
        with pytest.raises(LifecycleError, match=says):
            cluster.submit(reads(Clicks()), resume=savepoint)
        assert cluster.submit(with_count(tmp_path), resume=savepoint).wait(60.0)
        assert sum(dict(SqliteState(tmp_path / "counts.db").items()).values()) == 40
    with SimCluster(2, latency_s=0.01) as cluster:
        run = cluster.submit(reads(Clicks()))
        assert run.wait(60.0)
