"""Two ways to stop a run: close all tasks, or kill all actors at once."""

from __future__ import annotations

import contextlib

import ray

from sunshower.actors.names import NAMESPACE, master_name
from sunshower.actors.processes import resume_all
from sunshower.actors.run import RayRun, last_words, living_workers
from sunshower.runtime.tasks.user_code import TaskError


def close(run: RayRun) -> list[TaskError]:
    """Close every task. The workers stay, so that the output of cleanup() can be read.

    Returns the errors that tasks raised.
    """
    with contextlib.suppress(Exception):  # a machine that does not answer must not prevent the end
        resume_all(run.id)
    with contextlib.suppress(Exception):  # nor must a lost head
        return last_words(run.id)
    return []


def kill(run: RayRun) -> None:
    """Kill every actor at once. No task is closed; user code that hangs cannot delay it."""
    with contextlib.suppress(Exception):  # a machine that does not answer must not delay it
        resume_all(run.id)
    with contextlib.suppress(ValueError):  # it has ended already
        ray.kill(ray.get_actor(master_name(run.id), namespace=NAMESPACE))
    for worker in living_workers(run.id):
        ray.kill(worker)
