"""Workers that move to new processes: on other nodes, or because their request changes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import inf
from typing import Any

import pytest

from sunshower import Bolt, Counter, Number, Resources, Topology
from sunshower.errors import LifecycleError
from sunshower.runtime.control.nodes import NodeMoves, NodeState, NodeView, renewed
from sunshower.runtime.control.placement import placed, replan
from sunshower.runtime.plan import Plan, make_plan

NONE, ONE = Resources(), Resources(num_cpus=1)


def function(number: Number) -> Iterator[Number]:
    yield number


class Held(Bolt[Number, None]):
    """Keeps something in memory."""

    def process(self, record: Number) -> None: ...


def plan(workers: int = 2, sink: Any = function, need: Resources = NONE, tasks: int = 2) -> Plan:
    topology = Topology("t", workers=workers)
    numbers = topology.spout("s", Counter(9), workers)
    numbers.shuffle().bolt("b", sink, tasks, resources=need)
    return make_plan(topology.graph())


def moves(
    *nodes: NodeState, places: dict[int, str] | None = None, grows: bool = False
) -> NodeMoves:
    node_moves = NodeMoves()
    node_moves.view = NodeView(nodes, places or {}, (), grows)
    return node_moves


def many(id: str, **more: Any) -> NodeState:
    return NodeState(id, Resources(num_cpus=9), Resources(num_cpus=9), **more)


# ---- a rebalance -----------------------------------------------------------------------------


def test_a_rebalance_without_options_moves_workers_to_a_new_node() -> None:
    before = plan(4)
    node_moves = moves(many("a"), many("new"), places=dict.fromkeys(range(4), "a"))
    after = node_moves.rebalanced(before, before, [])
    assert after.workers == [2, 3, 4, 5], "workers 0 and 1 have new ids, so new processes"
    assert [task.id for task in after.tasks] == [task.id for task in before.tasks]


def test_a_rebalance_on_even_nodes_changes_nothing() -> None:
    before = plan(2)
    node_moves = moves(many("a"), many("b"), places={0: "a", 1: "b"})
    assert node_moves.rebalanced(before, before, []) == before


def test_a_worker_with_state_in_memory_stays_on_its_node() -> None:
    before = plan(2, Held)
    node_moves = moves(many("a"), many("new"), places={0: "a", 1: "a"})
    assert node_moves.rebalanced(before, before, []) == before


def test_a_worker_whose_request_changes_gets_a_new_process() -> None:
    before = plan(2, need=ONE, tasks=4)
    after = placed(before, replan(before, 4))
    new_plan = moves().rebalanced(before, after, [])
    requests = {worker: new_plan.request_of(worker) for worker in new_plan.workers}
    assert [*requests.values()] == [ONE] * 4
    assert not {*new_plan.workers} & {*before.workers}, "their requests were two CPUs"


def test_a_worker_whose_request_would_change_and_whose_state_cannot_move_is_refused() -> None:
    topology = Topology("t", workers=1)
    numbers = topology.spout("s", Counter(9), 2)
    numbers.shuffle().bolt("held", Held)
    numbers.shuffle().bolt("b", function, 2, resources=ONE)
    before = make_plan(topology.graph())
    with pytest.raises(LifecycleError, match=r"request 1 CPU instead of 2 CPU.* held\[0\] is in"):
        moves().rebalanced(before, placed(before, replan(before, 2)), [])


def test_a_plan_that_no_node_can_hold_is_refused_unless_nodes_may_be_added() -> None:
    large = plan(1, need=Resources(num_cpus=9))
    with pytest.raises(LifecycleError, match="worker 0 requests 18 CPU, and no node has"):
        moves(many("a")).check(large)
    moves(many("a"), grows=True).check(large)


def test_workers_that_cannot_leave_a_drained_node_do_not_prevent_a_rebalance() -> None:
    before = plan(2, Held, ONE)
    drained = NodeState("b", Resources(num_cpus=2), NONE, leaves_s=600.0)
    node_moves = moves(NodeState("a", ONE, NONE), drained, places={0: "a", 1: "b"})
    assert node_moves.rebalanced(before, before, []) == before


def test_a_new_worker_must_fit_beside_those_that_stay() -> None:
    node_moves = moves(NodeState("a", ONE, NONE), places={0: "a"})
    with pytest.raises(LifecycleError, match="worker 1 requests 1 CPU, and no node has that much"):
        node_moves.check(plan(2, need=ONE), [0])


def test_a_sum_that_a_process_cannot_request_is_refused_before_anything_changes() -> None:
    node_moves, before = moves(), plan(3, need=Resources(custom={"TPU": 1}), tasks=3)
    node_moves.why_refused = lambda request: (
        "one or two" if request.custom.get("TPU", 0) > 2 else None
    )
    assert len(node_moves.rebalanced(before, placed(before, replan(before, 2)), []).workers) == 2
    with pytest.raises(
        LifecycleError,
        match=r"worker \d would request 3 TPU for b\[0\], b\[1\], b\[2\], and Ray refuses that: "
        r"one or two; another number of workers .* Nothing has been changed",
    ):
        node_moves.rebalanced(before, placed(before, replan(before, 1)), [])


# ---- a worker without room -------------------------------------------------------------------


def test_a_worker_that_lost_its_node_and_one_that_has_none_yet_wait_for_room() -> None:
    before, full = plan(3, need=ONE, tasks=3), NodeState("a", ONE, NONE)
    node_moves = moves(full, places={0: "a", 1: "lost"})
    node_moves.view = replace(node_moves.view, unmet=(ONE,), starting=frozenset({1, 2}))
    (line,) = node_moves.problems(before, [1, 2])
    assert line.startswith("workers 1, 2 wait for a node with 1 CPU free for each: the largest, a")
    assert node_moves.unmet(before, [1, 2]) == (1, 2)
    assert node_moves.unmet(before, []) == (), "a process of another topology waits"


def test_a_silent_worker_does_not_wait_for_room_while_others_wait_for_as_much() -> None:
    before, node_moves = (
        plan(2, need=ONE),
        moves(NodeState("a", ONE, NONE), places={0: "a", 1: "a"}),
    )
    node_moves.view = replace(node_moves.view, unmet=(ONE,))
    assert node_moves.unmet(before, [1]) == node_moves.problems(before, [1]) == ()


# ---- a node that is drained ------------------------------------------------------------------


def test_a_master_leaves_a_drained_node_for_one_that_stays_once_no_task_moves() -> None:
    node_moves = moves(many("a", leaves_s=60.0), many("b"))
    assert node_moves.master_leaves("a", 30.0, moving=False)
    assert not node_moves.master_leaves("a", 30.0, moving=True)
    assert not node_moves.master_leaves("b", 30.0, moving=False)
    assert not node_moves.master_leaves("unknown", 30.0, moving=False)
    node_moves.view = NodeView((many("a", leaves_s=60.0), many("b", leaves_s=inf)))
    assert not node_moves.master_leaves("a", 30.0, moving=False), "both are being drained"


def test_a_master_that_ray_has_started_on_a_drained_node_leaves_it_after_half_a_minute() -> None:
    node_moves = moves(many("a", leaves_s=60.0), many("b"))
    assert not node_moves.master_leaves("a", 29.0, moving=False)
    assert node_moves.master_leaves("a", 30.0, moving=False)


def test_workers_leave_a_node_that_is_being_drained_and_the_others_stay() -> None:
    node_moves = moves(many("a", leaves_s=inf), many("b"), places={0: "a", 1: "b"})
    before = plan(2)
    after, wait_s = node_moves.away(before, [], 0.0) or (before, 0.0)
    assert after == renewed(before, [0])
    assert after.workers == [1, 2]
    assert wait_s == before.graph.config.message_timeout_s
    assert node_moves.problems(before, []) == ()
    (line,) = node_moves.lines(before, [])
    assert line.startswith(
        "tasks of worker 0 leave node a, which is being drained: the spouts stop"
    )
    assert node_moves.lines(after, []) == (), "its tasks have moved"


def test_pending_trees_get_half_of_the_time_that_the_node_has_left() -> None:
    node_moves = moves(many("a", leaves_s=8.0), many("b"), places={0: "a"})
    assert (node_moves.away(plan(1), [], 0.0) or (None, None))[1] == 4.0


def test_a_task_whose_state_cannot_move_stays_and_status_says_so_and_the_others_leave() -> None:
    node_moves = moves(many("a", leaves_s=inf), many("b"), places={0: "a", 1: "b"})
    before = plan(2, Held)
    after, _ = node_moves.away(before, [], 0.0) or (before, 0.0)
    names = {worker: [task.name for task in after.tasks_on(worker)] for worker in after.workers}
    assert names == {0: ["b[0]"], 1: ["s[1]", "b[1]", "__acker[1]"], 2: ["s[0]", "__acker[0]"]}
    stays, leave = node_moves.lines(before, [])
    assert stays.startswith(
        "worker 0 stays on node a, which is being drained: the state of b[0] is"
    )
    assert leave.startswith("tasks of worker 0 leave node a, which is being drained: the spouts")
    assert node_moves.away(after, [], 60.0) is None
    assert node_moves.lines(after, []) == (stays,)


def test_tasks_with_requests_stay_in_the_worker_of_a_task_that_cannot_move() -> None:
    topology = Topology("t", workers=1)
    numbers = topology.spout("s", Counter(9))
    numbers.shuffle().bolt("held", Held, resources=ONE)
    numbers.shuffle().bolt("b", function, resources=ONE)
    before = make_plan(topology.graph())
    node_moves = moves(many("a", leaves_s=inf), many("b"), places={0: "a"})
    after, _ = node_moves.away(before, [], 0.0) or (before, 0.0)
    assert [task.name for task in after.tasks_on(0)] == ["held[0]", "b[0]"]
    assert after.request_of(0) == before.request_of(0), "its process keeps what it has requested"


def test_without_room_elsewhere_a_worker_stays_until_the_node_is_about_to_end() -> None:
    before, full = plan(1, need=ONE), NodeState("b", Resources(num_cpus=9), NONE)
    node_moves = moves(many("a", leaves_s=100.0), full, places={0: "a"})
    assert node_moves.away(before, [], 0.0) is None
    (line,) = node_moves.problems(before, [])
    assert line == (
        "worker 0 stays on node a, which is being drained: no other node has 2 CPU free; add a "
        "node, or end what else requests resources, or it leaves 30 s before the end of the node"
    )
    node_moves = moves(many("a", leaves_s=20.0), full, places={0: "a"})
    assert node_moves.away(before, [], 0.0) is not None, "its state is stored, and it starts later"


def test_without_room_a_worker_leaves_in_time_for_a_node_that_an_autoscaler_adds() -> None:
    before = plan(1, need=ONE)
    node_moves = moves(many("a", leaves_s=301.0), places={0: "a"}, grows=True)
    assert node_moves.away(before, [], 0.0) is None, "the autoscaler may be at its limit"
    (line,) = node_moves.problems(before, [])
    assert "all nodes are being drained; add a node" in line
    assert line.endswith("or it leaves 300 s before the end of the node")
    node_moves.view = moves(many("a", leaves_s=299.0), places={0: "a"}, grows=True).view
    assert node_moves.away(before, [], 0.0) is not None


def test_without_room_a_worker_stays_on_a_node_that_is_drained_without_a_deadline() -> None:
    before = plan(1, need=ONE)
    node_moves = moves(many("a", leaves_s=inf), NodeState("b"), places={0: "a"}, grows=True)
    assert node_moves.away(before, [], 0.0) is None
    (line,) = node_moves.problems(before, [])
    assert line.endswith(
        "no other node has 2 CPU free; add a node, or end what else requests resources"
    )


def test_of_two_workers_that_leave_the_one_without_room_is_named() -> None:
    before, full = plan(2, need=ONE), NodeState("b", ONE, ONE)
    node_moves = moves(many("a", leaves_s=900.0), full, places={0: "a", 1: "a"})
    (line,) = node_moves.problems(before, [])
    assert line.startswith("worker 1 stays on node a, which is being drained: no other node has")
    assert node_moves.away(before, [], 0.0) == (renewed(before, [0]), 30.0)


def test_a_cancelled_leave_is_tried_again_after_half_a_minute() -> None:
    node_moves, before = moves(many("a", leaves_s=inf), many("b"), places={0: "a"}), plan(1)
    assert node_moves.away(before, [], 0.0) is not None
    assert node_moves.away(before, [], 29.0) is None
    assert node_moves.away(before, [], 30.0) is not None


def test_workers_leave_a_second_node_that_is_drained_meanwhile_at_once() -> None:
    before = plan(3)
    node_moves = moves(
        many("a", leaves_s=60.0), many("b"), many("c"), places={0: "a", 1: "b", 2: "c"}
    )
    first, _ = node_moves.away(before, before.workers, 0.0) or (before, 0.0)
    assert first.workers == [1, 2, 3]
    node_moves.view = NodeView((many("b", leaves_s=60.0), many("c")), {1: "b", 2: "c", 3: "c"})
    after, _ = node_moves.away(first, first.workers, 5.0) or (first, 0.0)
    assert after.workers == [0, 2, 3], "0 is free again"


def test_workers_leave_two_drained_nodes_together() -> None:
    nodes = many("a", leaves_s=60.0), many("b", leaves_s=10.0), many("c")
    node_moves, before = moves(*nodes, places={0: "a", 1: "b", 2: "c"}), plan(3)
    assert node_moves.away(before, before.workers, 0.0) == (renewed(before, [0, 1]), 5.0)
