"""Havoc over whole topologies on several workers, each for many seeds; see network.py.

Whatever is wished reaches new lives and survives the master; and when it is healed, all is done.
"""

from __future__ import annotations

from collections import Counter

import pytest

from sunshower import Cause
from sunshower.clock import ManualClock
from sunshower.runtime.events.event_log import What
from sunshower.runtime.events.injected_faults import InjectedFaults, Link, Raise, SlowTask
from sunshower.runtime.events.task_faults import NO_FAULTS
from sunshower.runtime.plan import ACKER, Layout, make_plan
from tests.runtime.example import MasterState, everything, leaves
from tests.runtime.network import Network
from tests.seeds import seeds

NUMBERS = 24
LINKS = {
    "dropped": Link(drop=0.3),
    "forgotten": Link(forget=0.3),
    "repeated": Link(repeat=0.3),
    "corrupted": Link(corrupt=0.3),
    "delayed": Link(delay=0.3, delay_s=0.02),
    "all of it": Link(drop=0.1, forget=0.1, repeat=0.1, corrupt=0.1, delay=0.1, delay_s=0.02),
    "to the ackers": Link(target=ACKER, drop=0.4),
    "of one edge": Link(source="split", target="join", drop=0.5),
}


def network(seed: int, layout: Layout = Layout.ISOLATE) -> tuple[Network, MasterState]:
    clock = ManualClock()
    book = MasterState(NUMBERS, clock)
    plan = make_plan(everything(book, ackers=1 + seed % 2), layout)
    return Network(plan, seed, clock=clock, sample=1), book


def disturb(net: Network, injected: InjectedFaults) -> None:
    net.steer(lambda master: master.disturb(injected))


def for_a_while(net: Network, acts: int) -> None:
    for _ in range(acts):
        if not net.finished:
            net.act()


def heal(net: Network, book: MasterState) -> None:
    """From now on peace: all is processed and acked, nothing was acked too early."""
    disturb(net, InjectedFaults())
    net.run()
    assert not book.mistakes, f"seed {net.seed}: {book.mistakes[:3]}"
    assert book.complete, f"seed {net.seed}: not all numbers were acked"
    lost = [leaf for n in book.acked for leaf in leaves(n) if not book.stored[n, leaf]]
    assert not lost, f"seed {net.seed}: {lost} never stored"
    assert book.counted == set(range(NUMBERS))
    net.history.check_shapes()
    net.history.replay()


@pytest.mark.parametrize("kind", LINKS)
@seeds(4)
def test_bad_links_lose_nothing_when_they_are_healed(kind: str, seed: int) -> None:
    net, book = network(seed)
    disturb(net, InjectedFaults(links=(LINKS[kind],)))
    for_a_while(net, 600)
    heal(net, book)
    causes = {failure.cause for _, failure in book.failures}
    assert causes <= {Cause.BAD_FRAME, Cause.ACTOR_DIED}
    if kind == "repeated":
        assert not causes, f"seed {seed}: a packet that came twice did harm"
    elif kind in ("dropped", "all of it"):
        assert causes, f"seed {seed}: nothing was hurt, so this proves nothing"


@seeds(6)
def test_bad_links_of_an_edge_fail_what_went_over_it_alone(seed: int) -> None:
    net, book = network(seed)
    disturb(net, InjectedFaults(links=(Link(source="split", target="join", drop=1.0),)))
    for_a_while(net, 300)
    heal(net, book)
    named = {failure.component for _, failure in book.failures}
    assert named <= {"join", ACKER}, f"seed {seed}"


@seeds(6)
def test_components_that_raise_and_are_slow_lose_nothing(seed: int) -> None:
    net, book = network(seed, list(Layout)[seed % 2])
    raises = [Raise(component=c, probability=0.1) for c in ("split", "join", "rows", "store")]
    slows = (SlowTask(component="keep", seconds=0.01), SlowTask(component=ACKER, seconds=0.001))
    disturb(net, InjectedFaults(raises=tuple(raises), slows=slows))
    for_a_while(net, 400)
    heal(net, book)
    causes = Counter(failure.cause for _, failure in book.failures)
    assert set(causes) == {Cause.EXCEPTION}, f"seed {seed}: {causes}"
    refused = {cause for row in net.history.rows(What.REFUSED) for cause in [row.detail]}
    assert refused == {Cause.EXCEPTION}


@seeds(6)
def test_injected_is_known_to_new_lives_and_to_a_new_master(seed: int) -> None:
    net, book = network(seed)
    injected = InjectedFaults(slows=(SlowTask(component="split", seconds=0.001),))
    disturb(net, injected)
    for_a_while(net, 60)
    net.kill_master()
    assert net.master.desired_state.injected == injected
    task = net.plan.tasks_of("split")[0]
    net.until(lambda: task.worker in net.nodes)
    net.crash(task.worker)
    net.until(lambda: task.worker in net.nodes)
    bolt = net.nodes[task.worker].core._wired.bolts[task.id]
    assert net.nodes[task.worker].core.life == 2
    assert bolt.instrument.faults is not NO_FAULTS, f"seed {seed}: the new life is at peace"
    heal(net, book)
    assert bolt.instrument.faults is NO_FAULTS


@seeds(6)
def test_all_spouts_time_out_what_is_pending_and_it_is_done_all_the_same(seed: int) -> None:
    net, book = network(seed)
    net.until(lambda: any(len(spout.pending) > 2 for spout in net.spouts()))
    disturb(net, InjectedFaults(expirations=1))
    task = net.plan.tasks_of("join")[0]
    net.crash(task.worker)  # its new life is told of it, and expires nothing
    for_a_while(net, 200)
    net.kill_master()
    net.run()
    expired = [at for at, failure in book.failures if failure.cause is Cause.TIMEOUT]
    assert expired, f"seed {seed}: nothing was pending, so this proves nothing"
    told = [e for e in net.history.of(What.FAILED) if Cause.TIMEOUT in e.detail]
    assert len(told) == len({e.task for e in told}), f"seed {seed}: a spout expired twice"
    heal(net, book)


def test_injected_outlives_a_rebalance() -> None:
    net, book = network(0, Layout.PACK)
    disturb(net, InjectedFaults(slows=(SlowTask(component="split", seconds=0.001),), expirations=1))
    for_a_while(net, 50)
    net.steer(lambda m: m.rebalance(2, None, 5.0, net.clock.now()))
    net.until(lambda: net.master.stored.moves == 1 and not net.master.restless)
    bolts = [b for n in net.nodes.values() for b in n.core._wired.bolts.values()]
    assert {b.task.component for b in bolts if b.instrument.faults is not NO_FAULTS} == {"split"}
    heal(net, book)
