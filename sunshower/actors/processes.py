"""Finds the actors and processes of a run on all machines, and sends signals to them.

It asks Ray for them, not the master, which may be dead or paused.
"""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, NamedTuple

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from sunshower.actors.names import CALL_S, NAMESPACE, silent, topology_of, worker_name
from sunshower.actors.starting import first_line
from sunshower.actors.store import RayStore
from sunshower.errors import ClusterError
from sunshower.runtime.events.health import TaskError

_log = logging.getLogger(__name__)
_ANSWER_S = 5.0
_PAUSED = "paused"  # in the store: see store.py


class RayProcess(NamedTuple):
    """A living process of a run."""

    node: str  # Ray's node id
    pid: int


def processes_of(run: str) -> dict[str, RayProcess]:
    """Name → process, for each living actor of a run."""
    from ray._private import state  # no public API without Ray's dashboard: see the pin of ray

    return {
        actor["Name"]: RayProcess(actor["Address"]["NodeID"], actor["Pid"])
        for actor in state.actors(actor_state_name="ALIVE").values()
        if actor["Name"].startswith(f"{run}/")
    }


def actor_named(name: str) -> Any:
    """The actor of that name. Raises ClusterError if there is none."""
    try:
        return ray.get_actor(name, namespace=NAMESPACE)
    except ValueError:
        raise ClusterError(f"there is no actor {name!r} any more: was it stopped?") from None


def living_workers(run: str) -> Iterator[Any]:
    """The actors of a run's workers, before and after a rebalance."""
    first = worker_name(run, 0)[:-1]
    for actor in ray.util.list_named_actors(all_namespaces=True):
        if actor["namespace"] == NAMESPACE and actor["name"].startswith(first):
            with suppress(ClusterError):  # it has just ended
                yield actor_named(actor["name"])


def send(number: int, processes: list[RayProcess]) -> list[int]:
    """Send a signal to each of these processes; to those on one machine at the same time.

    Returns the ids of those that still existed. Raises ClusterError if a machine cannot be reached.
    """
    here = ray.get_runtime_context().get_node_id()
    pids: dict[str, list[int]] = {}
    for process in processes:
        pids.setdefault(process.node, []).append(process.pid)
    reached = _send_here(number, pids.pop(here, []))
    calls = [_on(node).remote(number, node_pids) for node, node_pids in pids.items()]
    try:
        return reached + [pid for answered in ray.get(calls, timeout=CALL_S) for pid in answered]
    except ray.exceptions.RayError as error:
        raise ClusterError(
            f"no signal reaches the processes on {', '.join(pids)}: that machine does not answer"
        ) from error


def send_to(run: str, name: str, number: int) -> int:
    """Send a signal to the process of that name, and return its id. Raises ClusterError if there is
    none, or if its machine cannot be reached."""
    process = processes_of(run).get(name)
    reached = send(number, [process]) if process is not None else []
    if not reached:
        raise ClusterError(
            f"there is no process of {name!r} now: it has just died, and Ray starts another one"
        )
    return reached[0]


def answers(calls: list[Any]) -> list[Any]:
    """The results of calls of actors that answer at once; without those of processes that have
    died, or do not answer within five seconds."""
    ready = []
    for call in ray.wait(calls, num_returns=len(calls), timeout=_ANSWER_S)[0] if calls else []:
        with suppress(ray.exceptions.RayError):
            ready.append(ray.get(call))
    return ready


def kill_soon(process: RayProcess) -> None:
    """Send SIGKILL to a process, and do not wait: perhaps its machine cannot be reached."""
    if process.node == ray.get_runtime_context().get_node_id():
        _send_here(signal.SIGKILL, [process.pid])
    else:
        silent(_on(process.node)).remote(signal.SIGKILL, [process.pid])


def end_with_ray() -> None:
    """Have the kernel kill this process when its parent, the node's raylet, ends.

    In Ray a worker detects that by itself, which a paused process cannot do.
    """
    from ray._private import utils

    if utils.detect_fate_sharing_support_linux():
        utils.set_kill_on_parent_death_linux()


def mark_paused(run: str) -> None:
    """Note that processes of a run may be paused, for the client that will stop it."""
    RayStore(run).write(_PAUSED, b"")


def resume_all(run: str) -> None:
    """Resume every process of a run: a paused one would receive nothing and never end."""
    if RayStore(run).read(_PAUSED) is not None:
        send(signal.SIGCONT, list(processes_of(run).values()))


def _send_here(number: int, pids: list[int]) -> list[int]:
    reached = []
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue  # it has just died
        reached.append(pid)
    return reached


def _on(node: str) -> Any:
    """`_send_here`, as a task on another machine."""
    on_node = NodeAffinitySchedulingStrategy(node, soft=False)
    return ray.remote(num_cpus=0, max_retries=0, scheduling_strategy=on_node)(_send_here)


def close_workers(run: str) -> list[TaskError]:
    """Close every task of a run. Returns the errors that tasks raised. A worker that has died, or
    does not answer, is logged and skipped; one that waits for a node has no tasks. Without a head,
    nothing is closed."""
    from ray._private import state  # no public API without Ray's dashboard: see the pin of ray

    with suppress(Exception):  # a machine that does not answer does not prevent it
        resume_all(run)
    errors: list[TaskError] = []
    with suppress(Exception):  # nor does a lost head
        unplaced = state.actors(actor_state_name="PENDING_CREATION")
        workers = [actor for actor in living_workers(run) if actor._actor_id.hex() not in unplaced]
        calls = [worker.stop.remote() for worker in workers]
        if calls:
            ray.wait(calls, num_returns=len(calls), timeout=CALL_S)
        for call in calls:
            try:
                errors += ray.get(call, timeout=0)
            except ray.exceptions.RayError as error:
                reason = first_line(error)
                _log.warning("a worker of %r was not closed: %s", topology_of(run), reason)
    return errors
