"""The fields of `sunshower status --json` about batches that tasks sent to Spark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sunshower.runtime.control.overview import Overview

_PHASES = ("waiting", "at Spark", "publishing")
_LAST = {"wait_s": "wait seconds", "hand_over_s": "hand-over seconds", "job_s": "job seconds",
         "mean_job_s": "mean job seconds"}  # fmt: skip


def spark_fields(found: Overview) -> Iterator[dict[str, Any]]:
    """Of each task that hands batches to Spark: what has ended, in sums, the seconds of the last
    batch (None: there is none), and the open ones, the oldest first."""
    places = {task.id: (task.index, task.worker) for task in found.plan.tasks}
    for stats in found.snapshot.tasks():
        figures = stats.figures
        if "spark failed" not in figures or stats.task not in places:
            continue
        index, worker = places[stats.task]
        batches = open_batches(figures, "spark batch ").items()
        yield {
            "component": stats.component,
            "task": index,
            "worker": worker,
            "batches": int(figures["spark batches"]),
            "failed": int(figures["spark failed"]),
            "lost": int(figures["spark lost"]),
            "rows_in": int(figures["spark rows in"]),
            "rows_out": int(figures["spark rows out"]),
            **{key: figures.get(f"spark {name}") for key, name in _LAST.items()},
            "open": sorted((_open(*one) for one in batches), key=lambda one: -one["age_s"]),
        }


def open_batches(figures: Mapping[str, float], kind: str) -> dict[str, dict[str, float]]:
    """The facts of each open batch, by its id: of the figures `<kind><id>/<fact>`."""
    found: dict[str, dict[str, float]] = {}
    for name, value in figures.items():
        id, slash, fact = name.removeprefix(kind).rpartition("/")
        if slash and name.startswith(kind):
            found.setdefault(id, {})[fact] = value
    return found


def _open(id: str, facts: Mapping[str, float]) -> dict[str, Any]:
    return {
        "batch": id,
        "phase": _PHASES[int(facts["phase"])],
        "attempt": int(facts["attempt"]),
        "rows": int(facts["rows"]),
        "age_s": facts["age seconds"],
    }
