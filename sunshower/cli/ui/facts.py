"""Plain data of a topology's overview, for `sunshower status --json` and for the page.

The page reads all of it but the tasks, which come when their component is opened.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, fields, replace
from math import isfinite
from typing import Any

from sunshower.cli.display import batch_line
from sunshower.cli.health import error_text
from sunshower.errors import ClusterError
from sunshower.failures import Failure
from sunshower.runtime.control.overview import Overview
from sunshower.runtime.events.metrics import Counts, Latencies, Snapshot, TaskStats, WorkerStats
from sunshower.runtime.tasks.user_code import TaskError
from sunshower.topologies.graph import Component
from sunshower.trident.coordination.attempts import group_of
from sunshower.trident.coordination.coordinator import Status

_PHASES = [status.value for status in Status]
_ERRORS_MAX = 50  # of a component that are shown with their tracebacks


def summary_facts(name: str, found: Overview, now_s: float) -> dict[str, Any]:
    """A line about a topology: state, size and sums over its spouts. `now_s`: Unix time."""
    snapshot = found.snapshot
    spouts = [snapshot.component(spout.id) for spout in found.plan.graph.spouts]
    marks = ["degraded"] * bool(snapshot.degraded) + ["waiting"] * bool(snapshot.waiting())
    return {
        "topology": name,
        "state": snapshot.state,
        "marks": marks,
        "up_s": now_s - found.since_s,
        "workers": len(found.plan.workers),
        "tasks": len(found.plan.tasks),
        "acked": sum(counts.acked for counts in spouts),
        "failed": sum(counts.failed for counts in spouts),
        "restarts": snapshot.restarts,
    }


def topology_facts(found: Overview, up_s: float) -> dict[str, Any]:
    """Everything about a topology but its single tasks; durations in seconds, None: unknown."""
    snapshot, graph = found.snapshot, found.plan.graph
    parts = _by_component(snapshot)
    return {
        "topology": snapshot.topology,
        "state": snapshot.state,
        "up_s": up_s,
        "restarts": snapshot.restarts,
        "layout": found.plan.layout.value,
        "tracked": graph.config.tracked,
        "error": found.error,
        "untracked": snapshot.untracked,
        "degraded": [error.story for error in snapshot.degraded.values()],
        "quarantined": [_error(error) for error in snapshot.degraded.values()],
        "waiting": list(_waits(snapshot)),
        "failures": list(_failures(snapshot)),
        "silent": {str(worker): for_s for worker, for_s in snapshot.silent.items()},
        "stuck": [asdict(call) for call in snapshot.stuck.values()],
        "components": {
            one.id: _component(one, parts.get(one.id, replace(snapshot, workers={})))
            for one in graph.components.values()
        },
        "edges": [asdict(edge) for edge in found.edges],
        "batches": [
            _batches(group, snapshot.figures(id), snapshot)
            for id in graph.components
            if (group := group_of(id)) is not None and snapshot.figures(id)
        ],
        "workers": list(worker_facts(found)),
    }


def component_facts(found: Overview, component: str) -> dict[str, Any]:
    """The tasks of a component, and its last errors with tracebacks, the newest first. Raises
    ClusterError if the topology has no such component."""
    snapshot, graph = found.snapshot, found.plan.graph
    if component not in graph.components:
        raise ClusterError(
            f"topology {snapshot.topology!r} has no component {component!r}; it has: "
            f"{', '.join(graph.components)}"
        )
    stats = {task.task: task for task in snapshot.tasks() if task.component == component}
    errors = {id: error for id, error in snapshot.degraded.items() if error.component == component}
    last = [*errors.values(), *(error for one in stats.values() for error in one.health.last[::-1])]
    return {
        "component": component,
        "tasks": [
            {"task": task.index, "worker": task.worker, **_task(stats.get(task.id))}
            | {"quarantined": task.id in snapshot.degraded}
            for task in found.plan.tasks_of(component)
        ],
        "errors": [_error(error) for error in dict.fromkeys(last)][:_ERRORS_MAX],
    }


def _component(component: Component, part: Snapshot) -> dict[str, Any]:
    """`part`: a snapshot with the component's tasks alone."""
    tasks = list(part.tasks())
    return {
        "parallelism": component.parallelism,
        "kind": "spout" if component.level.is_spout else "bolt",
        "level": component.level.value,
        **_counts(part.component(component.id)),
        **_percentiles(part.latencies(component.id)),
        "queued": sum(task.queued for task in tasks),
        "queue_s": max((task.queue_s for task in tasks), default=0.0),
        "errors": sum(task.health.errors for task in tasks),
        "figures": _figures(part.figures(component.id)),
    }


