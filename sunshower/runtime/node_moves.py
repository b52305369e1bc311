"""Moves workers to other nodes: off those that are being drained, and onto new ones.

A process keeps what it has requested of its node, and stays there. So a worker that is to be on
another node, or whose tasks request something else, gets a new id: its tasks move to a new process
as in any rebalance, with their states. If some of them cannot move, the others leave a node that is
being drained without them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from math import inf

from sunshower.config import Resources
from sunshower.errors import LifecycleError
from sunshower.runtime.control.placement import can_move, placed, unused
from sunshower.runtime.nodes import MAKE_ROOM, NodeRoom, NodeView, choices, misfit, unmet, waits
from sunshower.runtime.plan import ACKER, Plan, Task

# How long a worker stays if its move was cancelled, and each new master: Ray may have started the
# master on another node that is being drained.
_AGAIN_S = 30.0
_LAST_S = 30.0  # before a node ends, its workers leave it, also if no other one has room
_START_S = 300.0  # likewise where an autoscaler may add a node: it sees only workers without one

WhyRefused = Callable[[Resources], str | None]  # why no process can request that; None: one can


class NodeMoves:
    """The master's part that knows the nodes."""

    def __init__(self) -> None:
        self.view = NodeView()  # from the adapter
        self.why_refused: WhyRefused = lambda _: None  # likewise
        self._again_s: dict[int, float] = {}  # worker → when it may leave its node again

    def rebalanced(self, before: Plan, after: Plan, taken: Iterable[int]) -> Plan:
        """The plan `after`, with new workers where the request changes or another node is better.
        `taken`: workers that may have a process. Raises LifecycleError if that cannot be."""
        fixed = {worker for worker in before.workers if pinned(before, worker)}
        staying = {worker for worker in after.workers if worker in before.workers}
        changed = {one for one in staying if before.request_of(one) != after.request_of(one)}
        if stuck := sorted(changed & fixed):
            task = pinned(before, stuck[0])[0]
            raise LifecycleError(
                f"topology {before.graph.id!r} cannot be rebalanced so: worker {stuck[0]} would "
                f"request {after.request_of(stuck[0])} instead of {before.request_of(stuck[0])}, "
                f"for which it needs a new process, and the state of {task.name} "
                f"is in memory and cannot move. Write snapshot() and "
                f"restore(state) for {task.component!r}; nothing has been changed"
            )
        requests = {worker: after.request_of(worker) for worker in after.workers}
        places, placement = self.view.places, after.graph.config.placement
        hosted = [places[worker] for worker in staying - changed if worker in places]
        room = NodeRoom(self.view.staying, hosted, placement)
        for worker in sorted(requests.keys() - (staying - changed)):
            room.choose(requests[worker])
        free = {worker: requests[worker] for worker in staying - changed - fixed}
        leaving = changed | {*room.moves(free, places)}
        plan = renewed(after, leaving, taken)
        self.check(plan, staying - leaving)
        return plan

    def check(self, plan: Plan, staying: Collection[int] = ()) -> None:
        """Raise LifecycleError if the nodes cannot hold the new workers of a plan, or one of them
        cannot request its sum. `staying`: those that keep their process."""
        new = {one: plan.request_of(one) for one in plan.workers if one not in staying}
        others = {one: plan.request_of(one) for one in staying}
        why = refused(plan, new, self.why_refused) or misfit(new, self.view, others)
        if why is not None:
            raise LifecycleError(
                f"topology {plan.graph.id!r} cannot have this plan: {why}. Nothing has been changed"
            )

    def away(self, plan: Plan, taken: Iterable[int], now: float) -> tuple[Plan, float] | None:
        """The plan with new workers for the tasks that leave a node that is being drained, and how
        long pending trees may take; None if none does."""
        leaving, room = self.view.leaving(plan.workers), self._with_room(plan)
        self._again_s = {one: at for one, at in self._again_s.items() if one in leaving}
        going = [
            one
            for one in leaving
            if movable(plan, one)
            and now >= self._again_s.get(one, now)
            and (one in room or leaving[one] <= self._last_s)
        ]
        if not going:
            return None
        self._again_s |= dict.fromkeys(going, now + _AGAIN_S)
        wait_s = min(plan.graph.config.message_timeout_s, *(leaving[one] / 2 for one in going))
        return renewed(plan, going, taken), wait_s

    def unmet(self, plan: Plan, absent: Collection[int]) -> tuple[int, ...]:
        """The workers that wait for room. `absent`: those that may have no process."""
        return tuple(unmet({one: plan.request_of(one) for one in absent}, self.view))

    def problems(self, plan: Plan, absent: Collection[int]) -> tuple[str, ...]:
        """A line for each request that waits for room, and for each worker that stays on a node
        that is being drained. `absent`: as above."""
        leaving, room = self.view.leaving(plan.workers), self._with_room(plan)
        held = [
            f"worker {worker} stays on node {self.view.places[worker][:8]}, which is being "
            f"drained: {self._why_held(plan, worker, leaving[worker])}"
            for worker in sorted(leaving)
            if worker not in room or pinned(plan, worker)
        ]
        requests = {one: plan.request_of(one) for one in absent}
        return (*waits(requests, self.view), *held)

    def lines(self, plan: Plan, absent: Collection[int]) -> tuple[str, ...]:
        """The problems, and a line for each worker whose tasks leave a node that is being drained;
        `absent`: as above."""
        moves = [
            f"tasks of worker {worker} leave node {self.view.places[worker][:8]}, which is being "
            "drained: the spouts stop until nothing is pending, or the wait is over, then they move"
            for worker in sorted(self._with_room(plan))
        ]
        return (*self.problems(plan, absent), *moves)

    def master_leaves(self, node: str, age_s: float, *, moving: bool) -> bool:
        """Whether a master of that age shall end, so that Ray starts the next one on another node:
        its node is being drained, and one stays. `moving`: the tasks move now, and go first."""
        staying = {one.id for one in self.view.staying}
        is_drained = any(one.id == node for one in self.view.nodes) and node not in staying
        return is_drained and bool(staying) and not moving and age_s >= _AGAIN_S

    @property
    def _last_s(self) -> float:
        return _START_S if self.view.grows else _LAST_S

    def _with_room(self, plan: Plan) -> Collection[int]:
        """The workers with tasks that leave nodes that are being drained, if others have room."""
        hosted = {one: at for one, at in self.view.places.items() if one in plan.workers}
        own = {one: movable(plan, one) for one in self.view.leaving(plan.workers)}
        requests = {one: plan.request_of_tasks(tasks) for one, tasks in own.items() if tasks}
        view = NodeView(self.view.nodes, hosted)
        return choices(requests, view, plan.graph.config.placement).keys()

    def _why_held(self, plan: Plan, worker: int, left_s: float) -> str:
        if tasks := pinned(plan, worker):
            names = ", ".join(task.name for task in tasks)
            return (
                f"the state of {names} is in memory and cannot move. Write snapshot() and "
                "restore(state), or give it a state= in a store"
            )
        why = "all nodes are being drained"
        if self.view.staying:
            why = f"no other node has {plan.request_of(worker)} free"
        if left_s == inf:
            return f"{why}; {MAKE_ROOM}"
        return f"{why}; {MAKE_ROOM}, or it leaves {self._last_s:g} s before the end of the node"


