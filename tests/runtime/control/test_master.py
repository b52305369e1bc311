"""The master: the lives of workers, statistics of former lives, and when a topology is finished."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from sunshower import Bolt, Counter, Number, Topology
from sunshower.config import NOTHING
from sunshower.runtime.control import events
from sunshower.runtime.control.master import Master, State
from sunshower.runtime.control.master_state import MasterState
from sunshower.runtime.control.nodes import NodeState, NodeView
from sunshower.runtime.events.health import Health, Standing, TaskError
from sunshower.runtime.events.metrics import Counts, InputStream, TaskStats, WorkerStats
from sunshower.runtime.plan import Layout, Plan, make_plan
from sunshower.runtime.tasks.flight_recorder import CrashReport
from sunshower.runtime.transport.peer_link import SUSPECT
from sunshower.topologies.components import DEFAULT

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


def start_all(master: Master, sent: int = 9, executed: int = 9, now: float = 0.0) -> None:
    for worker in (SPOUT, BOLT, ACKER):
        master.apply(events.Hello(worker), 0.0)
    master.apply(events.Statistics(stats(SPOUT, transferred=sent)), now)
    master.apply(events.Statistics(stats(BOLT, executed=executed)), now)
    master.apply(events.Statistics(WorkerStats(ACKER, 1, (), True)), now)


def test_new_tasks_keep_the_layout(master: Master) -> None:
    start_all(master)
    master.apply(events.Statistics(stats(SPOUT, done=False, idle=False)), 0.0)
    master.apply(events.RebalanceTasks(None, None, None, {"bolt": 3}), 0.0)
    tasks = master.stored.next_tasks or []
    assert len({task.worker for task in tasks}) == len(tasks) == 5


def test_a_worker_may_have_no_process_until_it_says_hello_and_while_it_is_silent_or_fenced(
    master: Master,
) -> None:
    assert master.absent == {SPOUT, BOLT, ACKER}
    start_all(master)
    assert master.absent == set()
    timeout_s = master.plan.graph.config.worker_timeout_s
    for now in range(int(timeout_s) + 1):
        master.apply(events.Beat(SPOUT, 1), now)
        master.apply(events.Beat(ACKER, 1), now)
        master.apply(events.Watch(), now)
        assert master.absent == ({BOLT} if now >= SUSPECT * timeout_s else set())
    assert master.stored.fenced == {BOLT: 1}
    assert Master(master.plan, master.stored).absent == {BOLT}, "also for the next master"


def test_a_snapshot_names_the_silent_workers_that_wait_for_room(master: Master) -> None:
    master.nodes.view = NodeView((NodeState("a"),), {}, (NOTHING,), starting=frozenset({BOLT}))
    start_all(master)
    assert not master.snapshot(0.0).unplaced
    master.stored.fenced[BOLT] = 1
    snapshot = master.snapshot(0.0)
    assert snapshot.without_room == (BOLT,)
    assert snapshot.unplaced[0].startswith("worker 1 waits for a node with memory free")


class Held(Bolt[Number, None]):
    """Keeps something in memory."""

    def process(self, record: Number) -> None: ...


def test_the_worker_whose_other_tasks_leave_a_drained_node_stays_and_is_named() -> None:
    topology = Topology("t", workers=1)
    topology.spout("spout", Counter(9)).shuffle().bolt("bolt", Held)
    master = Master(make_plan(topology.graph()))
    master.apply(events.Hello(0), 0.0)
    spout, bolt = (TaskStats(n, name, Counts()) for n, name in ((1, "spout"), (2, "bolt")))
    master.apply(events.Statistics(WorkerStats(0, 1, (spout, bolt))), 0.0)
    drained = NodeState("a", leaves_s=60.0)
    master.nodes.view = NodeView((drained, NodeState("b")), {0: "a"})
    master.apply(events.Watch(), 1.0)
    assert [task.worker for task in master.stored.next_tasks or []] == [1, 0, 1]
    master.apply(events.Watch(), 2.0)
    assert [line.event for line in master.log.read()].count("node drained") == 1, "they are moving"


class Ticking(Bolt[Number, Number]):
    def process(self, record: Number) -> None: ...

    def tick(self) -> Iterator[Number]:
        yield Number(0)


def test_ticks_do_not_keep_a_topology_from_finishing() -> None:
    topology = Topology("t", ackers=1)
    topology.spout("spout", Counter(9)).shuffle().bolt("bolt", Ticking, tick_s=0.1)
    master = Master(make_plan(topology.graph(), Layout.ISOLATE))
    start_all(master, executed=7)  # two were lost with a life of the bolt
    for tick in range(1, 10):
        master.apply(events.Statistics(stats(BOLT, executed=7, transferred=tick)), tick / 10)
        assert master.state(tick / 10) is State.ACTIVE
    master.apply(events.Statistics(stats(SPOUT, done=False, transferred=9)), 0.95)
    master.apply(events.Statistics(stats(SPOUT, transferred=9)), 0.99)
    assert master.state(1.0) is State.ACTIVE, "a spout had more to do"
    master.apply(events.Statistics(stats(BOLT, executed=7, transferred=10)), 1.9)
    assert master.state(1.99) is State.FINISHED


def test_topology_is_starting_until_all_workers_have_said_hello(master: Master) -> None:
    for worker in (SPOUT, BOLT):
        master.apply(events.Hello(worker), 0.0)
        assert master.state(0.0) is State.STARTING
    master.apply(events.Hello(ACKER), 0.0)
    assert master.state(0.0) is State.ACTIVE


def test_each_hello_begins_a_new_life_and_returns_all_lives(master: Master) -> None:
    assert master.apply(events.Hello(SPOUT), 0.0).answer.life == 1
    assert master.apply(events.Hello(BOLT), 0.0).answer.lives == {SPOUT: 1, BOLT: 1}
    welcome = master.apply(events.Hello(SPOUT), 0.0).answer
    assert (welcome.life, welcome.lives) == (2, {SPOUT: 2, BOLT: 1})


def test_topology_is_finished_when_all_are_done_and_idle_and_nothing_is_in_flight(
    master: Master,
) -> None:
    start_all(master)
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
def test_topology_runs_while_a_worker_is_not_done_or_not_idle(
    master: Master, last: WorkerStats
) -> None:
    start_all(master)
    master.apply(events.Statistics(last), 0.0)
    assert master.state(99.0) is State.ACTIVE


def test_untracked_records_in_flight_are_waited_for(master: Master) -> None:
    start_all(master, sent=9, executed=8, now=5.0)
    assert master.state(5.9) is State.ACTIVE
    assert master.state(6.0) is State.FINISHED, "nothing has changed for a second"


class Forwarding(Bolt[Number, Number]):
    def process(self, record: Number) -> Iterator[Number]:
        yield record


def test_a_bolt_whose_statistics_lack_as_many_inputs_as_outputs_is_waited_for() -> None:
    topology = Topology("t", ackers=1)
    numbers = topology.spout("numbers", Counter(9)).shuffle()
    numbers.bolt("forward", Forwarding).shuffle().bolt("keep", keep)
    master = Master(make_plan(topology.graph(), Layout.ISOLATE))

    def hear(worker: int, source: str | None, received: int, sent: int) -> None:
        counts = Counts(
            executed=received,
            executed_from={InputStream(source, DEFAULT): received} if source else {},
            transferred=sent,
            transferred_to={DEFAULT: sent},
        )
        component = ["numbers", "forward", "keep"][worker]
        task = TaskStats(worker + 1, component, counts, done=True)
        master.apply(events.Statistics(WorkerStats(worker, 1, (task,), True)), 0.0)

    for worker in range(4):
        master.apply(events.Hello(worker), 0.0)
    master.apply(events.Statistics(WorkerStats(3, 1, (), True)), 0.0)
    hear(0, None, 0, 9)
    hear(2, "forward", 9, 0)
    hear(1, "numbers", 7, 7)  # two inputs and two outputs less than the others know of
    assert master.state(0.0) is State.ACTIVE
    hear(1, "numbers", 9, 9)
    assert master.state(0.0) is State.FINISHED


def test_the_last_windows_are_waited_for(plan: Plan) -> None:
    """Their results are sent without an input, so the counts agree before and after."""
    spout = replace(plan.graph.components["spout"], windows=1)
    windowed = replace(plan.graph, components={**plan.graph.components, "spout": spout})
    master = Master(replace(plan, graph=windowed))
    start_all(master, now=5.0)
    assert master.state(5.9) is State.ACTIVE
    assert master.state(6.0) is State.FINISHED, "nothing has changed for a second"


def test_finished_topology_stays_finished_whatever_late_statistics_say(master: Master) -> None:
    start_all(master, sent=9, executed=3)
    assert master.state(1.0) is State.FINISHED
    master.apply(events.Statistics(stats(BOLT, executed=8)), 1.0)
    assert master.state(1.0) is State.FINISHED


def test_worker_that_is_restarted_is_waited_for(master: Master) -> None:
    start_all(master)
    master.apply(events.Hello(BOLT), 0.0)
    assert master.state(99.0) is State.ACTIVE
    master.apply(events.Statistics(stats(BOLT, life=2, executed=9)), 99.0)
    assert master.state(99.0) is State.FINISHED


def test_statistics_of_a_former_life_are_ignored(master: Master) -> None:
    start_all(master)
    master.apply(events.Hello(SPOUT), 0.0)
    master.apply(events.Statistics(stats(SPOUT, life=1, acked=7)), 0.0)
    assert master.snapshot(0.0).component("spout").acked == 0


def test_counters_of_a_former_life_count_but_nothing_of_it_is_pending(
    master: Master,
) -> None:
    start_all(master)
    master.apply(events.Statistics(stats(SPOUT, acked=7, pending=3)), 0.0)
    master.apply(events.Hello(SPOUT), 0.0)
    master.apply(events.Statistics(stats(SPOUT, life=2, acked=2, pending=1)), 0.0)
    snapshot = master.snapshot(0.0)
    assert snapshot.component("spout") == Counts(acked=9, pending=1)
    assert snapshot.restarts == 1


def test_next_life_of_a_spout_gets_the_settled_position_of_its_source(master: Master) -> None:
    start_all(master)
    positions = [(7, 20), (5, 9), (9, 15)]  # the second: a life that has not caught up yet
    for committed, drawn in positions:
        task = TaskStats(1, "spout", Counts(), committed=committed, drawn=drawn)
        master.apply(events.Statistics(WorkerStats(SPOUT, 1, (task,))), 0.0)
    assert master.apply(events.Hello(SPOUT), 0.0).answer.positions == {1: (9, 20)}
    assert master.apply(events.Hello(ACKER), 0.0).answer.positions == {3: (0, 0)}
    late = TaskStats(1, "spout", Counts(), committed=99, drawn=99)
    master.apply(events.Statistics(WorkerStats(SPOUT, 1, (late,))), 0.0)
    assert master.apply(events.Hello(SPOUT), 0.0).answer.positions == {1: (9, 20)}, (
        "of a former life"
    )


def test_first_error_of_a_topology_counts(master: Master) -> None:
    start_all(master)
    master.apply(events.Broken(SPOUT, 1, "the first"), 0.0)
    master.apply(events.Broken(SPOUT, 1, "the second"), 0.0)
    assert master.stored.error == "the first"
    assert master.state(0.0) is State.FAILED
    assert master.snapshot(0.0).state == "failed"


# ---- quarantine ---------------------------------------------------------------------------------

WHY = TaskError("spout", 0, SPOUT, "records of spout[0] raised OSError: gone", "OSError", "Trace")


def quarantined(worker: int, life: int = 1) -> WorkerStats:
    health = Health(Standing.QUARANTINED, 5, (WHY,))
    task = TaskStats(worker + 1, ["spout", "bolt"][worker], Counts(), done=True, health=health)
    return WorkerStats(worker, life, (task,), True)


def test_quarantined_bolt_degrades_the_topology_and_does_not_fail_it(master: Master) -> None:
    start_all(master, sent=0, executed=0)
    master.apply(events.Statistics(quarantined(BOLT)), 0.0)
    snapshot = master.snapshot(0.0)
    assert (snapshot.degraded, snapshot.state) == ({2: WHY}, "finished")
    assert master.stored.error is None


def test_quarantined_spout_fails_the_topology_when_all_else_is_done(master: Master) -> None:
    start_all(master, sent=0, executed=0)
    master.apply(events.Statistics(quarantined(SPOUT)), 0.0)
    master.apply(events.Statistics(stats(BOLT, idle=False)), 0.0)
    assert master.state(9.0) is State.ACTIVE
    master.apply(events.Statistics(stats(BOLT)), 0.0)
    assert master.state(9.0) is State.FAILED
    assert master.stored.error == f"{WHY.text}. Fix it and run again.\nTrace"


def test_drained_topology_is_finished_although_a_spout_is_quarantined(master: Master) -> None:
    start_all(master, sent=1, executed=0)
    master.apply(events.DrainSpouts(), 0.0)  # while a record may still be in flight
    master.apply(events.Statistics(quarantined(SPOUT)), 0.0)
    assert master.state(9.0) is State.FINISHED


def test_next_life_gets_the_quarantined_tasks_also_from_the_next_master(
    plan: Plan, master: Master
) -> None:
    start_all(master)
    master.apply(events.Statistics(quarantined(BOLT)), 0.0)
    successor = Master(plan, MasterState.from_bytes(master.stored.to_bytes()))
    for leader in (master, successor):
        assert leader.apply(events.Hello(BOLT), 1.0).answer.quarantined == {2: (WHY, 30.0)}
        assert leader.apply(events.Hello(SPOUT), 1.0).answer.quarantined == {}


def test_worker_that_dies_again_and_again_gets_a_delay_and_its_task_is_quarantined(
    master: Master,
) -> None:
    now, welcomes = 0.0, []
    for _ in range(7):
        welcomes.append(master.apply(events.Hello(BOLT, CrashReport(BOLT, 1, 2)), now).answer)
        now += welcomes[-1].delay_s + 1.0
    assert [welcome.delay_s for welcome in welcomes] == [0, 0, 0, 0.5, 1.0, 2.0, 4.0]
    assert [list(welcome.quarantined) for welcome in welcomes] == [[]] * 6 + [[2]]
    assert list(master.snapshot(now).degraded) == [2]
