"""The book of workers: who is in which life, what the dead had done, and when all is done."""

from __future__ import annotations

import pytest

from sunshower import Counter, Number, Topology
from sunshower.runtime.master import Master, State
from sunshower.runtime.metrics import Counts, TaskStats, WorkerStats
from sunshower.runtime.plan import Layout, Plan, make_plan

SPOUT, BOLT, ACKER = 0, 1, 2  # workers


def keep(number: Number) -> None: ...


@pytest.fixture
def plan() -> Plan:
    topology = Topology("t", ackers=1)
    topology.spout("spout", Counter(9)).shuffle().bolt("bolt", keep)
    return make_plan(topology.graph(), Layout.ISOLATE)


@pytest.fixture
def master(plan: Plan) -> Master:
    return Master(plan)


def stats(
    worker: int, life: int = 1, *, done: bool = True, idle: bool = True, **counts: int
) -> WorkerStats:
    component = ["spout", "bolt"][worker]
    task = TaskStats(worker + 1, component, Counts(**counts), done=done)
    return WorkerStats(worker, life, (task,), idle)


def everybody(master: Master, sent: int = 9, executed: int = 9, now: float = 0.0) -> None:
    for worker in (SPOUT, BOLT, ACKER):
        master.hello(worker)
    master.hear(stats(SPOUT, transferred=sent), now)
    master.hear(stats(BOLT, executed=executed), now)
    master.hear(WorkerStats(ACKER, 1, (), True), now)


def test_topology_is_starting_until_everybody_has_said_hello(master: Master) -> None:
    for worker in (SPOUT, BOLT):
        master.hello(worker)
        assert master.state(0.0) is State.STARTING
    master.hello(ACKER)
    assert master.state(0.0) is State.ACTIVE


def test_each_hello_is_a_new_life_and_is_told_all_lives(master: Master) -> None:
    assert master.hello(SPOUT).life == 1
    assert master.hello(BOLT).lives == {SPOUT: 1, BOLT: 1}
    welcome = master.hello(SPOUT)
    assert (welcome.life, welcome.lives) == (2, {SPOUT: 2, BOLT: 1})


def test_finished_is_when_all_are_done_idle_and_nothing_is_between_them(master: Master) -> None:
    everybody(master)
    assert master.state(0.0) is State.FINISHED


@pytest.mark.parametrize(
    "last",
    [
        stats(SPOUT, done=False, transferred=9),
        stats(SPOUT, idle=False, transferred=9),
        stats(BOLT, idle=False, executed=9),
    ],
    ids=["a spout is not done", "a spout is not idle", "a bolt is not idle"],
)
def test_topology_runs_while_somebody_works(master: Master, last: WorkerStats) -> None:
    everybody(master)
    master.hear(last, 0.0)
    assert master.state(99.0) is State.ACTIVE


def test_untracked_records_on_their_way_are_waited_for(master: Master) -> None:
    everybody(master, sent=9, executed=8, now=5.0)
    assert master.state(5.9) is State.ACTIVE
    assert master.state(6.0) is State.FINISHED, "nothing has changed for a second"


def test_worker_that_is_restarted_is_waited_for(master: Master) -> None:
    everybody(master)
    master.hello(BOLT)
    assert master.state(99.0) is State.ACTIVE
    master.hear(stats(BOLT, life=2, executed=9), 99.0)
    assert master.state(99.0) is State.FINISHED


def test_word_of_a_former_life_is_ignored(master: Master) -> None:
    everybody(master)
    master.hello(SPOUT)
    master.hear(stats(SPOUT, life=1, acked=7), 0.0)
    assert master.snapshot(0.0).component("spout").acked == 0


def test_what_a_dead_life_had_done_still_counts_but_nothing_of_it_is_pending(
    master: Master,
) -> None:
    everybody(master)
    master.hear(stats(SPOUT, acked=7, pending=3), 0.0)
    master.hello(SPOUT)
    master.hear(stats(SPOUT, life=2, acked=2, pending=1), 0.0)
    snapshot = master.snapshot(0.0)
    assert snapshot.component("spout") == Counts(acked=9, pending=1)
    assert snapshot.restarts == 1


def test_first_reason_to_give_up_counts(master: Master) -> None:
    everybody(master)
    master.broken("the first")
    master.broken("the second")
    assert master.error == "the first"
    assert master.state(0.0) is State.FAILED
    assert master.snapshot(0.0).state == "failed"
