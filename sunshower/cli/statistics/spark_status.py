"""The fields of `sunshower status --json` about batches that tasks sent to Spark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sunshower.runtime.control.overview import Overview

_PHASES = ("waiting", "at Spark", "publishing")
_BATCH = "spark batch "
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
        names = (name.removesuffix("/phase") for name in figures
                 if name.startswith(_BATCH) and name.endswith("/phase"))  # fmt: skip
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
            "open": sorted((_open(figures, name) for name in names), key=lambda one: -one["age_s"]),
        }


def _open(figures: Mapping[str, float], name: str) -> dict[str, Any]:
    return {
        "batch": name.removeprefix(_BATCH),
        "phase": _PHASES[int(figures[f"{name}/phase"])],
        "attempt": int(figures[f"{name}/attempt"]),
        "rows": int(figures[f"{name}/rows"]),
        "age_s": figures[f"{name}/age seconds"],
    }
