"""Chooses nodes for workers: nodes with room, better nodes, and requests that fit on no node.

A worker gets a node when its process is created, and stays there: Ray restarts it on that node, or
elsewhere if the node is gone. Where no node has room the choice is left to Ray, which starts the
worker once one has, perhaps a node that its autoscaler adds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from sunshower.config import Config, Resources

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
        found = {worker: left.get(self.places.get(worker, "")) for worker in workers}
        return {worker: left_s for worker, left_s in found.items() if left_s is not None}


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
        there, moved = {w: places[w] for w in requests if places.get(w) in self._nodes}, list[int]()
        while (move := self._next_even(requests, there)) is not None:
            worker, to = move
            self._add(there.pop(worker), requests[worker], -1)
            self._add(to, requests[worker], 1)
            moved.append(worker)
        return moved

    def _next_even(self, requests: Requests, there: Mapping[int, str]) -> tuple[int, str] | None:
        ascending = sorted(self._nodes, key=self._spread_order)
        for to in ascending:
            for here in reversed(ascending):
                if self._hosted[here] - self._hosted[to] < 2:
                    break
                for worker, node in sorted(there.items()):
                    if node == here and self._fits(to, requests[worker]):
                        return worker, to
        return None

    def _emptying(self, requests: Requests, places: Mapping[int, str]) -> list[int]:
        moved: list[int] = []
        for here in sorted(self._nodes, key=lambda id: (self._hosted[id], id)):
            own = [worker for worker in sorted(requests) if places.get(worker) == here]
            if not own or len(own) < self._hosted[here]:
                continue  # a worker stays there in any case
            empty = {id for id in self._nodes if not self._hosted[id]} | {here}
            found = {worker: self.choose(requests[worker], empty) for worker in own}
            if None in found.values():
                for worker, to in found.items():
                    if to is not None:
                        self._add(to, requests[worker], -1)
            else:
                moved += own
                for worker in own:
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
    largest_first = sorted(requests, key=lambda one: (-_size(requests[one]), one))
    found = {worker: room.choose(requests[worker]) for worker in largest_first}
    return {worker: node for worker, node in found.items() if node is not None}


def choice(
    worker: int, request: Resources, view: NodeView, starting: Requests, placement: str
) -> str | None:
    """The node for the new process of one worker; None: none has room. One that is replaced goes to
    another node than before, if there is one: Ray may not know yet that the former one is cut off.
    `starting`: workers with a place whose requests Ray has not counted yet."""
    others = {one: at for one, at in view.places.items() if one != worker}
    room = NodeRoom(view.staying, others.values(), placement)
    for one, wanted in starting.items():
        room.reserve(others[one], wanted)
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
    room = NodeRoom([replace(one, free=one.total) for one in view.staying], ())
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
        if amount > (there := room.free(name)) + _TINY:
            one, all_of = _one(name, amount), _one(name, there)
            whose = "its new workers" if others else "its workers"
            besides = " besides what its other workers request" if others else ""
            drained = len(view.staying) < len(view.nodes)
            nodes = "all nodes that are not being drained" if drained else "all nodes"
            return f"{whose} request {one} together, and {nodes} have {all_of}{besides}"
    return None


def unmet(requests: Requests, view: NodeView) -> list[int]:
    """Those of these workers, which may have no process, that wait for room."""
    starting = {one: request for one, request in requests.items() if one in view.starting}
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
    way_out = "Ray's autoscaler may add a node" if view.grows else MAKE_ROOM
    return f"{wait}: {_largest(request, view)}; {way_out}"


def _largest(request: Resources, view: NodeView) -> str:
    """What the node has that lacks least, of those that are not being drained."""
    if not (nodes := view.staying):
        return _ALL_DRAINED if view.nodes else "there is no node"
    names = request.amounts
    if not names:  # a byte of memory: see worker_options.py
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
