"""The options with which Ray creates a worker: its name, what it requests, and its node."""

from __future__ import annotations

from typing import Any

from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from sunshower.actors.names import detached, worker_name
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
