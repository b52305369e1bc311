"""The options with which Ray creates a worker: its name, its request of resources, its node."""

from __future__ import annotations

from typing import Any

from ray._private.accelerators import get_all_accelerator_resource_names
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from sunshower.actors.names import detached, worker_name
from sunshower.actors.worker import WorkerClass
from sunshower.config import Resources


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
