"""Records a profile of some workers of a topology, from any client of the cluster."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import ray

from sunshower.actors.names import worker_name
from sunshower.actors.processes import actor_named
from sunshower.actors.profiles import WorkerProfile
from sunshower.actors.starting import first_line
from sunshower.errors import ClusterError, SunshowerError
from sunshower.runtime.profiles import Profile, merged

_POLL_S = 0.25
_LATE_S = 40.0  # after the time has passed, for a process that is busy with other things
_CALL_S = 5.0


def record(
    run: str,
    workers: Sequence[int],
    seconds: float,
    *,
    in_process: bool = False,
    look: Callable[[float], None] = lambda _: None,
) -> Profile:
    """Profile these workers at the same time, and wait for it. Calls `look` with the seconds that
    have passed. Ends the profile in every worker before it returns or raises.

    A worker that dies, does not answer or refuses is in `missing`. Raises ClusterError if no worker
    is left.
    """
    id, begun_s = uuid.uuid4().hex, time.monotonic()
    done: dict[int, WorkerProfile] = {}
    missing: dict[int, str] = {}
    try:
        while open_workers := [w for w in workers if w not in done and w not in missing]:
            passed_s = time.monotonic() - begun_s
            look(min(passed_s, seconds))
            if passed_s > seconds + _LATE_S:
                missing |= dict.fromkeys(open_workers, "it has not come to an end in time")
                break
            left_s = max(0.0, seconds - passed_s)  # a worker that has died starts over
            _ask(run, open_workers, (id, left_s, in_process), done, missing)
            time.sleep(_POLL_S)
    finally:
        for worker in workers:
            with suppress(ClusterError):  # it has ended
                actor_named(worker_name(run, worker)).profile.remote(id, None)
    if not done:
        why = "; ".join(f"worker {worker}: {reason}" for worker, reason in missing.items())
        raise ClusterError(f"no worker could be profiled: {why}")
    return Profile(
        merged(profile.stacks for profile in done.values()),
        {worker: profile.sampler for worker, profile in done.items()},
        {worker: profile.refusal for worker, profile in done.items() if profile.refusal},
        missing,
    )


def _ask(
    run: str,
    workers: Sequence[int],
    arguments: tuple[Any, ...],
    done: dict[int, WorkerProfile],
    missing: dict[int, str],
) -> None:
    """Ask each of these workers once, and note who is done, and who is missing."""
    calls: dict[Any, int] = {}
    for worker in workers:
        try:
            calls[actor_named(worker_name(run, worker)).profile.remote(*arguments)] = worker
        except ClusterError as error:
            missing[worker] = str(error)
    for call in ray.wait(list(calls), num_returns=len(calls), timeout=_CALL_S)[0] if calls else []:
        try:
            worker_profile: WorkerProfile = ray.get(call)
        except ray.exceptions.RayTaskError as error:
            cause = error.cause
            missing[calls[call]] = (
                str(cause) if isinstance(cause, SunshowerError) else first_line(error)
            )
        except ray.exceptions.RayError:
            continue  # it has died; Ray starts it again
        else:
            if worker_profile.is_done:
                done[calls[call]] = worker_profile
