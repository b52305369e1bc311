"""Tests of a simulated run: it reports that it is stuck, and waits for paused or dead masters."""

from __future__ import annotations

import math

import pytest

from sunshower import Bolt, Spout, SpoutCollector, Topology
from sunshower.errors import ClusterError, LifecycleError, TopologyFailed
from sunshower.runtime.control.lifecycle import State
from sunshower.runtime.events.injected_faults import InjectedFaults, Link
from sunshower.runtime.plan import Layout
from sunshower.simulation.cluster import SimCluster
from tests.contract.topologies import Item, chain
from tests.simulation.probes import Numbers, Work, all_done, submit, working


def test_a_run_that_cannot_finish_is_stuck_and_the_error_says_what_waits() -> None:
    run = submit(0, working(Work(), spout_pending=5))
    run.deactivate()
    assert not run.wait(100.0), "a wait with a timeout does not detect that it is stuck"
    with pytest.raises(ClusterError) as caught:
        run.wait()
    message = str(caught.value)
    assert "'working' is stuck: nothing will ever happen any more" in message
    assert "seed 0" in message
    assert "numbers is not done" in message
    assert "work has executed" in message
    run.activate()
    assert run.wait()


def test_a_worker_that_stays_paused_is_replaced() -> None:
    run = submit(0, working(Work(), total=1_000, spout_pending=5))
    (task,) = run.plan.tasks_of("work")
    run.pause_worker(task.worker)
    assert run.wait(60.0)
    assert run.snapshot().restarts == 1


def test_a_paused_master_answers_when_it_continues() -> None:
    run = submit(0, working(Work(), spout_pending=5))
    run.pause_master()
    begun_s = run.now()
    with pytest.raises(ClusterError, match="does not answer: its master is paused"):
        run.snapshot()
    assert 29.0 < run.now() - begun_s < 31.0
    assert not run.wait(1.0), "it is finished, but only the master can say so"
    run.resume_master()
    assert run.wait(5.0)


@pytest.mark.parametrize("dies", [False, True])
def test_a_paused_master_or_its_successor_gets_injected_faults(dies: bool) -> None:
    run = submit(0, working(Work(), total=1_000, spout_pending=5))
    run.pause_master()
    now_s = run.now()
    injected = InjectedFaults(links=(Link(drop=0.5),))
    run.disturb(injected)
    assert run.plan.workers == [0, 1, 2]
    assert run.now() == now_s, "the calls do not wait"
    if dies:
        run.kill_master()
    run.resume_master()
    assert run.snapshot().restarts == 0
    assert run._master.core.desired_state.injected == injected


def test_a_question_to_a_dead_master_waits_for_its_successor() -> None:
    run = submit(0, working(Work(), total=100, spout_pending=5))
    run.kill_master()
    killed_s = run.now()
    assert run.snapshot().state in (State.ACTIVE, State.FINISHED)
    assert 0.05 <= run.now() - killed_s < 0.7
    run.kill_master()
    with pytest.raises(ClusterError, match="the master is not there"):
        run.kill_master()


def test_time_passes_only_in_calls_that_wait() -> None:
    run = submit(0, working(Work(), spout_pending=5))
    now = run.now()
    run.history()
    run.nodes()
    run.pause_worker(0)
    run.resume_worker(0)
    assert run.now() == now
    run.snapshot()
    assert now < run.now() < now + 0.1
    assert not run.wait(0.0)


def test_the_pending_table_has_the_size_of_spout_pending_or_the_default() -> None:
    for settings, pending in (({}, 32_768), ({"spout_pending": 9}, 9)):
        run = SimCluster(0).submit(chain(**settings).graph())
        assert run.plan.graph.config.spout_slots == pending


def test_results_wait_for_a_worker_that_is_starting() -> None:
    work = Work()
    run = submit(0, chain())
    run.wait(1.0)
    (task,) = run.plan.tasks_of("sink")
    run.kill_worker(task.worker)
    assert run.results("sink") in ([set()], [None])
    run.kill_worker(task.worker)
    with pytest.raises(ClusterError, match=rf"worker {task.worker} is not there"):
        run.kill_worker(task.worker)
    assert not work.done


class RaisesAtEnd(Bolt[Item, None]):
    def process(self, record: Item) -> None: ...

    def result(self) -> int:
        raise KeyError("no result today")

    def cleanup(self) -> None:
        raise OSError("no end either")


def test_errors_of_user_code_in_result_and_cleanup_are_reported(
    caplog: pytest.LogCaptureFixture,
) -> None:
    topology = Topology("sulky")
    topology.spout("numbers", Numbers(3)).shuffle().bolt("sulky", RaisesAtEnd)
    run = submit(0, topology)
    assert run.wait(60.0)
    with pytest.raises(TopologyFailed, match="user code raised KeyError: 'no result today'"):
        run.results("sulky")
    run.stop()
    assert "cleanup of sulky[0] raised OSError: no end either" in caplog.text


class Unmovable(Spout[Item]):
    """Has a snapshot that cannot be copied to another process."""

    def next_tuple(self, out: SpoutCollector[Item]) -> None:
        out.emit(Item(1), 1)

    def snapshot(self) -> object:
        return (number for number in range(3))

    def restore(self, state: object) -> None: ...


def test_a_snapshot_that_cannot_be_copied_ends_the_rebalance_and_the_topology_continues() -> None:
    topology = Topology("heavy", workers=2, spout_pending=2)
    topology.spout("numbers", Unmovable, parallelism=2).shuffle().bolt("sink", RaisesAtEnd, 2)
    run = submit(0, topology, Layout.PACK)
    with pytest.raises(LifecycleError, match="'numbers' cannot move to another process"):
        run.rebalance(layout=Layout.ISOLATE, wait_s=0.1)
    assert run.snapshot().state == "active"


def test_several_topologies_share_one_world() -> None:
    with SimCluster(5, check=True) as cluster:
        works = [Work(), Work()]
        first, second = (
            cluster.submit(working(work, name=name).graph(), sample=1)
            for work, name in zip(works, ("first", "second"), strict=True)
        )
        all_done(first, works[0])
        assert first.now() == second.now()
        all_done(second, works[1])
        assert first.history() != second.history()
        second.disturb(InjectedFaults())
    with pytest.raises(ClusterError, match="'second' was stopped"):
        second.disturb(InjectedFaults())
    with pytest.raises(ClusterError, match="'second' was stopped"):
        second.history()


def test_a_violated_invariant_is_detected_at_once() -> None:
    run = submit(0, working(Work(), total=1_000, spout_pending=5))
    run.wait(0.01)
    core = run._env.network.there[0].core  # type: ignore[attr-defined]
    (spout,) = core._wired.spouts.values()
    assert len(spout.pending)
    spout.pending._deadline_s[:] = math.inf
    with pytest.raises(AssertionError, match="a pending slot is free"):
        run.wait(10.0)


def test_a_rebalance_continues_when_a_frozen_worker_is_replaced() -> None:
    run = submit(0, working(Work(), total=1_000, spout_pending=5))
    run.pause_worker(1)
    run.rebalance(workers=2, layout=Layout.PACK, wait_s=1.0)
    assert run.now() < 60.0
    run.resume_worker(1)
    assert run.wait(60.0)
    assert len(run.plan.workers) == 2
