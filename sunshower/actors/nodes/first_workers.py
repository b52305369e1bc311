"""Creates the workers of a topology that is submitted, and waits until all of them run."""

from __future__ import annotations

import time
from collections.abc import Callable

import ray

from sunshower.actors.nodes.cluster_nodes import next_view, node_view, with_workers, workers_by_node
from sunshower.actors.nodes.worker_options import why_refused, worker_options
from sunshower.actors.starting import first_line
from sunshower.actors.worker import WorkerClass
from sunshower.errors import ClusterError
from sunshower.runtime.control.lifecycle import NOT_STARTED
from sunshower.runtime.events.metrics import Snapshot
from sunshower.runtime.node_moves import refused
from sunshower.runtime.nodes import NodeView, choices, misfit
from sunshower.runtime.plan import Plan

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
