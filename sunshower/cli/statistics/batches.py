"""Describes batches, those of a group and those at Spark, in JSON and in a line of text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from math import isfinite
from typing import Any

from sunshower.runtime.control.overview import Overview
from sunshower.runtime.events.metrics import Snapshot
from sunshower.trident.coordination.attempts import batch_group_of
from sunshower.trident.coordination.batch_scheduler import Status

_PHASES = [status.value for status in Status]
_SPARK_PHASES = ("waiting", "at Spark", "publishing")
_LAST = {"wait_s": "wait seconds", "hand_over_s": "hand-over seconds", "job_s": "job seconds",
         "mean_job_s": "mean job seconds"}  # fmt: skip


def batch_fields(snapshot: Snapshot, components: Iterable[str]) -> Iterator[dict[str, Any]]:
    """Each group of batches: how many have ended, and those that are open, the oldest first."""
    for id in components:
        figures = snapshot.figures(id)
        if (group := batch_group_of(id)) is None or "txid" not in figures:
            continue
        batches = sorted(_open_batches(figures, "batch ").items(), key=lambda one: int(one[0]))
        yield {
            "group": group,
            "txid": int(figures["txid"]),
            "committed": int(figures["batches committed"]),
            "skipped": int(figures["batches skipped"]),
            "attempts_failed": int(figures["attempts failed"]),
            "open": [
                {
                    "txid": int(txid),
                    "phase": _PHASES[int(facts["phase"])],
                    "attempt": int(facts["attempt"]),
                    "age_s": facts["age seconds"],
                }
                for txid, facts in batches
            ],
        }


def batch_line(group: str, figures: Mapping[str, float], snapshot: Snapshot) -> str:
    """Describe the batches of a group, with the figures of its coordinator, such as: `batches of
    words: 17 committing (attempt 1, 512 rows, 0.4 s), 2 more begun; 16 committed; the last took
    0.35 + 0.05 s; 4,000 rows emitted, 12,000 behind`."""
    names = [name.removesuffix("/tasks") for name in figures if name.endswith("/tasks")]
    spouts = [snapshot.figures(name.removeprefix("spout ")) for name in names]
    txid, active = int(figures["txid"]), int(figures["batches active"])
    batch = _open_batches(figures, "batch ").get(str(txid))
    if batch is None:
        now = f"{txid} is the next"
    else:
        rows = sum(one.get(f"batch {txid}/rows", 0) for one in spouts)
        now = (
            f"{txid} {_PHASES[int(batch['phase'])]} (attempt {batch['attempt']:.0f}, "
            f"{rows:,.0f} rows, {batch['age seconds']:.1f} s)"
        )
        now += f", {active - 1} more begun" if active > 1 else ""
    done = f"{figures['batches committed']:,.0f} committed"
    for name, label in (("batches skipped", "skipped"), ("attempts failed", "attempts failed")):
        done += f", {figures[name]:,.0f} {label}" if figures[name] else ""
    parts = [now, done]
    if unavailable_s := figures.get("seconds unavailable"):
        parts.append(f"waiting for {unavailable_s:,.0f} s for a dependency that is away")
    if figures["batches committed"]:
        parts.append(
            f"the last took {figures['process seconds']:.2f} + {figures['commit seconds']:.2f} s"
        )
    parts.append(f"{sum(one.get('rows emitted', 0) for one in spouts):,.0f} rows emitted")
    if (behind := _behind(names, figures, snapshot)) is not None:
        parts[-1] += f", {behind} behind"
    return f"batches of {group}: {'; '.join(parts)}"


def _behind(names: list[str], figures: Mapping[str, float], snapshot: Snapshot) -> str | None:
    """The sum of the lags of all tasks of these spouts, or `unknown`: a task has died, or has not
    heard from its brokers. None: these spouts have no lag."""
    lags, are_all = list[float](), True
    for name in names:
        tasks = snapshot.tasks_of(name.removeprefix("spout "))
        known = [task.figures["lag"] for task in tasks if "lag" in task.figures]
        are_all = are_all and (not known or len(known) >= figures[f"{name}/tasks"])
        lags += known
    if not lags:
        return None
    return f"{sum(lags):,.0f}" if are_all and isfinite(sum(lags)) else "unknown"


def spark_fields(found: Overview) -> Iterator[dict[str, Any]]:
    """Of each task that hands batches to Spark: what has ended, in sums, the seconds of the last
    batch (None: there is none), and the open ones, the oldest first."""
    places = {task.id: (task.index, task.worker) for task in found.plan.tasks}
    for stats in found.snapshot.tasks():
        figures = stats.figures
        if "spark failed" not in figures or stats.task not in places:
            continue
        index, worker = places[stats.task]
        batches = _open_batches(figures, "spark batch ").items()
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
            "open": sorted((_open_fields(*one) for one in batches), key=lambda one: -one["age_s"]),
        }


def _open_fields(id: str, facts: Mapping[str, float]) -> dict[str, Any]:
    return {
        "batch": id,
        "phase": _SPARK_PHASES[int(facts["phase"])],
        "attempt": int(facts["attempt"]),
        "rows": int(facts["rows"]),
        "age_s": facts["age seconds"],
    }


def _open_batches(figures: Mapping[str, float], kind: str) -> dict[str, dict[str, float]]:
    """The facts of each open batch, by its id: of the figures `<kind><id>/<fact>`."""
    found: dict[str, dict[str, float]] = {}
    for name, value in figures.items():
        id, slash, fact = name.removeprefix(kind).rpartition("/")
        if slash and name.startswith(kind):
            found.setdefault(id, {})[fact] = value
    return found
