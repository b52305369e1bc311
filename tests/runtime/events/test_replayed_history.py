"""Theorems over histories of whole topologies on several workers, each for many seeds.

The topology is the one in example.py, the network that of network.py. A history is replayed without
any ledger, edge by edge (recorded.py), and must come to what the ackers have said.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from sunshower import Cause
from sunshower.clock import ManualClock
from sunshower.runtime.events.event_log import What
from sunshower.runtime.plan import Layout, make_plan
from tests.runtime.example import MasterState, everything
from tests.runtime.network import Faults, Network
from tests.seeds import seeds

NUMBERS = 24
BADLY = Faults(drop=0.1, forget=0.1, repeat=0.05, corrupt=0.1, overtake=0.1)


def network(
    seed: int,
    faults: Faults | None = None,
    sample: int | None = 1,
    layout: Layout = Layout.PACK,
) -> tuple[Network, MasterState]:
    """The seed also chooses the number of shards."""
    clock = ManualClock()
    book = MasterState(NUMBERS, clock)
    graph = everything(book, ackers=1 + seed % 3, workers=2)
    plan = make_plan(graph, layout)
    return Network(plan, seed, clock=clock, faults=faults, sample=sample), book


@seeds(20)
def test_without_faults_every_tree_is_complete_and_every_edge_was_acked_once(seed: int) -> None:
    net, _ = network(seed)
    net.run()
    net.history.check_shapes()
    emitted = {row.root for row in net.history.rows(What.EMITTED)}
    assert net.history.replay() == emitted
    steps = [net.history.rows(what) for what in (What.SENT, What.DELIVERED, What.ACKED)]
    sent, delivered, acked = (Counter(row[2:4] for row in rows) for rows in steps)
    assert sent == delivered == acked
    assert set(sent.values()) == {1}
    assert not net.history.rows(What.FAILED, What.REFUSED)


@seeds(40)
def test_whatever_the_network_does_a_replay_agrees_with_the_ackers(seed: int) -> None:
    net, book = network(seed, BADLY)
    net.run()
    net.history.check_shapes()
    complete = net.history.replay()
    ends = [row.root for row in net.history.rows(What.COMPLETED, What.FAILED)]
    emitted = [row.root for row in net.history.rows(What.EMITTED)]
    assert sorted(ends) == sorted(emitted), f"seed {seed}: each emit has one end"
    assert len(complete) >= 2 * NUMBERS, f"seed {seed}: numbers and counts"
    failures = Counter(cause for e in net.history.of(What.FAILED) for cause in e.detail)
    assert failures == Counter(failure.cause for _, failure in book.failures)
    assert net.fates["arrive"] < net.fates.total(), f"seed {seed}: nothing was hurt"


@seeds(15)
def test_so_it_does_when_workers_die(seed: int) -> None:
    net, book = network(seed, BADLY, layout=Layout.ISOLATE)
    for after in sorted(net.random.integers(1, 100, 3).tolist()):
        net.crashes.append((after, int(net.random.choice(net.plan.workers))))
    net.run()
    net.history.replay()
    assert not book.mistakes
    born = [entry.detail for entry in net.history.of(What.BORN)]
    assert sorted(born) == sorted(set(born)), f"seed {seed}: a life was born twice"
    assert len(born) > len(net.plan.workers), f"seed {seed}: nobody died"
    last = dict(sorted(born))
    assert last == {worker: node.core.life for worker, node in net.nodes.items()}
    ended = {row.root for row in net.history.rows(What.COMPLETED, What.FAILED)}
    spouts = net.plan.spouts
    for row in net.history.rows(What.EMITTED):
        life, spout = divmod(row.root >> 48, len(spouts))
        died = life < last[spouts[spout].worker]
        assert died or row.root in ended, f"seed {seed}: an emit without an end"


@seeds(10)
def test_history_changes_nothing_of_a_run(seed: int) -> None:
    runs = []
    for sample in (None, 1, 7):
        net, book = network(seed, BADLY, sample)
        net.run()
        runs.append((net.fates, net.clock.now(), net.acts, book.stored, book.failures))
    assert runs[0] == runs[1] == runs[2]


@seeds(10)
def test_sample_of_several_workers_is_the_same_trees_everywhere(seed: int) -> None:
    whole, part = network(seed, BADLY)[0], network(seed, BADLY, sample=3)[0]
    whole.run()
    part.run()
    part.history.replay()
    edges = (What.SENT, What.DELIVERED, What.ACKED, What.REFUSED)
    kept = [row for row in whole.history.rows(*edges) if row.root % (1 << 24) % 3 == 0]
    assert part.history.rows(*edges) == kept != []
    always = (What.EMITTED, What.COMPLETED, What.FAILED)
    assert part.history.rows(*always) == whole.history.rows(*always)


def test_replay_would_have_told_of_a_tree_that_was_complete_too_early() -> None:
    """The theorem above could fail: here is a history in which one ack is missing."""
    net, _ = network(0)
    net.run()
    acked = net.history.of(What.ACKED)[-1]
    assert len(acked.roots)
    net.history.entries = [entry for entry in net.history.entries if entry is not acked]
    with pytest.raises(AssertionError, match="complete too early"):
        net.history.replay()


def test_entries_are_in_the_order_of_time() -> None:
    net, _ = network(1, BADLY)
    net.run()
    times = [entry.at_s for entry in net.history.entries]
    assert (np.diff(times) >= 0).all()
    assert Cause.TIMEOUT not in {c for e in net.history.of(What.FAILED) for c in e.detail}
