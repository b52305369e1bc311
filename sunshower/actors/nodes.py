"""Reads free and drained nodes from Ray; separate because it alone uses Ray's internal calls.

It queries the head, which may be unavailable, so the master calls it on a separate thread.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from math import inf
from typing import Any

import ray
from ray._private.accelerators import get_all_accelerator_resource_names
from ray.experimental import internal_kv
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from sunshower.actors.names import detached, worker_name, worker_of
from sunshower.actors.starting import first_line
from sunshower.actors.worker import WorkerClass
from sunshower.config import Resources
from sunshower.errors import ClusterError
from sunshower.runtime.control.lifecycle import NOT_STARTED
from sunshower.runtime.control.nodes import NodeState, NodeView, choices, misfit, refused
from sunshower.runtime.events.metrics import Snapshot
from sunshower.runtime.plan import Plan

_READ_S = 1.0  # between two looks at the nodes
_TIMEOUT_S = 5
_BYTE = 1  # which every worker requests: see `worker_options`
_STARTING = ("PENDING_CREATION", "RESTARTING")  # states of Ray's actors
_STATUS = "__autoscaling_status"  # the key of the report of Ray's autoscaler
_log = logging.getLogger(__name__)


def cluster_nodes() -> tuple[NodeState, ...]:
    """The living nodes, without their workers. Raises an error of Ray's if the head does not
    answer."""
    from ray._private import state  # no public API without Ray's dashboard: see the pin of ray

    table = state.state
    total, free = table.total_resources_per_node(), table.available_resources_per_node()
    draining, now = table.get_draining_nodes(), time.time()
    return tuple(
        NodeState(
            id,
            _resources(amounts),
            _resources(free.get(id, {})),
            leaves_s=None if id not in draining else _left_s(draining[id], now),
        )
        for id, amounts in sorted(total.items())
    )


def workers_by_node() -> Counter[str]:
    """How many workers of all topologies each node has. It reads all actors of the cluster, so it
    is only for the choice of a node. Raises as `cluster_nodes`."""
    from ray._private import state  # see above

    alive = state.actors(actor_state_name="ALIVE").values()
    return Counter(one["Address"]["NodeID"] for one in alive if worker_of(one["Name"]) is not None)


def with_workers(view: NodeView, workers: Mapping[str, int]) -> NodeView:
    """The view with so many workers of all topologies on each node."""
    nodes = (replace(one, workers=workers.get(one.id, 0)) for one in view.nodes)
    return replace(view, nodes=tuple(nodes))


def unmet_requests() -> tuple[tuple[Resources, ...], bool]:
    """The requests of actors and tasks for which Ray has found no room yet, and whether an
    autoscaler may add nodes. Raises as `cluster_nodes`."""
    from ray.core.generated.autoscaler_pb2 import GetClusterStatusReply

    reply = GetClusterStatusReply()
    client = internal_kv.internal_kv_get_gcs_client()
    reply.ParseFromString(client.get_cluster_status(timeout_s=_TIMEOUT_S))
    pending = reply.cluster_resource_state.pending_resource_requests
    unmet = tuple(_resources(one.request.resources_bundle) for one in pending)
    if reply.HasField("autoscaling_state"):  # of version 2
        return unmet, True
    return unmet, may_add_nodes(internal_kv._internal_kv_get(_STATUS))


def starting_workers(run: str) -> frozenset[int]:
    """The workers of a run for which Ray has no process: it looks for a node, or starts one there.
    The head selects them among the actors of the cluster. Raises as `cluster_nodes`."""
    from ray._private import state  # see above

    found = [one for name in _STARTING for one in state.actors(actor_state_name=name).values()]
    workers = {worker_of(one["Name"]) for one in found if one["Name"].startswith(f"{run}/")}
    return frozenset(worker for worker in workers if worker is not None)


def may_add_nodes(status: bytes | None) -> bool:
    """Whether Ray's autoscaler of version 1, whose report this is, may add nodes.

    Ray's monitor of a cluster without autoscaler reports, too: then each node is a type of its own.
    Until the first report nothing is known, and it may.
    """
    report = json.loads(status or b"{}").get("autoscaler_report")
    if report is None:
        return True
    types = report["node_type_mapping"] or {}
    return any(kind != f"node_{node}" for node, kind in types.items())


def node_view(run: str = "") -> NodeView:
    """All of this, without the places of workers. `run`: whose workers are starting."""
    nodes, (unmet, grows) = cluster_nodes(), unmet_requests()
    starting = starting_workers(run) if run and unmet else frozenset[int]()
    return NodeView(nodes, {}, unmet, grows, starting)


def next_view(last: NodeView, run: str = "") -> NodeView:
    """The present view; the last one if the head does not answer."""
    try:
        return node_view(run)
    except Exception as error:
        _log.debug("Ray does not list the nodes: %s", error)
        return last


class NodeWatch:
    """Looks at the nodes every second, on a thread of its own."""

    def __init__(self, run: str) -> None:
        self._run, self._view = run, NodeView()
        self._workers, self._counted_s = Counter[str](), -inf
        threading.Thread(target=self._look, name="nodes", daemon=True).start()

    def with_places(self, places: Mapping[int, str]) -> NodeView:
        """The latest view. `places`: worker → node id."""
        return replace(self._view, places=places)

    def with_workers(self, places: Mapping[int, str]) -> NodeView:
        """The same with the workers of all topologies, for the choice of a node. They are counted
        once for processes that are created at once; without an answer the last count is taken."""
        if (now := time.monotonic()) - self._counted_s >= _READ_S:
            self._counted_s = now
            try:
                self._workers = workers_by_node()
            except Exception as error:
                _log.debug("Ray does not say which actors there are: %s", error)
        return with_workers(self.with_places(places), self._workers)

    def _look(self) -> None:
        while True:
            self._view = next_view(self._view, self._run)
            time.sleep(_READ_S)


def _resources(amounts: Mapping[str, Any]) -> Resources:
    own = {name: round(float(amount), 4) for name, amount in amounts.items()}
    memory = int(own.pop("memory", 0.0))
    cpus, gpus = own.pop("CPU", 0.0), own.pop("GPU", 0.0)
    own.pop("object_store_memory", None)
    memory = 0 if memory == _BYTE else memory
    return Resources(num_cpus=cpus, num_gpus=gpus, memory=memory, custom=own)


def _left_s(deadline_ms: int, now: float) -> float:
    return max(0.0, deadline_ms / 1000 - now) if deadline_ms else inf


# ---- worker options ------------------------------------------------------------------------------


def worker_options(
    run: str, worker: int, request: Resources, node: str | None, placement: str
) -> dict[str, Any]:
    """`node`: where to start it, if it has room then; None: where Ray finds room.

    Ray keeps them for restarts. One byte of memory is always requested: Ray starts an actor that
    requests nothing on any node, and its autoscaler ends a node of which nothing is requested.
    """
    strategy: Any = "SPREAD" if placement == "spread" else "DEFAULT"
    if node is not None:
        strategy = NodeAffinitySchedulingStrategy(node, soft=True, _spill_on_unavailable=True)
    return detached(worker_name(run, worker)) | {
        "num_cpus": request.num_cpus,
        "num_gpus": request.num_gpus,
        "memory": max(1, int(request.memory)),
        "resources": dict(request.custom),
        "scheduling_strategy": strategy,
        "get_if_exists": True,  # of a run that resumes, master and client create the workers
    }


def why_refused(request: Resources) -> str | None:
    """What Ray has against a worker that requests that, whatever the nodes have; None: nothing."""
    try:
        WorkerClass.options(**worker_options("", 0, request, None, "spread"))
    except ValueError as error:
        return str(error)
    accelerators = get_all_accelerator_resource_names()
    for name, amount in request.custom.items():  # what Ray refuses only when it creates the actor
        if name in accelerators and amount > 1 and amount != int(amount):
            return f"{amount:g} {name}: more than one must be a whole number"
    return None


# ---- first workers -------------------------------------------------------------------------------

START_S = 60.0  # for the master, and then for all workers, besides waits for the autoscaler
_LOOK_S = 1.0  # between two looks at the nodes
_POLL_S = 0.1


def create_workers(run: str, plan: Plan) -> None:
    """Create each worker on the node that is best for it. Raises ClusterError if Ray refuses what
    one requests, the head does not answer, or the nodes cannot hold them."""
    if (why := refused(plan, plan.workers, why_refused)) is not None:
        raise ClusterError(f"topology {plan.graph.id!r} cannot start: {why}")
    try:
        view = with_workers(node_view(), workers_by_node())
    except Exception as error:
        raise ClusterError(
            f"topology {plan.graph.id!r} cannot start: the head of the Ray cluster, "
            f"{ray.get_runtime_context().gcs_address}, does not list the nodes: "
            f"{first_line(error)}. Submit it again once `ray status` answers"
        ) from error
    _check(plan, view)
    placement = plan.graph.config.placement
    requests = {worker: plan.request_of(worker) for worker in plan.workers}
    nodes = choices(requests, view, placement)
    for worker, request in requests.items():
        options = worker_options(run, worker, request, nodes.get(worker), placement)
        WorkerClass.options(**options).remote(run, worker)


def wait_for_workers(plan: Plan, look: Callable[[], Snapshot]) -> None:
    """Return once every worker has said hello. While one waits for a node that the autoscaler may
    add, there is no limit. Raises ClusterError if they do not start."""
    end_s, look_s, view = time.monotonic() + START_S, time.monotonic() + _LOOK_S, NodeView()
    while (snapshot := look()).state in NOT_STARTED:
        now = time.monotonic()
        if now >= look_s:
            look_s, view = now + _LOOK_S, next_view(view)
            _check(plan, view)
            if snapshot.without_room and view.grows:
                end_s = now + START_S
        if now >= end_s:
            why = "; ".join(snapshot.unplaced) or (
                "is there memory for as many processes? Try fewer, or layout pack"
            )
            raise ClusterError(
                f"not all {len(plan.workers)} workers of {plan.graph.id!r} started in "
                f"{START_S:g} s: {why}"
            )
        time.sleep(_POLL_S)


def _check(plan: Plan, view: NodeView) -> None:
    requests = {worker: plan.request_of(worker) for worker in plan.workers}
    if (why := misfit(requests, view)) is not None:
        raise ClusterError(
            f"the cluster cannot hold topology {plan.graph.id!r}: {why}. No autoscaler adds nodes "
            "to it: add some, or request less, and submit it again"
        )
