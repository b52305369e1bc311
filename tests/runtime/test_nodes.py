"""The choice of nodes for workers, by their free resources and by the workers on them."""

from __future__ import annotations

from collections import Counter
from math import inf

from hypothesis import given
from hypothesis import strategies as st

from sunshower import Resources
from sunshower.runtime.control.nodes import (
    NodeRoom,
    NodeState,
    NodeView,
    choice,
    choices,
    misfit,
    waits,
)

NONE, ONE, TWO = Resources(), Resources(num_cpus=1), Resources(num_cpus=2)
GIB = 2**30


def node(id: str, cpus: float, free: float | None = None, **more: float) -> NodeState:
    """A node with `cpus` CPUs, of which `free` are free (None: all)."""
    return NodeState(
        id, Resources(num_cpus=cpus), Resources(num_cpus=cpus if free is None else free), **more
    )


def view(*nodes: NodeState, places: dict[int, str] | None = None, **more: bool) -> NodeView:
    return NodeView(nodes, places or {}, **more)


# ---- new workers -----------------------------------------------------------------------------


@given(st.integers(1, 5), st.integers(1, 12))
def test_spread_workers_without_requests_are_even_over_all_nodes(nodes: int, workers: int) -> None:
    node_view = view(*(node(f"n{number}", 0) for number in range(nodes)))
    chosen = choices(dict.fromkeys(range(workers), NONE), node_view, "spread")
    counts = Counter(chosen.values())
    numbers = [counts[state.id] for state in node_view.nodes]
    assert sum(numbers) == workers
    assert max(numbers) - min(numbers) <= 1


def test_packed_workers_are_on_one_node_until_it_is_full() -> None:
    node_view = view(node("a", 2), node("b", 3))
    assert choices(dict.fromkeys(range(4), ONE), node_view, "pack") == {
        **dict.fromkeys(range(3), "b"),
        3: "a",
    }


def test_the_largest_request_is_placed_first() -> None:
    node_view = view(node("a", 2), node("b", 1))
    assert choices({0: ONE, 1: TWO}, node_view, "spread") == {0: "b", 1: "a"}


def test_a_worker_without_room_anywhere_has_no_node() -> None:
    assert choices({0: TWO, 1: ONE}, view(node("a", 4, free=1)), "spread") == {1: "a"}


def test_no_worker_is_placed_on_a_node_that_is_being_drained() -> None:
    node_view = view(node("a", 4, leaves_s=inf), node("b", 1))
    assert choices({0: ONE}, node_view, "spread") == {0: "b"}


def test_of_equal_nodes_the_one_with_fewer_workers_of_all_topologies_is_chosen() -> None:
    node_view = view(node("a", 4, workers=3), node("b", 4, workers=2))
    assert choices({0: NONE}, node_view, "spread") == {0: "b"}


def test_a_worker_that_starts_on_a_node_uses_resources_before_the_node_counts_them() -> None:
    node_view = view(node("a", 2), node("b", 1), places={0: "a"})
    assert choice(1, TWO, node_view, {0: TWO}, "spread") is None
    assert choice(1, ONE, node_view, {0: TWO}, "spread") == "b"
    assert choice(1, TWO, node_view, {}, "spread") == "a"


def test_a_replaced_worker_avoids_its_former_node_if_there_is_another() -> None:
    places = {0: "a", 1: "b", 2: "b"}
    both = view(node("a", 1), node("b", 1), places=places)
    assert choice(0, ONE, both, {}, "spread") == "b"
    assert choice(0, ONE, view(node("a", 1), places={0: "a"}), {}, "spread") == "a"


# ---- moves to other nodes --------------------------------------------------------------------


@given(st.lists(st.integers(0, 4), min_size=1, max_size=12))
def test_spread_workers_get_even_in_the_fewest_moves(where: list[int]) -> None:
    places = {worker: f"n{number}" for worker, number in enumerate(where)}
    nodes = [node(f"n{number}", 0) for number in range(5)]
    moved = NodeRoom(nodes, places.values()).moves(dict.fromkeys(places, NONE), places)
    before = sorted(Counter({state.id: 0 for state in nodes} | Counter(places.values())).values())
    share, more = divmod(len(places), 5)
    wanted = sorted([share + 1] * more + [share] * (5 - more))
    fewest = sum(max(0, has - due) for has, due in zip(before, wanted, strict=True))
    assert len(moved) == len({*moved}) == fewest


