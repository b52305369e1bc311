"""Two ways to part from a run: with its last words heard, or at once."""

from __future__ import annotations

import contextlib

import ray

from sunshower.actors.names import NAMESPACE, master_name
from sunshower.actors.processes import resume_all
from sunshower.actors.run import RayRun, last_words, living_workers
from sunshower.runtime.usercode import TaskError


def close(run: RayRun) -> list[TaskError]:
    """Close every task. The workers stay, so that what cleanup() has printed can be heard.

    Returns what tasks had to say against their end.
    """
    with contextlib.suppress(Exception):  # a machine that does not answer is no reason not to end
        resume_all(run.id)
    with contextlib.suppress(Exception):  # nor is a head that has gone
        return last_words(run.id)
    return []


def kill(run: RayRun) -> None:
    """End every actor at once. No task is closed; user code that hangs cannot delay it."""
    with contextlib.suppress(Exception):  # a machine that does not answer delays nobody
        resume_all(run.id)
    with contextlib.suppress(ValueError):  # gone already
        ray.kill(ray.get_actor(master_name(run.id), namespace=NAMESPACE))
    for worker in living_workers(run.id):
        ray.kill(worker)
