"""Two ways to part from a run: with its last words heard, or at once."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import ray

from sunshower.actors.cluster import RayRun
from sunshower.actors.names import NAMESPACE, master_name, worker_name
from sunshower.runtime.usercode import TaskError

_CLOSE_S = 30.0


def close(run: RayRun) -> list[TaskError]:
    """Close every task. The workers stay, so that what cleanup() has printed can be heard.

    Returns what tasks had to say against their end.
    """
    with contextlib.suppress(Exception):  # a worker that has just died is no reason not to end
        calls = [worker.stop.remote() for worker in _actors(run) if hasattr(worker, "stop")]
        return [error for said in ray.get(calls, timeout=_CLOSE_S) for error in said]
    return []


def kill(run: RayRun) -> None:
    """End every actor at once. No task is closed; user code that hangs cannot delay it."""
    for actor in _actors(run):
        ray.kill(actor)


def _actors(run: RayRun) -> Iterator[Any]:
    """All that still live, the master last."""
    names = [worker_name(run.id, worker) for worker in run.plan.workers]
    for name in (*names, master_name(run.id)):
        with contextlib.suppress(ValueError):  # gone already
            yield ray.get_actor(name, namespace=NAMESPACE)
