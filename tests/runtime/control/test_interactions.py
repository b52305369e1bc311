"""Features that meet: transfers and errors, desired states and moves, charges and lives."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from sunshower import Bolt, Cause, Context, Failure, Spout, SpoutCollector, Topology
from sunshower.actors.worker import WorkerActor
from sunshower.clock import ManualClock
from sunshower.runtime.control import events
from sunshower.runtime.control.events import DesiredState, Welcome
from sunshower.runtime.control.master import Master
from sunshower.runtime.control.master_state import MasterState
from sunshower.runtime.control.task_transfer import TaskTransfer
from sunshower.runtime.plan import Layout, Plan, make_plan
from sunshower.runtime.tasks.user_code import Raised, context
from sunshower.runtime.tracking.ids import seeded
from sunshower.runtime.transport.packets import Answer
from sunshower.runtime.worker import Worker
from tests.runtime.rig import Number, Rig, sink


class Manual(Spout[Number]):
    refuses_to_restore = 0

    def __init__(self) -> None:
        self.n = self.activated = self.broken = 0

    def next_tuple(self, out: SpoutCollector[Number]) -> None:
        if self.broken:
            self.broken -= 1
            raise OSError("unavailable")
        out.emit(Number(self.n), self.n)
        self.n += 1

    def activate(self) -> None:
        self.activated += 1

    def snapshot(self) -> int:
        return self.n

    def restore(self, state: int) -> None:
        if Manual.refuses_to_restore:
            Manual.refuses_to_restore -= 1
            raise OSError("not yet")
        self.n = state


class Endless(Spout[Number]):
    def records(self) -> Iterator[Number]:
        return map(Number, iter(int, 1))


class Few(Spout[Number]):
    def records(self) -> Iterator[Number]:
        return map(Number, range(40))


def topology(spout: Any, **settings: Any) -> Topology:
    declared = Topology("t", **{"ackers": 1, "workers": 1, **settings})
    declared.spout("numbers", spout).shuffle().bolt("sink", sink)
    return declared


def placed(declared: Topology) -> Plan:
    return make_plan(declared.graph(), Layout.PACK)


def work(worker: Worker, clock: ManualClock, turns: int) -> None:
    for _ in range(turns):
        if worker.step() != 0:
            clock.advance(0.1)


def test_restore_that_raises_once_is_called_again_and_no_message_waits_twice() -> None:
    Manual.refuses_to_restore = 1
    here, other = Rig(topology(Manual)), Rig(topology(Manual))
    here.spout("numbers").emit(0.0, 3)
    transfer = here.spout("numbers").pack(stays=False, now=0.0)
    successor = other.spout("numbers")
    with pytest.raises(Raised):
        successor.unpack(transfer, context(other.plan, successor.task))
    successor.unpack(transfer, context(other.plan, successor.task))
    assert len(successor.replays.line) == len(transfer.waiting) == 3


def test_topology_that_is_drained_while_its_tasks_move_ends() -> None:
    plan, clock = placed(topology(Endless, spout_pending=8)), ManualClock()
    before = Worker(plan, 0, 1, seeded(1), clock)
    before.step()
    spout = before._spouts[0]
    while not len(spout.pending):
        before._scheduler.run_one(clock.now())
    transfer, last = before.pack(()), spout.stats()
    after = Worker(plan, 0, 2, seeded(1), clock, transfer=transfer)
    positions = {spout.task.id: (last.committed, last.drawn)}
    after.welcome(
        Welcome(2, {0: 2}, DesiredState(active=False, draining=True), positions=positions)
    )
    work(after, clock, 60)
    assert after.finished
    assert after._spouts[0].source.drawn == last.drawn


def test_transfer_that_was_not_unpacked_is_part_of_the_next_transfer() -> None:
    class NeverPrepared(Bolt[Number, None]):
        def prepare(self, context: Context) -> None:
            raise OSError("the data base is unavailable")

        def process(self, record: Number) -> None: ...

        def snapshot(self) -> int:
            raise AssertionError("it was never prepared")

    declared = Topology("t", ackers=1, workers=1)
    declared.spout("numbers", Endless).shuffle().bolt("unavailable", NeverPrepared)
    plan, clock = placed(declared), ManualClock()
    task = plan.tasks_of("unavailable")[0].id
    worker = Worker(plan, 0, 2, seeded(1), clock, transfer={task: TaskTransfer(state=41)})
    worker.step()
    assert worker.pack((task,))[task].state == 41


def test_charges_for_one_message_of_a_manual_spout_do_not_count_for_another() -> None:
    spout = Rig(topology(Manual)).spout("numbers")
    spout.accuse({1: 4}, Failure(Cause.ACTOR_DIED, "sink", 0))
    spout.emit(0.0, 3)
    roots = spout.pending.all_roots()
    spout.failed(roots[1:2], Failure(Cause.EXCEPTION, "sink", 0), 0.0)
    charge = spout.replays.line.charges.get(1)
    assert charge is not None
    assert charge.times == 1


def test_limit_that_congestion_has_halved_holds_for_replays_of_a_manual_spout_too() -> None:
    spout = Rig(topology(Manual, spout_pending="auto"), adapts=True).spout("numbers")
    spout.limit._congestion.limit = spout.pending.limit = 16
    spout.emit(0.0, 16)
    spout.expire(30.0)
    spout.emit(60.0, 1000)
    assert len(spout.pending) == spout.pending.limit == 8


def test_spout_that_has_raised_and_is_called_again_is_not_activated_again() -> None:
    plan, clock = placed(topology(Manual, spout_pending=8)), ManualClock()
    worker = Worker(plan, 0, 1, seeded(1), clock)
    work(worker, clock, 2)
    spout = worker._spouts[0].spout
    spout.broken = 2
    work(worker, clock, 60)
    assert (spout.broken, spout.activated) == (0, 1)


class Keeps(Bolt[Number, None]):
    """Acks with the collector of its first call."""

    out: Any = None

    def execute(self, tuple: Any, out: Any) -> None:
        self.out = self.out or out
        self.out.ack(tuple)


def test_collector_that_a_bolt_has_kept_works_in_its_next_life() -> None:
    declared = Topology("t", ackers=1, workers=1, spout_pending=8)
    declared.spout("numbers", Few).shuffle().bolt("keeps", Keeps)
    plan, clock = placed(declared), ManualClock()
    before = Worker(plan, 0, 1, seeded(1), clock)
    while before._spouts[0]._acked < 8:
        before.step()
    after = Worker(plan, 0, 2, seeded(1), clock, transfer=before.pack(()))
    work(after, clock, 300)
    assert after.finished


def test_counters_survive_a_master_that_dies_during_a_move() -> None:
    plan, clock = placed(topology(Endless)), ManualClock()
    master, worker = Master(plan), Worker(plan, 0, 1, seeded(1), clock)
    worker.welcome(master.apply(events.Hello(0), 0.0).answer)
    work(worker, clock, 20)
    master.apply(events.Statistics(worker.stats()), 0.0)
    acked = master.snapshot(0.0).component("numbers").acked
    master.apply(events.RebalanceTasks(2, None, 0.0), 0.0)
    master.apply(events.Tick(), 0.1)
    worker.pack(())
    master.apply(events.Packed(worker.stats()), 0.2)
    successor = Master(plan, MasterState.from_bytes(master.stored.to_bytes()), 0.3)
    assert successor.stored.moves == 1
    assert successor.snapshot(0.3).component("numbers").acked >= acked > 0


def test_untracked_failure_is_reported_at_the_end_although_its_worker_has_restarted() -> None:
    def refuse(number: Number) -> None:
        raise ValueError("never")

    declared = Topology("t", ackers=0, workers=1)
    declared.spout("numbers", Few).shuffle().bolt("refuse", refuse)
    plan, clock = placed(declared), ManualClock()
    master, worker = Master(plan), Worker(plan, 0, 1, seeded(1), clock)
    worker.welcome(master.apply(events.Hello(0), 0.0).answer)
    work(worker, clock, 30)
    master.apply(events.Statistics(worker.stats()), 0.0)
    last = master.snapshot(0.0).untracked
    master.apply(events.Hello(0), 9.0)
    assert master.snapshot(9.0).untracked == last
    assert "never" in (last or "")


def test_packet_that_arrives_before_a_worker_has_begun_does_not_block_it() -> None:
    actor = object.__new__(WorkerActor)
    actor._packet_receiver, actor._has_begun = None, threading.Event()
    actor._thread = SimpleNamespace(is_alive=lambda: True)  # type: ignore[assignment]
    assert actor._deliver(b"") is None, "it is held, and other packets can be read"
    actor._has_begun.set()
    assert actor._deliver(b"") == Answer.STALE
