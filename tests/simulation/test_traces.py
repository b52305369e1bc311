"""Tests of trees traced over several workers: combined rows, deaths, pauses, rebalances."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from sunshower import Bolt, Context, Spout, Topology
from sunshower.config import Internals
from sunshower.runtime.events.trace_recorder import Traces, TupleTrace
from sunshower.runtime.plan import Layout
from sunshower.simulation.cluster import SimCluster, SimRun
from sunshower.topologies.operators.aggregators import count
from tests.contract.topologies import Item, Keep, Paced, relay


class Word(NamedTuple):
    word: str


def spell(item: Item) -> Iterator[Word]:
    for digit in str(item.number * 37 % 1000):
        yield Word(digit)


def check_whole(tree: TupleTrace) -> None:
    edges = {hop.edge: hop for hop in tree.hops}
    assert len(edges) == len(tree.hops) > 0
    for hop in tree.hops:
        assert None not in (hop.sent_s, hop.delivered_s, hop.acked_s), hop
        assert hop.sent_s is not None
        assert hop.delivered_s is not None
        assert tree.emitted_s is not None
        assert tree.emitted_s <= hop.sent_s <= hop.delivered_s
        assert hop.record
        if hop.source != tree.spout:
            assert hop.parent is not None
            assert edges[hop.parent].target == hop.source


def check(traces: Traces) -> None:
    assert traces.trees
    for tree in traces.trees:
        if tree.outcome == "complete":
            check_whole(tree)


def combining() -> Topology:
    topology = Topology("combining", trace_share=1.0, workers=3)
    words = topology.spout("numbers", Paced(100, 0.1), 2).flat_map(spell)
    words.group_by("word").aggregate(count())
    return topology


@pytest.mark.parametrize("seed", range(3))
def test_all_edges_of_combined_rows_and_of_joined_batches_are_recorded(seed: int) -> None:
    with SimCluster(seed, check=True) as cluster:
        run = cluster.submit(combining().graph(), Layout.ISOLATE)
        assert run.wait(60.0)
        traces = run.traces()
        assert Counter(tree.outcome for tree in traces.trees) == {"complete": 200}
        check(traces)


def chain(sinks: int = 1) -> Topology:
    topology = Topology(
        "chain", trace_share=1.0, message_timeout_s=20.0, internals=Internals(sweep_grace_s=0.2)
    )
    items = topology.spout("numbers", Paced()).shuffle().bolt("relay", relay)
    items.shuffle().bolt("sink", Keep(), sinks)
    return topology


def submit(cluster: SimCluster, topology: Topology) -> SimRun:
    return cluster.submit(topology.graph(), Layout.ISOLATE)


def worker_of(run: SimRun, component: str) -> int:
    return run.plan.tasks_of(component)[0].worker


@pytest.mark.parametrize("seed", range(4))
def test_after_a_worker_is_killed_the_traces_of_the_others_remain(seed: int) -> None:
    with SimCluster(seed, check=True) as cluster:
        run = submit(cluster, chain())
        assert not run.wait(1.0)
        run.kill_worker(worker_of(run, "relay"))
        assert run.wait(60.0)
        traces = run.traces()
        assert traces.silent == ()
        complete = [tree for tree in traces.trees if tree.outcome == "complete"]
        assert {tree.number for tree in complete} == set(range(60)), "the spout's worker ran on"
        replays = [tree for tree in traces.trees if (tree.attempt or 0) > 1]
        assert len(replays) == len(traces.failed)
        for tree in replays:
            check_whole(tree)
        for tree in traces.failed:
            assert tree.cause == "actor died"
            assert {hop.target for hop in tree.hops} <= {"relay[0]", "sink[0]"}


def test_trees_of_a_dead_spout_are_read_from_the_other_workers() -> None:
    with SimCluster(3, check=True) as cluster:
        run = submit(cluster, chain())
        assert not run.wait(1.0)
        before = run.traces()
        run.kill_worker(worker_of(run, "numbers"))
        assert run.wait(60.0)
        trees_by_root = {tree.root: tree for tree in run.traces().trees}
        for old in before.trees:
            tree = trees_by_root[old.root]
            assert (tree.outcome, tree.spout, tree.emitted_s) == ("unknown", "numbers[0]", None)
            assert {hop.target for hop in tree.hops} == {"relay[0]", "sink[0]"}
        assert len(trees_by_root) > len(before.trees)


def test_a_paused_worker_is_named_and_the_others_answer() -> None:
    with SimCluster(2, check=True) as cluster:
        run = submit(cluster, chain())
        assert not run.wait(0.5)
        sink = worker_of(run, "sink")
        run.pause_worker(sink)
        assert not run.wait(0.2)
        traces = run.traces()
        assert traces.silent == (sink,)
        newest = traces.trees[0]
        assert newest.outcome == "open"
        assert all(hop.target != "sink[0]" or hop.delivered_s is None for hop in newest.hops)
        run.resume_worker(sink)
        assert run.wait(60.0)
        check(run.traces())


def test_trees_stay_recorded_through_a_rebalance() -> None:
    with SimCluster(5, check=True) as cluster:
        topology = Topology("moves", trace_share=1.0, workers=2)
        items = topology.spout("numbers", Paced()).shuffle().bolt("relay", relay)
        items.shuffle().bolt("sink", Keep())
        run = cluster.submit(topology.graph(), Layout.PACK)
        assert not run.wait(0.5)
        before = {tree.root for tree in run.traces().trees if tree.outcome == "complete"}
        assert before
        run.rebalance(workers=3)
        assert run.wait(60.0)
        traces = run.traces()
        assert before <= {tree.root for tree in traces.trees}
        check(traces)


def test_one_tree_is_asked_for_by_its_root() -> None:
    with SimCluster(1, check=True) as cluster:
        run = submit(cluster, chain())
        assert run.wait(60.0)
        tree = run.traces().trees[7]
        assert run.traces(tree.root).trees == (tree,)
        assert run.traces("0").trees == ()


class Numbers(Spout[Item]):
    def open(self, context: Context) -> None:
        self.clock = context.clock

    def records(self) -> Iterator[Item]:
        return map(Item, range(600))


class FailsEachThird(Bolt[Item, None]):
    """Fails each third number once."""

    def __init__(self) -> None:
        self.seen: set[int] = set()

    def process(self, record: Item) -> None:
        if record.number % 3 == 0 and record.number not in self.seen:
            self.seen.add(record.number)
            raise ValueError("once")


def test_workers_trace_the_same_trees_for_any_share() -> None:
    with SimCluster(8, check=True) as cluster:
        topology = Topology("some", trace_share=0.01, workers=3)
        topology.spout("numbers", Numbers()).shuffle().bolt("relay", relay, 2).shuffle().bolt(
            "third", FailsEachThird()
        )
        run = cluster.submit(topology.graph(), Layout.ISOLATE)
        assert run.wait(120.0)
        traces = run.traces()
        attempts = Counter(tree.attempt for tree in traces.trees)
        assert attempts[2] == 200
        assert 2 <= attempts[1] <= 20, "about 1 % of the 600 first attempts"
        check(traces)
        for tree in traces.trees:
            assert len(tree.hops) == 2 or tree.outcome == "failed"
