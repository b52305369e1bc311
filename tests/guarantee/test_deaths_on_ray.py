"""Tests of SIGKILL on real Ray actors of each kind, while they process: nothing is lost."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import ray

from sunshower import Cause
from sunshower.actors.cluster import RayCluster
from sunshower.actors.names import NAMESPACE, worker_name
from sunshower.actors.run import RayRun
from sunshower.runtime.plan import ACKER, Layout
from tests.guarantee.deaths import (
    check_nothing_is_lost,
    kill_in_the_middle,
    read,
    topology,
    until,
    worker_of,
)
from tests.leftovers import check_program

pytestmark = pytest.mark.ray


@contextmanager
def running(
    cluster: RayCluster, folder: Path, layout: Layout, held: str = "store", tasks: int = 1
) -> Iterator[RayRun]:
    run = cluster.submit(topology(folder, held, tasks).graph(), layout)
    try:
        yield run
    finally:
        run.stop()


def failures_in(folder: Path) -> set[tuple[str, str, int]]:
    """(cause, component, worker) of all failures that a spout has received."""
    return {tuple(row) for row in read(folder, "failed")}


@pytest.mark.parametrize(
    "component", ["work", pytest.param("store", marks=pytest.mark.long), ACKER]
)
def test_death_of_a_bolt_or_an_acker_shard(
    ray_cluster: RayCluster, tmp_path: Path, component: str
) -> None:
    held = "store" if component == ACKER else component
    with running(ray_cluster, tmp_path, Layout.ISOLATE, held) as run:
        victim = worker_of(run.plan, component)
        kill_in_the_middle(run, tmp_path, lambda: run.kill_worker(victim))
        check_nothing_is_lost(run, tmp_path)
        assert run.snapshot().restarts == 1
    # Without the worker: a report lost in transit does not say to which acker shard it was sent.
    assert (Cause.ACTOR_DIED, component) in {row[:2] for row in failures_in(tmp_path)}
    assert {cause for cause, *_ in failures_in(tmp_path)} == {Cause.ACTOR_DIED}
    assert {name for _, name, _ in failures_in(tmp_path)} <= {component, ACKER}


def test_death_of_a_spout(ray_cluster: RayCluster, tmp_path: Path) -> None:
    with running(ray_cluster, tmp_path, Layout.ISOLATE) as run:
        victim = worker_of(run.plan, "numbers")
        kill_in_the_middle(run, tmp_path, lambda: run.kill_worker(victim))
        check_nothing_is_lost(run, tmp_path)
        assert run.snapshot().restarts == 1
    assert {cause for cause, *_ in failures_in(tmp_path)} <= {Cause.ACTOR_DIED}, "no other cause"


@pytest.mark.long
def test_death_of_a_whole_worker(ray_cluster: RayCluster, tmp_path: Path) -> None:
    with running(ray_cluster, tmp_path, Layout.PACK, "work", tasks=2) as run:
        victim = worker_of(run.plan, "work")
        kill_in_the_middle(run, tmp_path, lambda: run.kill_worker(victim))
        check_nothing_is_lost(run, tmp_path)
        assert run.snapshot().restarts == 1
    # There is no failure if all tuples on that worker were of its own spout, which died with it.
    assert {cause for cause, *_ in failures_in(tmp_path)} <= {Cause.ACTOR_DIED}
    assert {worker for *_, worker in failures_in(tmp_path)} <= {victim, -1}


def test_calls_reach_a_restarted_worker_that_has_registered(
    ray_cluster: RayCluster, tmp_path: Path
) -> None:
    with running(ray_cluster, tmp_path, Layout.PACK) as run:
        victim = worker_of(run.plan, "work")
        actor = ray.get_actor(worker_name(run.id, victim), namespace=NAMESPACE)
        ray.get(actor.peers.remote({}, []))
        run.kill_worker(victim)
        until(lambda: run.snapshot().restarts == 1)
        ray.get(actor.peers.remote({}, []))  # else it would be ActorUnavailableError


@pytest.mark.long
def test_death_of_a_node(tmp_path: Path) -> None:
    check_program("tests.guarantee.node_dies", tmp_path)


def test_death_of_the_master(ray_cluster: RayCluster, tmp_path: Path) -> None:
    with running(ray_cluster, tmp_path, Layout.ISOLATE) as run:
        kill_in_the_middle(run, tmp_path, run.kill_master)
        check_nothing_is_lost(run, tmp_path)
        assert run.snapshot().restarts == 0
    assert not failures_in(tmp_path), "tuples do not pass the master"
