"""A plan places tasks on workers, assigns acker shards and incarnations, and finds back edges."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sunshower import Counter, Number, Topology
from sunshower.errors import ConfigError
from sunshower.runtime.plan import ACKER, Layout, Plan, make_plan
from sunshower.runtime.tracking.ids import INCARNATIONS_MAX, is_older_life, lives_max


class Pair(NamedTuple):
    a: int
    b: int


def pass_on(number: Number) -> list[Number]:
    return [number]


def graph(spouts: int = 1, bolts: int = 2, **settings: float) -> Topology:
    topology = Topology("t", **settings)
    stream = topology.spout("spout", Counter(9), parallelism=spouts)
    stream.shuffle().bolt("bolt", pass_on, parallelism=bolts)
    return topology


def plan(layout: Layout, spouts: int = 1, bolts: int = 2, **settings: float) -> Plan:
    return make_plan(graph(spouts, bolts, **settings).graph(), layout)


def places(topology_plan: Plan) -> list[tuple[str, int, int]]:
    return [(task.component, task.index, task.worker) for task in topology_plan.tasks]


# ---- placement ----------------------------------------------------------------------------------


def test_isolate_gives_every_task_a_worker_of_its_own() -> None:
    isolated = plan(Layout.ISOLATE, spouts=2, bolts=3, ackers=2)
    assert [task.worker for task in isolated.tasks] == isolated.workers == list(range(7))


def test_pack_spreads_each_component_over_the_workers() -> None:
    packed = plan(Layout.PACK, spouts=1, bolts=4, workers=3)
    assert places(packed) == [
        ("spout", 0, 0),
        ("bolt", 0, 0),
        ("bolt", 1, 1),
        ("bolt", 2, 2),
        ("bolt", 3, 0),
        (ACKER, 0, 0),
    ]


def test_task_ids_are_unique_and_ascend_within_a_component() -> None:
    for layout in Layout:
        tasks = plan(layout, spouts=3, bolts=4, ackers=3).tasks
        assert len({task.id for task in tasks}) == len(tasks)
        for component in ("spout", "bolt", ACKER):
            mine = [task for task in tasks if task.component == component]
            assert [task.index for task in mine] == list(range(len(mine)))
            assert all(a.id < b.id for a, b in pairwise(mine))


# ---- shards -------------------------------------------------------------------------------------


def shards(topology_plan: Plan) -> list[list[int]]:
    return [[acker.index for acker in ackers] for ackers in topology_plan.shards]


def test_packed_shard_runs_beside_its_spout_and_tracks_only_its_trees() -> None:
    packed = plan(Layout.PACK, spouts=3, workers=3)
    assert shards(packed) == [[0], [1], [2]]
    for spout, (acker,) in zip(packed.spouts, packed.shards, strict=True):
        assert spout.worker == acker.worker


def test_packed_spout_without_a_shard_beside_it_shares_all() -> None:
    assert shards(plan(Layout.PACK, spouts=2, workers=2, ackers=1)) == [[0], [0]]
    assert shards(plan(Layout.PACK, spouts=2, workers=2, ackers=3)) == [[0, 2], [1]]


def test_isolated_spouts_share_all_shards() -> None:
    assert shards(plan(Layout.ISOLATE, spouts=2, ackers=3)) == [[0, 1, 2], [0, 1, 2]]


def test_isolated_topology_has_one_shard_by_default() -> None:
    assert shards(plan(Layout.ISOLATE, spouts=2)) == [[0], [0]]


@pytest.mark.parametrize("layout", Layout)
def test_untracked_topology_has_no_acker(layout: Layout) -> None:
    assert not plan(layout, ackers=0).tasks_of(ACKER)


# ---- incarnations -------------------------------------------------------------------------------


@given(st.integers(1, 4), st.lists(st.tuples(st.integers(0, 3), st.integers(1, 50))))
def test_incarnation_is_never_given_twice_and_names_its_spout(
    spouts: int, starts: list[tuple[int, int]]
) -> None:
    topology_plan = plan(Layout.PACK, spouts=spouts)
    given_out = {
        (index % spouts, life): topology_plan.incarnation(
            topology_plan.spouts[index % spouts], life
        )
        for index, life in starts
    }
    assert len(set(given_out.values())) == len(given_out)
    assert all(number % spouts == index for (index, _), number in given_out.items())


@pytest.mark.parametrize("spouts", [1, 3, 4, 100])
def test_later_life_has_a_later_incarnation_also_where_they_wrap_around(spouts: int) -> None:
    topology_plan = plan(Layout.PACK, spouts=spouts)
    spout, circle = topology_plan.spouts[spouts // 2], lives_max(spouts)
    for first in (1, circle - 3, circle, 1000 * circle - 1):
        numbers = [topology_plan.incarnation(spout, first + more) for more in range(8)]
        assert max(numbers) < INCARNATIONS_MAX
        for older, newer in pairwise(numbers):
            assert is_older_life(older, newer, spouts)
            assert not is_older_life(newer, older, spouts)
            assert not is_older_life(newer, newer, spouts)


def test_more_spout_tasks_than_root_ids_can_distinguish_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"5,000 spout tasks, .* \(4,096\)"):
        plan(Layout.PACK, spouts=5_000)


# ---- edges that close a cycle -------------------------------------------------------------------


def cyclic(*edges: tuple[str, str]) -> frozenset[tuple[str, str]]:
    """The back edges of a graph of bolts behind one spout, given by its edges."""
    topology = Topology("t")
    streams = {"s": topology.spout("s", Counter(9))}
    for bolt in sorted({end for edge in edges for end in edge} - {"s"}):
        streams[bolt] = topology.bolt(bolt, pass_on)
    for source, target in edges:
        streams[source].shuffle().into(target)
    return make_plan(topology.graph()).back_edges


def test_graph_without_cycles_has_no_back_edge() -> None:
    assert cyclic(("s", "a"), ("s", "b"), ("a", "c"), ("b", "c"), ("a", "b")) == frozenset()


def test_bolt_that_feeds_itself_is_a_cycle() -> None:
    assert cyclic(("s", "a"), ("a", "a")) == {("a", "a")}


def test_edge_that_leads_back_is_the_one_without_credits() -> None:
    assert cyclic(("s", "a"), ("a", "b"), ("b", "c"), ("c", "a")) == {("c", "a")}


@given(st.sets(st.tuples(st.sampled_from("abcd"), st.sampled_from("abcd")), max_size=12))
def test_without_its_back_edges_a_graph_has_no_cycle(edges: set[tuple[str, str]]) -> None:
    everything = {("s", "a"), *edges, *(("a", end) for edge in edges for end in edge if end != "a")}
    left = everything - cyclic(*sorted(everything))
    while left:  # remove the edges from bolts that no edge leads to, again and again
        targets = {target for _, target in left}
        remaining = {edge for edge in left if edge[0] in targets}
        assert remaining != left, f"a cycle is left in {left}"
        left = remaining