def pinned(plan: Plan, worker: int) -> list[Task]:
    """The tasks of a worker that cannot continue in another process without losing state."""
    tasks = [task for task in plan.tasks_on(worker) if task.component != ACKER]
    return [task for task in tasks if not can_move(plan.component(task))]


def movable(plan: Plan, worker: int) -> list[Task]:
    """The tasks of a worker that can go to a new process: all, or, beside one that cannot, those
    that request nothing, because the process of the worker keeps its request."""
    fixed = pinned(plan, worker)
    return [
        task
        for task in plan.tasks_on(worker)
        if not fixed or (task not in fixed and not plan.request_of_tasks([task]))
    ]


def refused(plan: Plan, workers: Iterable[int], why_refused: WhyRefused) -> str | None:
    """A sentence about the first of these workers that cannot request its sum; None: all can."""
    for worker in workers:
        request = plan.request_of(worker)
        if (why := why_refused(request)) is not None:
            tasks = [task for task in plan.tasks_on(worker) if task.component != ACKER]
            names = [task.name for task in tasks if plan.component(task).resources]
            return (
                f"worker {worker} would request {request} for {', '.join(names)}, and Ray refuses "
                f"that: {why.rstrip('.')}; another number of workers makes other sums"
            )
    return None


def renewed(plan: Plan, workers: Collection[int], taken: Iterable[int] = ()) -> Plan:
    """The plan with new workers for the movable tasks of these, which go to new processes."""
    numbers = unused({*plan.workers, *taken}, len(workers))
    new = zip(sorted(workers), numbers, strict=True)
    ids = {task.id: number for worker, number in new for task in movable(plan, worker)}
    return placed(plan, [ids.get(task.id, task.worker) for task in plan.tasks])
