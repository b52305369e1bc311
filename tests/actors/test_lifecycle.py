"""A topology on Ray is deactivated, activated, rebalanced and killed while it works."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import ray

from sunshower import Bolt, Context, Counter, JsonLines, Number, Spout, SpoutCollector, Topology
from sunshower.actors.cluster import RayCluster
from sunshower.actors.run import RayRun
from sunshower.errors import ClusterError, LifecycleError
from sunshower.runtime.control import events
from sunshower.runtime.control.lifecycle import State
from sunshower.runtime.events.metrics import Snapshot
from sunshower.runtime.plan import Layout
from tests.actors.programs.evidence import Held
from tests.guarantee.deaths import RECOVERY_S

TOTAL, GATED = 100_000, 20_000


class Seen(NamedTuple):
    n: int


def check(number: Number) -> Iterator[Seen]:
    yield Seen(number.value)


class Numbers(Spout[Number]):
    """Has its own message ids and no records(), so only its snapshot can move. Half of the numbers
    come only when the file `gate` is there."""

    def __init__(self, gate: Path) -> None:
        self.gate = gate

    def open(self, context: Context) -> None:
        self.n, self.step = context.index, context.parallelism

    def next_tuple(self, out: SpoutCollector[Number]) -> None:
        if self.n >= GATED:
            out.finish()
        elif self.n < GATED // 2 or self.gate.exists():
            out.emit(Number(self.n), self.n)
            self.n += self.step

    def snapshot(self) -> int:
        return self.n

    def restore(self, state: int) -> None:
        self.n = state


class Tally(Bolt[Any, None]):
    """Keeps all numbers that it has seen, to find records that were lost in a move."""

    def prepare(self, context: Context) -> None:
        self.seen: set[int] = set()

    def process(self, record: Any) -> None:
        self.seen.add(record.n)

    def result(self) -> set[int]:
        return self.seen


class MovingTally(Tally):
    def snapshot(self) -> set[int]:
        return self.seen

    def restore(self, state: set[int]) -> None:
        self.seen = state


def tally(spout: Any, bolt: Any = MovingTally, **settings: Any) -> Topology:
    topology = Topology("tally", spout_pending=64, **settings)
    seen = topology.spout("numbers", spout, parallelism=2).shuffle().bolt("check", check, 3)
    seen.fields("n").bolt("tally", bolt, parallelism=3)
    return topology


@contextmanager
def submitted(cluster: RayCluster, topology: Topology, **how: Any) -> Iterator[RayRun]:
    run = cluster.submit(topology.graph(), **how)
    try:
        yield run
    finally:
        run.stop()


def until(run: RayRun, enough: Callable[[Snapshot], bool]) -> Snapshot:
    end_s = time.monotonic() + RECOVERY_S
    while not enough(snapshot := run.snapshot()):
        assert time.monotonic() < end_s, f"the condition never held: {snapshot}"
        run.wait(0.05)
    return snapshot


def acked(snapshot: Snapshot) -> int:
    return snapshot.component("numbers").acked


@pytest.mark.parametrize(
    "spout",
    [pytest.param(partial(Held, GATED), marks=pytest.mark.long), Numbers],
    ids=["records", "next_tuple"],
)
def test_nothing_is_lost_when_the_number_of_workers_changes_under_load(
    spout: Callable[[Path], Spout[Number]], ray_cluster: RayCluster, tmp_path: Path
) -> None:
    states: list[str] = []
    gate = tmp_path / "gate"

    def look(snapshot: Snapshot) -> None:
        states.extend([snapshot.state] if snapshot.state not in states[-1:] else [])

    with submitted(ray_cluster, tally(spout(gate)), active=False) as run:
        look(run.snapshot())
        assert acked(run.snapshot()) == 0
        run.activate()
        look(until(run, lambda snapshot: acked(snapshot) > 0))
        assert run.plan.workers == [0, 1]
        run.rebalance(workers=3, look=look)
        assert run.plan.workers == [0, 1, 2]
        until(run, lambda snapshot: len(snapshot.workers) == 3)
        run.deactivate()
        look(run.snapshot())
        run.rebalance(workers=2, look=look)
        assert len(run.plan.workers) == 2
        until(run, lambda snapshot: len(snapshot.workers) == 2)
        gate.touch()
        run.activate()
        assert run.wait(150)
        snapshot = run.snapshot()
        assert set().union(*run.results("tally")) == set(range(GATED))
        counts = snapshot.component("numbers")  # failed calls may cause replays
        assert acked(snapshot) == counts.emitted - counts.replayed == GATED
        assert snapshot.restarts == 0
    assert states == [
        State.INACTIVE, State.ACTIVE, State.REBALANCING, State.ACTIVE,
        State.INACTIVE, State.REBALANCING, State.INACTIVE,
    ]  # fmt: skip


def forget(number: Number) -> None:
    import threading

    threading.Event().wait(0.05)


@pytest.mark.long
def test_kill_without_a_wait_reports_what_was_pending(ray_cluster: RayCluster) -> None:
    topology = Topology("slow", spout_pending=200)
    topology.spout("numbers", Counter()).shuffle().bolt("forget", forget)
    with submitted(ray_cluster, topology) as run:
        until(run, lambda snapshot: snapshot.component("numbers").pending > 0)
        report = run.kill(wait_s=0)
        assert report.unsettled > 0
        assert report.seconds < 5


@pytest.mark.long
def test_master_that_is_killed_during_a_rebalance_is_followed_by_one_that_completes_it(
    ray_cluster: RayCluster, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    with submitted(ray_cluster, tally(Held(TOTAL, gate))) as run:
        until(run, lambda snapshot: acked(snapshot) > 0)
        run._apply(events.RebalanceTasks(3))
        run.kill_master()
        until(run, lambda snapshot: snapshot.state != State.REBALANCING)
        assert run.plan.workers == [0, 1, 2]
        gate.touch()
        assert run.wait(150)
        assert set().union(*run.results("tally")) == set(range(TOTAL))
        assert acked(run.snapshot()) >= TOTAL


@pytest.mark.long
def test_worker_that_is_killed_during_a_rebalance_takes_part_in_the_new_plan(
    ray_cluster: RayCluster, tmp_path: Path
) -> None:
    topology, gate = Topology("tally", spout_pending=64), tmp_path / "gate"
    numbers = topology.spout("numbers", Held(TOTAL, gate))
    numbers.shuffle().bolt("store", JsonLines(tmp_path / "all"))
    with submitted(ray_cluster, topology) as run:
        until(run, lambda snapshot: acked(snapshot) > 0)
        run._apply(events.RebalanceTasks(layout=Layout.ISOLATE))
        run.kill_worker(0)
        until(run, lambda snapshot: snapshot.state != State.REBALANCING)
        assert len(run.plan.workers) == len(run.plan.tasks)
        gate.touch()
        assert run.wait(150)
    stored = set((tmp_path / "all").read_text().splitlines())
    assert len(stored) == TOTAL


def test_state_in_memory_that_cannot_move_is_named_before_anything_changes(
    ray_cluster: RayCluster,
) -> None:
    with submitted(ray_cluster, tally(Counter(), Tally)) as run:
        with pytest.raises(LifecycleError, match=r"tally\[1\] on worker 1 .* snapshot\(\)"):
            run.rebalance(workers=1)
        assert run.snapshot().state == State.ACTIVE
        until(run, lambda snapshot: acked(snapshot) > 0)


def test_a_process_has_one_ray_and_cannot_use_another(ray_cluster: RayCluster) -> None:
    here = ray.get_runtime_context().gcs_address
    port = here.rpartition(":")[2]
    for same in (None, "auto", here, f"localhost:{port}"):
        with RayCluster(same, detached=True) as cluster:
            assert isinstance(cluster.runs(), dict)
    for other in ("127.0.0.1:1", f"192.0.2.1:{port}"):
        with pytest.raises(ClusterError, match=f"at {here}, and cannot have the one at {other}"):
            RayCluster(other)
    assert ray.is_initialized()


def test_name_of_a_topology_that_exists_cannot_be_submitted_again(ray_cluster: RayCluster) -> None:
    with submitted(ray_cluster, tally(Counter(5))) as run:
        assert run.wait(150)
        with pytest.raises(ClusterError, match="sunshower kill tally"):
            ray_cluster.submit(tally(Counter(5)).graph())
        by_name = ray_cluster.find("tally")
        assert by_name.overview().snapshot.state == State.FINISHED
        with pytest.raises(LifecycleError, match=r"is finished.*possible are: drain, kill"):
            by_name.activate()
        with pytest.raises(ClusterError, match="there are: tally"):
            ray_cluster.find("other")


def test_a_change_is_not_repeated_to_the_next_master(
    ray_cluster: RayCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    topology = Topology("changed")
    topology.spout("numbers", Counter(10)).shuffle().bolt("forget", forget)
    run = ray_cluster.submit(topology.graph())
    wait_for = ray.get

    def kill_first(call: Any, **how: Any) -> Any:
        monkeypatch.undo()
        run.kill_master()
        return wait_for(call, **how)

    try:
        run.pause_master()
        monkeypatch.setattr(ray, "get", kill_first)
        with pytest.raises(ClusterError, match="died meanwhile; `sunshower status changed` shows"):
            run.rebalance(workers=2)
        assert len(run.plan.workers) == 1
    finally:
        run.stop()


@pytest.mark.long
def test_a_master_that_comes_when_all_is_done_finds_out_that_it_is(ray_cluster: RayCluster) -> None:
    with submitted(ray_cluster, tally(Counter(5))) as run:
        assert run.wait(150)
        first = run.kill_master()
        assert run.wait(150)
        assert run.kill_master() != first
