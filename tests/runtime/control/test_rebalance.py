"""Theorems about rebalances, for many seeds: nothing is lost, whoever dies; see network.py."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from sunshower import Spout, Topology
from sunshower.clock import ManualClock
from sunshower.runtime.control.lifecycle import State
from sunshower.runtime.plan import Layout, make_plan
from sunshower.runtime.wiring import context
from tests.runtime.chains import Number, Numbers, sink
from tests.runtime.example import MasterState, everything
from tests.runtime.network import Network
from tests.runtime.rig import Rig, records_of
from tests.runtime.transport.test_two_workers import check, seeds

NUMBERS = 24


def network(seed: int, layout: Layout = Layout.PACK) -> tuple[Network, MasterState]:
    clock = ManualClock()
    book = MasterState(NUMBERS, clock)
    graph = everything(book, ackers=[None, 2, 3][seed % 3])
    return Network(make_plan(graph, layout), seed, clock=clock), book


def some_acts(net: Network, most: int) -> None:
    for _ in range(int(net.random.integers(1, most))):
        if not net.finished:
            net.act()


def rebalance(net: Network, workers: int | None, layout: Layout | None, wait_s: float) -> None:
    if net.state not in (State.FINISHED, State.REBALANCING):
        net.steer(lambda master: master.rebalance(workers, layout, wait_s, net.clock.now()))


@seeds(60)
def test_tasks_change_places_and_nothing_is_lost_or_done_twice(seed: int) -> None:
    net, book = network(seed)
    net.until(lambda: net.state is State.ACTIVE)
    net.until(
        lambda: {number.n for number in book.emitted} == set(range(NUMBERS))
    )  # each has a partner
    for step in net.random.integers(1, 5, 2).tolist():
        others = (len(net.master.plan.workers) + step - 1) % 5 + 1  # one to five, not as many
        rebalance(net, others, None, 100)
        net.until(lambda: net.finished or net.state is not State.REBALANCING)
        some_acts(net, 60)
    net.run()
    check(net, book)
    assert not book.failures, f"seed {seed}: everything had time to come to rest"
    assert net.master.stored.moves, f"seed {seed}: it was over before anything moved"
    assert set(net.nodes) == set(net.master.plan.workers)


@seeds(60)
def test_what_is_pending_when_the_wait_is_over_is_emitted_again(seed: int) -> None:
    net, book = network(seed)
    net.until(lambda: net.state is State.ACTIVE)
    some_acts(net, 60)
    rebalance(net, None, list(Layout)[seed % 2], 0)
    net.run()
    check(net, book)


@seeds(100)
def test_master_and_workers_may_die_at_any_moment_of_it(seed: int) -> None:
    net, book = network(seed)
    net.until(lambda: net.state is State.ACTIVE)
    some_acts(net, 60)
    rebalance(net, int(net.random.integers(1, 6)), None, [0, 5][seed % 2])
    some_acts(net, 80)
    if seed % 3 != 1:
        net.kill_master()
    if seed % 3 != 0 and net.nodes:
        net.crash(int(net.random.choice(list(net.nodes))))
    net.run()
    check(net, book)
    assert set(net.nodes) == set(net.master.plan.workers)


@seeds(40)
def test_kill_ends_a_topology_in_the_middle_of_a_rebalance_when_its_wait_is_over(seed: int) -> None:
    net, _ = network(seed)
    net.until(lambda: net.state is State.ACTIVE)
    some_acts(net, 60)
    rebalance(net, int(net.random.integers(1, 6)), None, [0, 100][seed % 2])
    some_acts(net, 40)
    begin_s = net.clock.now()
    net.steer(lambda master: master.kill(3.0, net.clock.now()))
    net.until(lambda: net.state is State.KILLED)
    assert net.clock.now() < begin_s + 3.2
    report = net.master.report(net.clock.now())
    assert report.seconds < 3.2
    if report.seconds < 3.0:
        assert report.unsettled == 0, f"seed {seed}: it did not wait for what was pending"


def test_a_process_that_cannot_be_created_is_logged_once_and_hinders_no_kill(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(worker: int) -> None:
        raise ValueError("no TPU")

    net, _ = network(1)
    net.until(lambda: net.state is State.ACTIVE)
    workers = net.master.plan.workers
    monkeypatch.setattr(net.master_process, "create_worker", refuse)
    rebalance(net, len(workers) + 1, None, 0)
    net.until(lambda: bool(net.master.stored.moves))
    for _ in range(10):
        net.master_process.look()
    assert net.state is not State.KILLED
    net.steer(lambda master: master.kill(0.0, net.clock.now()))
    net.until(lambda: net.state is State.KILLED)
    lines = net.master_process.read_log(0)
    assert [one.text for one in lines if one.event == "not created"] == [
        f"worker {len(workers)} has no process, and creating one failed: ValueError: no TPU"
    ]


def test_a_source_goes_on_when_the_task_of_the_former_places_is_thrown_away() -> None:
    topology = Topology("t")
    topology.spout("numbers", Numbers(10)).shuffle().bolt("sink", sink)
    former, present = Rig(topology), Rig(topology)
    former.spout("numbers").emit(0.0, 4)
    transfer = former.spout("numbers").pack(stays=True, now=0.0)
    task = present.spout("numbers")
    task.unpack(transfer, context(present.plan, task.task))
    del former
    gc.collect()
    task.emit(1.0, 100)  # the four first
    task.emit(1.0, 100)
    assert [number.n for number in records_of(present.sent("sink"))] == list(range(10))
    assert task.exhausted


class Falsy:
    """An iterator with a length: what is at hand."""

    def __init__(self, stop: int) -> None:
        self.numbers = iter(range(stop))

    def __iter__(self) -> Falsy:
        return self

    def __next__(self) -> Number:
        return Number(next(self.numbers))

    def __len__(self) -> int:
        return 0


class Feed(Spout[Number]):
    def records(self) -> Iterator[Number]:
        return Falsy(10)


def test_a_source_whose_iterator_is_falsy_goes_on_too() -> None:
    topology = Topology("t")
    topology.spout("numbers", Feed()).shuffle().bolt("sink", sink)
    former, present = Rig(topology), Rig(topology)
    former.spout("numbers").emit(0.0, 4)
    task = present.spout("numbers")
    transfer = former.spout("numbers").pack(stays=True, now=0.0)
    task.unpack(transfer, context(present.plan, task.task))
    task.emit(1.0, 100)
    task.emit(1.0, 100)
    assert len(records_of(present.sent("sink"))) == 10