def _by_component(snapshot: Snapshot) -> dict[str, Snapshot]:
    """The snapshot with the tasks of one component at a time: to sum over a component then takes
    its own tasks, not those of all components."""
    tasks: dict[str, list[TaskStats]] = {}
    for task in snapshot.tasks():
        tasks.setdefault(task.component, []).append(task)
    return {
        id: replace(snapshot, workers={0: WorkerStats(0, 0, tuple(found))})
        for id, found in tasks.items()
    }


def _task(stats: TaskStats | None) -> dict[str, Any]:
    if stats is None:
        return {"standing": None}  # its worker has not reported yet
    return {
        "standing": stats.health.standing.value,
        **_counts(stats.counts),
        **_percentiles(stats.latencies or Latencies()),
        "queued": stats.queued,
        "queue_s": stats.queue_s,
        "errors": stats.health.errors,
        "waits": stats.health.wait is not None,
        "done": stats.done,
    }


def _counts(counts: Counts) -> dict[str, Any]:
    return {field.name: getattr(counts, field.name) for field in fields(counts)}


def _percentiles(latencies: Latencies) -> dict[str, float | None]:
    found = {f"p{percent}_s": latencies.percentile(percent) for percent in (50, 90, 99)}
    return {**found, "max_s": latencies.percentile(100)}


def _figures(figures: Mapping[str, float]) -> dict[str, float | None]:
    return {name: number if isfinite(number) else None for name, number in figures.items()}


def _error(error: TaskError) -> dict[str, Any]:
    return {
        "component": error.component,
        "task": error.index,
        "worker": error.worker,
        "error": error_text(error),
        "traceback": error.traceback,
    }


def _waits(snapshot: Snapshot) -> Iterator[dict[str, Any]]:
    for task in snapshot.waiting():
        if (wait := task.health.wait) is not None:
            yield {
                "component": task.component,
                "task": wait.error.index,
                "worker": wait.error.worker,
                "kind": wait.kind,
                "for_s": wait.for_s,
                "tries": wait.tries,
                "error": error_text(wait.error),
                "reached": wait.reached,
            }


def _failures(snapshot: Snapshot) -> Iterator[dict[str, Any]]:
    """The newest failure of each spout, cause and component where it failed."""
    found: dict[tuple[str, str, str], Failure] = {}
    for task in snapshot.tasks():
        for failure in task.failures:
            found.setdefault((task.component, failure.cause.value, failure.component), failure)
    for (spout, cause, component), failure in sorted(found.items()):
        yield {
            "spout": spout,
            "cause": cause,
            "component": component or None,
            "task": failure.task if failure.task >= 0 else None,
            "worker": failure.worker if failure.worker >= 0 else None,
            "reason": failure.reason,
            "traceback": failure.traceback,
        }


def _batches(group: str, figures: Mapping[str, float], snapshot: Snapshot) -> dict[str, Any]:
    """The open batches of a group, oldest first, and the sentence that the terminal shows."""
    txids = sorted(
        int(name.removeprefix("batch ").removesuffix("/phase"))
        for name in figures
        if name.startswith("batch ") and name.endswith("/phase")
    )
    return {
        "group": group,
        "line": batch_line(group, figures, snapshot),
        "open": [
            {
                "txid": txid,
                "phase": _PHASES[int(figures[f"batch {txid}/phase"])],
                "attempt": int(figures[f"batch {txid}/attempt"]),
                "age_s": figures[f"batch {txid}/age seconds"],
            }
            for txid in txids
        ],
    }


def worker_facts(found: Overview) -> Iterator[dict[str, Any]]:
    """Each worker: its life, node and process (None: unknown) and its tasks."""
    names: dict[int, list[str]] = {}
    for task in found.plan.tasks:
        names.setdefault(task.worker, []).append(f"{task.component}[{task.index}]")
    for worker in found.plan.workers:
        node, process = found.processes.get(worker, (None, None))
        stats = found.snapshot.workers.get(worker)
        yield {
            "worker": worker,
            "life": stats.incarnation if stats else None,
            "node": node,
            "process": process,
            "tasks": names[worker],
            "links": {str(p): for_s for p, for_s in stats.links.items()} if stats else {},
            "crash_reports": stats.crash_reports if stats else None,
        }
