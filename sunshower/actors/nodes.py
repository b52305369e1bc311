"""Reads free and drained nodes from Ray; separate because it alone uses Ray's internal calls.

It queries the head, which may be unavailable, so the master calls it on a separate thread.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from math import inf
from typing import Any

from ray.experimental import internal_kv

from sunshower.actors.names import worker_of
from sunshower.config import Resources
from sunshower.runtime.control.nodes import NodeState, NodeView

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
    return Counter(
        actor["Address"]["NodeID"] for actor in alive if worker_of(actor["Name"]) is not None
    )


def with_workers(view: NodeView, workers: Mapping[str, int]) -> NodeView:
    """The view with so many workers of all topologies on each node."""
    nodes = (replace(node, workers=workers.get(node.id, 0)) for node in view.nodes)
    return replace(view, nodes=tuple(nodes))


def unmet_requests() -> tuple[tuple[Resources, ...], bool]:
    """The requests of actors and tasks for which Ray has found no room yet, and whether an
    autoscaler may add nodes. Raises as `cluster_nodes`."""
    from ray.core.generated.autoscaler_pb2 import GetClusterStatusReply

    reply = GetClusterStatusReply()
    client = internal_kv.internal_kv_get_gcs_client()
    reply.ParseFromString(client.get_cluster_status(timeout_s=_TIMEOUT_S))
    pending = reply.cluster_resource_state.pending_resource_requests
    unmet = tuple(_resources(request.request.resources_bundle) for request in pending)
    if reply.HasField("autoscaling_state"):  # of version 2
        return unmet, True
    return unmet, may_add_nodes(internal_kv._internal_kv_get(_STATUS))


def starting_workers(run: str) -> frozenset[int]:
    """The workers of a run for which Ray has no process: it looks for a node, or starts one there.
    The head selects them among the actors of the cluster. Raises as `cluster_nodes`."""
    from ray._private import state  # see above

    actors = [actor for name in _STARTING for actor in state.actors(actor_state_name=name).values()]
    workers = {worker_of(actor["Name"]) for actor in actors if actor["Name"].startswith(f"{run}/")}
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
    rounded = {name: round(float(amount), 4) for name, amount in amounts.items()}
    memory = int(rounded.pop("memory", 0.0))
    cpus, gpus = rounded.pop("CPU", 0.0), rounded.pop("GPU", 0.0)
    rounded.pop("object_store_memory", None)
    memory = 0 if memory == _BYTE else memory
    return Resources(num_cpus=cpus, num_gpus=gpus, memory=memory, custom=rounded)


def _left_s(deadline_ms: int, now: float) -> float:
    return max(0.0, deadline_ms / 1000 - now) if deadline_ms else inf