def test_a_new_node_without_room_gets_nothing() -> None:
    places = {0: "a", 1: "a", 2: "a"}
    room = NodeRoom([node("a", 6, free=0), node("b", 1)], places.values())
    assert room.moves(dict.fromkeys(places, TWO), places) == []


def test_workers_that_cannot_move_stay() -> None:
    places = {0: "a", 1: "a", 2: "a"}
    room = NodeRoom([node("a", 3), node("b", 3)], places.values())
    assert room.moves({2: ONE}, places) == [2]


def test_packed_workers_leave_a_node_empty_if_all_of_them_fit_on_others() -> None:
    places = {0: "a", 1: "a", 2: "b"}
    wide = NodeRoom([node("a", 3, free=1), node("b", 3, free=2)], places.values(), "pack")
    assert wide.moves(dict.fromkeys(places, ONE), places) == [2]
    narrow = NodeRoom([node("a", 2, free=0), node("b", 2, free=1)], places.values(), "pack")
    assert narrow.moves(dict.fromkeys(places, ONE), places) == []


# ---- what does not fit -----------------------------------------------------------------------


def test_a_request_that_no_node_can_hold_is_named_with_the_largest_node() -> None:
    node_view = view(node("small", 1), node("large", 4, free=3))
    assert misfit({0: ONE, 2: Resources(num_cpus=8)}, node_view) == (
        "worker 2 requests 8 CPU, and no node has that much: "
        "the largest, large, has 3 CPU free of 4 CPU"
    )


def test_requests_that_all_nodes_together_cannot_hold_are_named() -> None:
    node_view = view(node("a", 2), node("b", 2))
    assert misfit(dict.fromkeys(range(3), TWO), node_view) == (
        "its workers request 6 CPU together, and all nodes have 4 CPU"
    )
    assert misfit(dict.fromkeys(range(2), TWO), node_view) is None


def test_resources_of_staying_workers_are_not_available_to_new_ones() -> None:
    node_view = view(
        node("a", 2), node("b", 2), node("c", 9, leaves_s=inf), places={0: "a", 1: "c"}
    )
    staying = {0: ONE, 1: ONE}
    assert misfit({2: TWO, 3: ONE}, node_view, staying) is None, "worker 1 is on a drained node"
    assert misfit({2: TWO, 3: TWO}, node_view, staying) == (
        "its new workers request 4 CPU together, and all nodes that are not being drained have "
        "3 CPU besides what its other workers request"
    )


def test_with_an_autoscaler_every_request_may_fit() -> None:
    assert misfit({0: TWO}, view(node("a", 1), grows=True)) is None


def test_a_wait_names_the_workers_their_request_and_what_is_free() -> None:
    big = Resources(num_cpus=2, memory=3 * GIB)
    node_view = NodeView(
        (NodeState("abcdefghij", big, NONE),), {}, (big,), True, frozenset({0, 3, 4})
    )
    (line,) = waits({0: big, 3: big, 4: ONE}, node_view)  # worker 4 is starting
    assert line == (
        "workers 0, 3 wait for a node with 2 CPU, 3 GiB of memory free for each: the largest, "
        "abcdefgh, has 0 CPU free of 2 CPU, 0 GiB of memory free of 3 GiB of memory; "
        "Ray's autoscaler may add a node"
    )


def test_a_wait_of_one_worker_says_how_to_make_room() -> None:
    (line,) = waits(
        {1: TWO}, NodeView((node("a", 2, free=1),), {}, (TWO,), starting=frozenset({1}))
    )
    assert line == (
        "worker 1 waits for a node with 2 CPU free: the largest, a, has 1 CPU free of 2 CPU; "
        "add a node, or end what else requests resources"
    )


def test_a_worker_that_requests_nothing_waits_where_others_request_all_memory() -> None:
    (line,) = waits({0: NONE}, NodeView((node("a", 2),), {}, (NONE,), starting=frozenset({0})))
    assert line == (
        "worker 0 waits for a node with memory free: others request all memory of the nodes; "
        "add a node, or end what else requests resources"
    )


def test_reason_is_that_all_nodes_are_being_drained() -> None:
    node_view = NodeView((node("a", 4, leaves_s=inf),), {}, (ONE,), starting=frozenset({0}))
    assert (
        misfit({0: NONE}, node_view) == misfit({0: ONE}, node_view) == "all nodes are being drained"
    )
    assert "1 CPU free: all nodes are being drained; add a node" in waits({0: ONE}, node_view)[0]
