"""Chooses nodes for workers: nodes with room, better nodes, and requests that fit on no node.

A worker gets a node when its process is created, and stays there: Ray restarts it on that node, or
elsewhere if the node is gone. Where no node has room the choice is left to Ray, which starts the
worker once one has, perhaps a node that its autoscaler adds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import inf
from types import MappingProxyType

from sunshower.config import Config, Resources
from sunshower.errors import LifecycleError
from sunshower.runtime.control.placement import placed, unused
from sunshower.runtime.plan import ACKER, Plan, Task
from sunshower.topologies.graph import can_move

Requests = Mapping[int, Resources]  # worker → what it requests

MAKE_ROOM = "add a node, or end what else requests resources"
NONE: Requests = MappingProxyType({})
_TINY = 1e-9  # by which a sum of amounts may differ
_ALL_DRAINED = "all nodes are being drained"


@dataclass(frozen=True)
class NodeState:
    """A node of the cluster at one moment."""

    id: str
    total: Resources = field(default_factory=Resources)
    free: Resources = field(default_factory=Resources)
    workers: int = 0  # of all topologies; 0 if not known
    leaves_s: float | None = None  # seconds until it ends, if it is being drained; else None


@dataclass(frozen=True)
class NodeView:
    """What the master knows about the nodes."""

    nodes: tuple[NodeState, ...] = ()
    places: Mapping[int, str] = field(default_factory=dict)  # worker → node id
    unmet: tuple[Resources, ...] = ()  # requests for which Ray has found no room
    grows: bool = False  # whether Ray's autoscaler may add nodes
    starting: frozenset[int] = frozenset()  # workers without a process, if anything is unmet

    @property
    def staying(self) -> list[NodeState]:
        """The nodes that are not being drained."""
        return [node for node in self.nodes if node.leaves_s is None]

    def leaving(self, workers: Iterable[int]) -> dict[int, float]:
        """Those of these workers whose node is being drained → seconds until it ends."""
        left = {node.id: node.leaves_s for node in self.nodes}
        deadlines = {worker: left.get(self.places.get(worker, "")) for worker in workers}
        return {worker: left_s for worker, left_s in deadlines.items() if left_s is not None}


class NodeRoom:
    """What is free on each node, and how many workers of one topology are there."""

    def __init__(
        self, nodes: Iterable[NodeState], hosted: Iterable[str], placement: str = Config.placement
    ) -> None:
        """`hosted`: the node of each of its workers."""
        self._nodes = {node.id: node for node in nodes}
        self._free = {id: dict(node.free.amounts) for id, node in self._nodes.items()}
        self._hosted = Counter(id for id in hosted if id in self._nodes)
        self._packs = placement == "pack"

    def choose(self, request: Resources, without: Collection[str] = ()) -> str | None:
        """The best node for a new worker, which takes up its room; None: none has any."""
        fitting = [id for id in self._nodes if id not in without and self._fits(id, request)]
        if not fitting:
            return None
        best = min(fitting, key=self._packed_order if self._packs else self._spread_order)
        self._add(best, request, 1)
        return best

    def reserve(self, node: str, request: Resources) -> None:
        """One of `hosted` is starting there, and is not in what is free yet."""
        if node in self._nodes:
            self._add(node, request, 1)
            self._hosted[node] -= 1

    def fits(self, request: Resources) -> bool:
        """Whether a node has room for a worker."""
        return any(self._fits(id, request) for id in self._nodes)

    def free(self, name: str) -> float:
        """How much of a resource is free on all nodes together."""
        return sum(free.get(name, 0.0) for free in self._free.values())

    def moves(self, requests: Requests, places: Mapping[int, str]) -> list[int]:
        """Which of these workers are better on another node, in few moves: the nodes get more even
        by them, or, packed, nodes are left empty."""
        return self._emptying(requests, places) if self._packs else self._evening(requests, places)

    def _evening(self, requests: Requests, places: Mapping[int, str]) -> list[int]:
        node_of, moved = (
            {w: places[w] for w in requests if places.get(w) in self._nodes},
            list[int](),
        )
        while (move := self._next_even(requests, node_of)) is not None:
            worker, to = move
            self._add(node_of.pop(worker), requests[worker], -1)
            self._add(to, requests[worker], 1)
            moved.append(worker)
        return moved

    def _next_even(self, requests: Requests, node_of: Mapping[int, str]) -> tuple[int, str] | None:
        ascending = sorted(self._nodes, key=self._spread_order)
        for to in ascending:
            for here in reversed(ascending):
                if self._hosted[here] - self._hosted[to] < 2:
                    break
                for worker, node in sorted(node_of.items()):
                    if node == here and self._fits(to, requests[worker]):
                        return worker, to
        return None

    def _emptying(self, requests: Requests, places: Mapping[int, str]) -> list[int]:
        moved: list[int] = []
        for here in sorted(self._nodes, key=lambda id: (self._hosted[id], id)):
            workers = [worker for worker in sorted(requests) if places.get(worker) == here]
            if not workers or len(workers) < self._hosted[here]:
                continue  # a worker stays there in any case
            empty = {id for id in self._nodes if not self._hosted[id]} | {here}
            new_places = {worker: self.choose(requests[worker], empty) for worker in workers}
            if None in new_places.values():
                for worker, to in new_places.items():
                    if to is not None:
                        self._add(to, requests[worker], -1)
            else:
                moved += workers
                for worker in workers:
                    self._add(here, requests[worker], -1)
        return moved

    def _spread_order(self, id: str) -> tuple[int, int, str]:
        return self._hosted[id], self._nodes[id].workers, id

    def _packed_order(self, id: str) -> tuple[int, float, str]:
        return -self._hosted[id], -self._free[id].get("CPU", 0.0), id

    def _fits(self, id: str, request: Resources) -> bool:
        return _fits(request, self._free[id])

    def _add(self, id: str, request: Resources, sign: int) -> None:
        self._hosted[id] += sign
        for name, amount in request.amounts.items():
            self._free[id][name] = self._free[id].get(name, 0.0) - sign * amount


def choices(requests: Requests, view: NodeView, placement: str) -> dict[int, str]:
    """Worker → the node for its new process; without those for which no node has room."""
    room = NodeRoom(view.staying, view.places.values(), placement)
    largest_first = sorted(requests, key=lambda worker_id: (-_size(requests[worker_id]), worker_id))
    chosen = {worker: room.choose(requests[worker]) for worker in largest_first}
    return {worker: node for worker, node in chosen.items() if node is not None}


def choice(
    worker: int, request: Resources, view: NodeView, starting: Requests, placement: str
) -> str | None:
    """The node for the new process of one worker; None: none has room. One that is replaced goes to
    another node than before, if there is one: Ray may not know yet that the former one is cut off.
    `starting`: workers with a place whose requests Ray has not counted yet."""
    others = {other: at for other, at in view.places.items() if other != worker}
    room = NodeRoom(view.staying, others.values(), placement)
    for other, wanted in starting.items():
        room.reserve(others[other], wanted)
    former = view.places.get(worker, "")
    return room.choose(request, [former]) or room.choose(request)


def misfit(requests: Requests, view: NodeView, others: Requests = NONE) -> str | None:
    """A sentence about requests that the nodes cannot hold, even if nothing but the `others` of the
    topology, which keep their process, were there; None: there are none, or the autoscaler may add
    nodes."""
    if view.grows or not view.nodes or not requests:
        return None
    if not view.staying:
        return _ALL_DRAINED
    room = NodeRoom([replace(node, free=node.total) for node in view.staying], ())
    for worker, request in others.items():
        room.reserve(view.places.get(worker, ""), request)
    for worker, request in sorted(requests.items()):
        if not room.fits(request):
            return (
                f"worker {worker} requests {request}, and no node has that much: "
                f"{_largest(request, view)}"
            )
    wanted: dict[str, float] = {}
    for request in requests.values():
        for name, amount in request.amounts.items():
            wanted[name] = wanted.get(name, 0.0) + amount
    for name, amount in wanted.items():
        if amount > (available := room.free(name)) + _TINY:
            needed, all_of = _one(name, amount), _one(name, available)
            whose = "its new workers" if others else "its workers"
            besides = " besides what its other workers request" if others else ""
            drained = len(view.staying) < len(view.nodes)
            nodes = "all nodes that are not being drained" if drained else "all nodes"
            return f"{whose} request {needed} together, and {nodes} have {all_of}{besides}"
    return None


def unmet(requests: Requests, view: NodeView) -> list[int]:
    """Those of these workers, which may have no process, that wait for room."""
    starting = {worker: request for worker, request in requests.items() if worker in view.starting}
    return [worker for worker, request in sorted(starting.items()) if request in view.unmet]


def waits(requests: Requests, view: NodeView) -> list[str]:
    """A line for each request of these workers, which may have no process, that waits for room."""
    wanted: dict[str, list[int]] = {}
    for worker in unmet(requests, view):
        wanted.setdefault(str(requests[worker]), []).append(worker)
    return [_wait(workers, requests[workers[0]], view) for workers in wanted.values()]


def _wait(workers: list[int], request: Resources, view: NodeView) -> str:
    free = f"{request or 'memory'} free"
    if len(workers) == 1:
        wait = f"worker {workers[0]} waits for a node with {free}"
    else:
        wait = f"workers {', '.join(map(str, workers))} wait for a node with {free} for each"
    remedy = "Ray's autoscaler may add a node" if view.grows else MAKE_ROOM
    return f"{wait}: {_largest(request, view)}; {remedy}"


def _largest(request: Resources, view: NodeView) -> str:
    """What the node has that lacks least, of those that are not being drained."""
    if not (nodes := view.staying):
        return _ALL_DRAINED if view.nodes else "there is no node"
    names = request.amounts
    if not names:  # a byte of memory: see nodes.py
        return "others request all memory of the nodes"

    def lack(node: NodeState) -> tuple[float, float]:
        free, total = node.free.amounts, node.total.amounts
        of_total = sum(max(0.0, 1 - total.get(name, 0.0) / names[name]) for name in names)
        return of_total, -sum(free.get(name, 0.0) / names[name] for name in names)

    best = min(nodes, key=lack)
    parts = [
        f"{_one(name, best.free.amounts.get(name, 0.0))} free of "
        f"{_one(name, best.total.amounts.get(name, 0.0))}"
        for name in names
    ]
    return f"the largest, {best.id[:8]}, has {', '.join(parts)}"


def _one(name: str, amount: float) -> str:
    return f"{amount / 2**30:.3g} GiB of memory" if name == "memory" else f"{amount:g} {name}"


def _size(request: Resources) -> float:
    amounts = request.num_cpus, sum(request.custom.values()), request.memory / 2**32
    return 1e6 * request.num_gpus + sum(amounts)


def _fits(request: Resources, room: Mapping[str, float]) -> bool:
    return all(amount <= room.get(name, 0.0) + _TINY for name, amount in request.amounts.items())


# ---- node moves ----------------------------------------------------------------------------------
# Moves workers to other nodes: off those that are being drained, and onto new ones.
#
# A process keeps what it has requested of its node, and stays there. So a worker that is to be on
# another node, or whose tasks request something else, gets a new id: its tasks move to a new
# process as in any rebalance, with their states. If some of them cannot move, the others leave a
# node that is being drained without them.

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
        changed = {
            worker for worker in staying if before.request_of(worker) != after.request_of(worker)
        }
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
        new = {worker: plan.request_of(worker) for worker in plan.workers if worker not in staying}
        others = {worker: plan.request_of(worker) for worker in staying}
        why = refused(plan, new, self.why_refused) or misfit(new, self.view, others)
        if why is not None:
            raise LifecycleError(
                f"topology {plan.graph.id!r} cannot have this plan: {why}. Nothing has been changed"
            )

    def away(self, plan: Plan, taken: Iterable[int], now: float) -> tuple[Plan, float] | None:
        """The plan with new workers for the tasks that leave a node that is being drained, and how
        long pending trees may take; None if none does."""
        leaving, room = self.view.leaving(plan.workers), self._with_room(plan)
        self._again_s = {worker: at for worker, at in self._again_s.items() if worker in leaving}
        going = [
            worker
            for worker in leaving
            if movable(plan, worker)
            and now >= self._again_s.get(worker, now)
            and (worker in room or leaving[worker] <= self._last_s)
        ]
        if not going:
            return None
        self._again_s |= dict.fromkeys(going, now + _AGAIN_S)
        wait_s = min(
            plan.graph.config.message_timeout_s, *(leaving[worker] / 2 for worker in going)
        )
        return renewed(plan, going, taken), wait_s

    def unmet(self, plan: Plan, absent: Collection[int]) -> tuple[int, ...]:
        """The workers that wait for room. `absent`: those that may have no process."""
        return tuple(unmet({worker: plan.request_of(worker) for worker in absent}, self.view))

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
        requests = {worker: plan.request_of(worker) for worker in absent}
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
        staying = {known.id for known in self.view.staying}
        is_drained = any(known.id == node for known in self.view.nodes) and node not in staying
        return is_drained and bool(staying) and not moving and age_s >= _AGAIN_S

    @property
    def _last_s(self) -> float:
        return _START_S if self.view.grows else _LAST_S

    def _with_room(self, plan: Plan) -> Collection[int]:
        """The workers with tasks that leave nodes that are being drained, if others have room."""
        hosted = {worker: at for worker, at in self.view.places.items() if worker in plan.workers}
        leaving = {worker: movable(plan, worker) for worker in self.view.leaving(plan.workers)}
        requests = {
            worker: plan.request_of_tasks(tasks) for worker, tasks in leaving.items() if tasks
        }
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
