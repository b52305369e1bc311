"""Two ways to part from a run: with its last words heard, or at once."""

from __future__ import annotations

import contextlib

import ray

from sunshower.actors.names import NAMESPACE, master_name
from sunshower.actors.processes import resume_all
from sunshower.actors.run import RayRun, living_workers
from sunshower.runtime.usercode import TaskError

_CLOSE_S = 30.0


def close(run: RayRun) -> list[TaskError]:
    """Close every task. The workers stay, so that what cleanup() has printed can be heard.

    Returns what tasks had to say against their end.
    """
    with contextlib.suppress(Exception):  # a worker that has just died is no reason not to end
        resume_all(run.id)
        calls = [worker.stop.remote() for worker in living_workers(run.id)]
        return [error for said in ray.get(calls, timeout=_CLOSE_S) for error in said]
    return []


def kill(run: RayRun) -> None:
    """End every actor at once. No task is closed; user code that hangs cannot delay it."""
    with contextlib.suppress(Exception):  # a machine that does not answer delays nobody
        resume_all(run.id)
    with contextlib.suppress(ValueError):  # gone already
        ray.kill(ray.get_actor(master_name(run.id), namespace=NAMESPACE))
    for worker in living_workers(run.id):
        ray.kill(worker)
