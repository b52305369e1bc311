"""Plain data for the page: the fields of `status --json`, and further ones for the page only.

The fields of single tasks come when their component is opened.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from sunshower.cli.cluster_options import known_component
from sunshower.cli.health import task_error_text
from sunshower.cli.statistics.json_status import component_numbers, status_fields, task_numbers
from sunshower.errors import SunshowerError, VersionMismatch
from sunshower.failures import Failure
from sunshower.runtime.control.overview import Overview
from sunshower.runtime.events.metrics import Snapshot, TaskStats
from sunshower.runtime.events.time_windows import ALL, NAMES
from sunshower.runtime.tasks.user_code import TaskError
from sunshower.topologies.graph import Component

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


def why_silent(error: SunshowerError) -> str:
    """Say in place of a state why a topology gave no overview; it may just have been removed."""
    return "of another release" if isinstance(error, VersionMismatch) else "does not answer"


def topology_facts(found: Overview, up_s: float, window: str | None = None) -> dict[str, Any]:
    """Everything about a topology but its single tasks; durations in seconds, None: unknown. Of the
    windows of time only the one that is named, or the whole time while it is not known yet."""
    snapshot, graph = found.snapshot, found.plan.graph
    fields = status_fields(found, up_s, tasks=False)
    for component in graph.components.values():
        facts = fields["components"][component.id]
        windows = facts.pop("windows")
        facts |= _component(component, snapshot)
        facts["window"] = windows.get(window, windows[ALL]) if window in NAMES else None
    return {
        **fields,
        "layout": found.plan.layout.value,
        "tracked": graph.config.tracked,
        "dead_letters": bool(found.letters),
        "quarantined": [_error(error) for error in snapshot.degraded.values()],
        "failures": list(_failures(snapshot)),
        "edges": [asdict(edge) for edge in found.edges],
    }


def component_facts(found: Overview, component: str, up_s: float) -> dict[str, Any]:
    """The tasks of a component, its windows of time, and its last errors with tracebacks, the
    newest first. Raises ClusterError if the topology has no such component."""
    snapshot = found.snapshot
    tasks = known_component(found.plan.graph, component).parallelism
    stats = {task.task: task for task in snapshot.tasks_of(component)}
    errors = [error for error in snapshot.degraded.values() if error.component == component]
    errors += [error for one in stats.values() for error in one.health.last[::-1]]
    return {
        "component": component,
        "windows": component_numbers(snapshot, component, tasks, up_s)["windows"],
        "tasks": [
            {"task": task.index, "worker": task.worker, **_task(stats.get(task.id))}
            | {"quarantined": task.id in snapshot.degraded}
            for task in found.plan.tasks_of(component)
        ],
        "errors": [_error(error) for error in dict.fromkeys(errors)][:_ERRORS_MAX],
    }


def _component(component: Component, snapshot: Snapshot) -> dict[str, Any]:
    tasks = snapshot.tasks_of(component.id)
    return {
        "kind": "spout" if component.level.is_spout else "bolt",
        "level": component.level.value,
        "queued": sum(task.queued for task in tasks),
        "queue_s": max((task.queue_s for task in tasks), default=0.0),
        "errors": sum(task.health.errors for task in tasks),
    }


def _task(stats: TaskStats | None) -> dict[str, Any]:
    if stats is None:
        return {"standing": None}  # its worker has not reported yet
    return {**task_numbers(stats), "waits": stats.health.wait is not None}


def _error(error: TaskError) -> dict[str, Any]:
    return {
        "component": error.component,
        "task": error.index,
        "worker": error.worker,
        "error": task_error_text(error),
        "traceback": error.traceback,
    }


def _failures(snapshot: Snapshot) -> Iterator[dict[str, Any]]:
    """The newest failure of each spout, cause and component where it failed."""
    found: dict[tuple[str, str, str], Failure] = {}
    for task in snapshot.tasks():
        for failure in task.failures:
            found.setdefault((task.component, failure.cause.value, failure.component), failure)
    for (spout, cause, component), failure in sorted(found.items(), key=lambda one: one[0]):
        yield {
            "spout": spout,
            "cause": cause,
            "component": component or None,
            "task": failure.task if failure.task >= 0 else None,
            "worker": failure.worker if failure.worker >= 0 else None,
            "reason": failure.reason,
            "traceback": failure.traceback,
        }
