"""Theorems over whole topologies on several workers, each for many seeds; see network.py.

The topology is the one in example.py: fan-out, joins of two trees, several streams, columns, an
untracked stream. Deadlines are out of reach (10,000 s), so whatever ends has found its losses by
itself. A failure message names the seed, and the seed is the reproduction.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from sunshower import Cause
from sunshower.clock import ManualClock
from sunshower.runtime.plan import ACKER, Layout, make_plan
from sunshower.runtime.transport.packets import read_content
from sunshower.runtime.worker import Worker
from tests.runtime.example import MasterState, everything, leaves
from tests.runtime.network import Faults, Network
from tests.seeds import seeds

NUMBERS = 24
KINDS = {
    "dropped": Faults(drop=0.15),
    "forgotten": Faults(forget=0.15),
    "repeated": Faults(repeat=0.2),
    "corrupted": Faults(corrupt=0.15),
    "overtaken": Faults(overtake=0.4),
}
BADLY = Faults(drop=0.05, forget=0.05, repeat=0.05, corrupt=0.05, overtake=0.1)


def network(
    seed: int, faults: Faults | None = None, layout: Layout | None = None
) -> tuple[Network, MasterState]:
    """The seed also chooses the layout, if nobody else does, and the number of shards."""
    clock = ManualClock()
    book = MasterState(NUMBERS, clock)
    graph = everything(book, ackers=1 + seed % 3)
    plan = make_plan(graph, layout or list(Layout)[seed % 2])
    return Network(plan, seed, clock=clock, faults=faults), book


def check(net: Network, book: MasterState) -> None:
    """All is processed and acked; nothing was acked too early, twice, or in another life."""
    assert not book.mistakes, f"seed {net.seed}: {book.mistakes[:3]}"
    assert book.complete, f"seed {net.seed}: not all numbers were acked"
    for number in book.acked:
        lost = [leaf for leaf in leaves(number) if not book.stored[number, leaf]]
        assert not lost, f"seed {net.seed}: {number} was acked, {lost} never stored"
    assert book.counted == set(range(NUMBERS)), f"seed {net.seed}: counts are missing"
    causes = {failure.cause for _, failure in book.failures}
    assert Cause.TIMEOUT not in causes, f"seed {net.seed}: a loss was found by the deadline only"


# ---- the network --------------------------------------------------------------------------------


@seeds(50)
def test_without_faults_everything_is_processed_exactly_once_and_nothing_fails(seed: int) -> None:
    net, book = network(seed)
    net.run()
    check(net, book)
    assert not book.failures, f"seed {seed}: {book.failures[:3]}"
    assert set(book.stored.values()) == {1}, f"seed {seed}: something was processed twice"
    assert net.clock.now() < 2, f"seed {seed}: somebody waited for a timer"


@seeds(50)
def test_whatever_the_network_does_everything_is_processed_and_nothing_acked_too_early(
    seed: int,
) -> None:
    net, book = network(seed, BADLY)
    net.run()
    check(net, book)


@pytest.mark.parametrize("kind", KINDS)
@seeds(10)
def test_one_kind_of_fault_alone_loses_nothing(kind: str, seed: int) -> None:
    net, book = network(seed, KINDS[kind])
    net.run()
    check(net, book)
    if kind == "repeated":
        assert not book.failures, f"seed {seed}: a packet that came twice did harm"


# ---- deaths -------------------------------------------------------------------------------------


@seeds(50)
def test_any_worker_may_die(seed: int) -> None:
    net, book = network(seed)
    workers = net.plan.workers
    dies, after = int(net.random.choice(workers)), int(net.random.integers(1, 60))
    net.crashes.append((after, dies))
    net.run()
    check(net, book)


@seeds(50)
def test_several_workers_may_die_while_the_network_is_bad(seed: int) -> None:
    net, book = network(seed, BADLY)
    for after in sorted(net.random.integers(1, 150, 3).tolist()):
        net.crashes.append((after, int(net.random.choice(net.plan.workers))))
    net.run()
    check(net, book)


def holds_something(net: Network, worker: int) -> Callable[[], bool]:
    """Whether a worker has a part of an open tree that only it knows of."""

    def holds() -> bool:
        node = net.nodes[worker]
        wired = node.core._wired
        return (
            any(read_content(data, net.plan.streams).frames for data in node.unread())
            or any(acker.ledger.open_count() for acker in wired.ackers.values())
            or any(getattr(bolt.bolt, "waiting", None) for bolt in wired.bolts.values())
        )

    return holds


@pytest.mark.parametrize("component", ["split", "join", "rows", "store", ACKER])
@seeds(10)
def test_what_a_dead_worker_held_is_replayed_after_the_grace_and_not_the_timeout(
    component: str, seed: int
) -> None:
    net, book = network(seed, layout=Layout.ISOLATE)
    worker = net.plan.tasks_of(component)[0].worker
    net.until(holds_something(net, worker))
    net.crash(worker)
    net.run()
    check(net, book)
    grace_s = net.plan.graph.config.sweep_grace_s
    swept = [at_s for at_s, failure in book.failures if "its worker died" in failure.reason]
    assert book.failures, f"seed {seed}: nothing was lost, so this proves nothing"
    assert {failure.cause for _, failure in book.failures} == {Cause.ACTOR_DIED}
    assert all(at_s >= net.hellos[-1] + grace_s for at_s in swept), f"seed {seed}: no grace"
    assert max(at_s for at_s, _ in book.failures) < net.hellos[-1] + grace_s + 0.1, f"seed {seed}"


@seeds(30)
def test_spout_in_a_new_life_hears_nothing_of_the_old_one(seed: int) -> None:
    """Numbers.ack and .fail tell a mistake for every message id that this life did not emit."""
    net, book = network(seed)
    spout = net.plan.tasks_of("numbers")[seed % 2]
    net.until(lambda: any(len(s.pending) > 2 for s in net.spouts() if s.task == spout))
    net.crash(spout.worker)
    net.run()
    check(net, book)
    assert book.lives[spout.id] == 2
    assert {number.life for number in book.acked if number.task == spout.id} >= {2}


@seeds(30)
def test_news_of_a_new_life_may_be_lost(seed: int) -> None:
    """Nobody hears from the master that another has begun anew: the new life greets them itself."""
    net, book = network(seed, Faults(unheard=1.0))
    net.crashes.append((int(net.random.integers(1, 60)), int(net.random.choice(net.plan.workers))))
    net.run()
    check(net, book)
    assert net.clock.now() < 20, f"seed {seed}: somebody never learned of it"


@seeds(30)
def test_spout_in_a_new_life_emits_nothing_that_its_master_knows_to_be_settled(seed: int) -> None:
    net, book = network(seed)
    task = net.plan.tasks_of("counter")[0]
    net.until(lambda: any(s.committed for s in net.spouts() if s.task == task))
    net.master.hear(net.nodes[task.worker].core.stats(), net.clock.now())
    settled = net.master.stored.positions[task.id]

    def look(core: Worker) -> None:
        for spout in core._spouts:
            assert spout.task != task or spout.committed >= settled

    net.crash(task.worker)
    net.watch.append(look)
    net.run()
    check(net, book)
    assert settled > 0


# ---- limits -------------------------------------------------------------------------------------


@pytest.mark.parametrize("pending", [1, 2, 5])
@seeds(5)
def test_no_more_is_pending_than_was_allowed(pending: int, seed: int) -> None:
    """`Worker.check_invariants` is called after every slice of work."""
    clock = ManualClock()
    book = MasterState(NUMBERS, clock)
    plan = make_plan(everything(book, spout_pending=pending), list(Layout)[seed % 2])
    net = Network(plan, seed, clock=clock, faults=BADLY)
    highest = 0
    while not net.finished:
        net.act()
        highest = max([highest, *(len(spout.pending) for spout in net.spouts())])
    check(net, book)
    assert highest == pending, f"seed {seed}: the limit was never met, so this proves nothing"


def test_same_seed_is_the_same_run() -> None:
    runs = []
    for _ in range(2):
        net, book = network(3, BADLY)
        net.run()
        runs.append((net.fates, net.clock.now(), book.stored, book.failures))
    assert runs[0] == runs[1]
    assert np.isfinite(runs[0][1])
