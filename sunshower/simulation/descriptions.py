"""Describes a simulated run that cannot continue: what each of its processes waits for."""

from __future__ import annotations

from sunshower.runtime.events.latencies import LatencyKind
from sunshower.runtime.events.metrics import TaskStats
from sunshower.simulation.environment import SimEnvironment
from sunshower.simulation.network import MASTER
from sunshower.simulation.worker import SimWorker


def describe(env: SimEnvironment) -> str:
    """One line for the master and one for each worker."""
    master = env.network.there.get(MASTER)
    standing = "is down" if master is None else "is paused" if master.paused else "waits"
    lines = [f"seed {env.world.seed}, at {env.world.now_s:.6f} s: the master {standing}"]
    workers = {task.worker for task in env.plan.tasks} | {w for w in env.network.there if w >= 0}
    for worker in sorted(workers):
        process = env.network.there.get(worker)
        doing = _describe_worker(process) if isinstance(process, SimWorker) else "is not there"
        lines.append(f"worker {worker} {doing}")
    return "\n".join(lines)


def _describe_worker(process: SimWorker) -> str:
    if process.core is None:
        return "waits for the master's welcome"
    stats = process.core.stats()
    standing = "has given up" if process.broken else "is paused" if process.paused else "waits"
    doing = "nothing to do" if stats.idle else "records in its inboxes, or packets on their way"
    tasks = ", ".join(map(_describe_task, stats.tasks)) or "only ackers"
    return f"(life {stats.incarnation}) {standing}, with {doing}: {tasks}"


def _describe_task(task: TaskStats) -> str:
    if LatencyKind.COMPLETE not in task.latencies:
        return f"{task.component} has executed {task.counts.executed}"
    done = "is done" if task.done else "is not done"
    return f"{task.component} {done}, with {task.counts.pending} pending of {task.unsettled} open"
