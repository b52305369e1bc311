"""The fields of `sunshower status --json`: all numbers of a topology, as plain values.

Other programs read them, so names and meanings stay; docs/METRICS.md lists them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from math import isfinite
from typing import Any

from sunshower.cli.health import task_error_text
from sunshower.cli.statistics.batches import batch_fields, spark_fields
from sunshower.runtime.control.overview import Overview
from sunshower.runtime.events.latencies import Latencies, LatencyKind
from sunshower.runtime.events.metrics import Activity, Counts, Snapshot, TaskStats
from sunshower.runtime.events.time_windows import ALL, WINDOWS_S

_PERCENTS = (50, 90, 99)


def status_fields(found: Overview, up_s: float, *, tasks: bool = True) -> dict[str, Any]:
    """All fields, or those without single `tasks`; `up_s`: since the topology was submitted."""
    snapshot = found.snapshot
    places = {task.id: (task.index, task.worker) for task in found.plan.tasks}
    return {
        "topology": snapshot.topology,
        "state": snapshot.state,
        "up_s": up_s,
        "restarts": snapshot.restarts,
        "error": found.error,
        "untracked": snapshot.untracked,
        "degraded": [error.story for error in snapshot.degraded.values()],
        "waiting": list(_waits(snapshot)),
        "silent": {str(worker): for_s for worker, for_s in snapshot.silent.items()},
        "unplaced": list(snapshot.unplaced),
        "stuck": [asdict(call) for call in snapshot.stuck.values()],
        "batches": list(batch_fields(snapshot, found.plan.graph.components)),
        "spark": list(spark_fields(found)),
        "components": {
            component.id: {
                "parallelism": component.parallelism,
                **component_numbers(snapshot, component.id, component.parallelism, up_s),
                "tasks": [
                    {"task": places[task.task][0], "worker": places[task.task][1]}
                    | task_numbers(task)
                    for task in (snapshot.tasks_of(component.id) if tasks else ())
                    if task.task in places
                ],
            }
            for component in found.plan.graph.components.values()
        },
        "workers": worker_fields(found),
    }


def worker_fields(found: Overview) -> list[dict[str, Any]]:
    """The workers: where they run, and what."""
    facts = []
    names: dict[int, list[str]] = {}
    for task in found.plan.tasks:
        names.setdefault(task.worker, []).append(task.name)
    for worker in found.plan.workers:
        node, process = found.processes.get(worker, (None, None))
        stats = found.snapshot.workers.get(worker)
        facts.append(
            {
                "worker": worker,
                "life": stats.incarnation if stats else None,
                "node": node,
                "process": process,
                "tasks": names[worker],
                "links": {str(p): for_s for p, for_s in stats.links.items()} if stats else {},
                "crash_reports": stats.crash_reports if stats else None,
            }
        )
    return facts


def component_numbers(snapshot: Snapshot, id: str, parallelism: int, up_s: float) -> dict[str, Any]:
    """The numbers of a component over all its tasks; `up_s`: since the topology was submitted."""
    whole = snapshot.activity(id, up_s)
    complete = whole.latencies.get(LatencyKind.COMPLETE, Latencies())
    windows = {name: snapshot.windows.get(name, {}).get(id) for name in WINDOWS_S} | {ALL: whole}
    watermark = snapshot.watermark(id)
    return {
        **_counts(whole.counts),
        **_percentiles(complete),
        "latencies": _latencies(whole.latencies),
        "watermark": None if watermark is None else _finite(watermark[0]),
        "watermark_lag": None if watermark is None else watermark[1],
        "watermark_holds": list(snapshot.watermark_holds(id)),
        "event_time_notes": list(snapshot.event_time_notes(id)),
        "state_entries": snapshot.state_entries(id),
        "awaits": sorted({spout for task in snapshot.tasks_of(id) for spout in task.awaits}),
        "figures": _figures(snapshot.figures(id)),
        "windows": {
            name: _activity(one, parallelism) for name, one in windows.items() if one is not None
        },
    }


def _activity(activity: Activity, parallelism: int) -> dict[str, Any]:
    return {
        "for_s": activity.for_s,
        "capacity": activity.capacity(parallelism),
        "blocked": activity.blocked(parallelism),
        **_counts(activity.counts),
        "latencies": _latencies(activity.latencies),
    }


def _counts(counts: Counts) -> dict[str, Any]:
    fields = dict(vars(counts))
    emitted, transferred = fields.pop("emitted_to"), fields.pop("transferred_to")
    sent, executed = fields.pop("bytes_to"), fields.pop("executed_from")
    del fields["places"]
    fields["causes"] = dict(counts.causes)
    fields["streams"] = {
        stream: {
            "emitted": emitted.get(stream, 0),
            "transferred": transferred.get(stream, 0),
            "bytes": sent.get(stream, 0),
        }
        for stream in {**emitted, **transferred}
    }
    fields["inputs"] = [{**key._asdict(), "executed": count} for key, count in executed.items()]
    fields["failures"] = [
        {
            "cause": place.cause,
            "component": place.component or None,
            "task": None if place.task < 0 else place.task,
            "worker": None if place.worker < 0 else place.worker,
            "count": count,
        }
        for place, count in sorted(counts.places.items(), key=lambda one: -one[1])
    ]
    return fields


def _latencies(latencies: Mapping[LatencyKind, Latencies]) -> dict[str, Any]:
    return {
        kind.value: {
            "count": one.total,
            "mean_s": one.sum_s / one.total,
            **_percentiles(one),
        }
        for kind, one in latencies.items()
        if one.total
    }


def _percentiles(latencies: Latencies) -> dict[str, float | None]:
    found = {f"p{percent}_s": latencies.percentile(percent) for percent in _PERCENTS}
    return {**found, "max_s": latencies.percentile(100)}


def task_numbers(task: TaskStats) -> dict[str, Any]:
    """The numbers of a task in its current process."""
    event_time = task.event_time
    return {
        **_counts(task.counts),
        "latencies": _latencies(task.latencies),
        "queued": task.queued,
        "queue_s": task.queue_s,
        "done": task.done,
        "watermark": None if event_time is None else _finite(event_time.watermark),
        "standing": task.health.standing.value,
        "errors": task.health.errors,
        "last_error": task.health.last[-1].line if task.health.last else None,
        "state_entries": task.entries,
        "figures": _figures(task.figures),
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
                "error": task_error_text(wait.error),
                "reached": wait.reached,
            }


def _figures(figures: Mapping[str, float]) -> dict[str, float | None]:
    return {name: _finite(number) for name, number in figures.items()}


def _finite(number: float) -> float | None:
    return number if isfinite(number) else None
