"""The end without manners: a run's actors are killed, whatever they are doing."""

from __future__ import annotations

import contextlib

import ray

from sunshower.actors.cluster import RayRun
from sunshower.actors.names import NAMESPACE, master_name, worker_name


def kill(run: RayRun) -> None:
    """End every actor of `run` at once. No task is closed; user code that hangs cannot delay it."""
    names = [worker_name(run.id, worker) for worker in run.plan.workers]
    for name in (*names, master_name(run.id)):
        with contextlib.suppress(Exception):  # it may be gone already
            ray.kill(ray.get_actor(name, namespace=NAMESPACE))
