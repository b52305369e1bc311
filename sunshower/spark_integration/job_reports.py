"""Reads the metrics of finished jobs and writes from Spark's status store."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import suppress
from typing import Any

_LOOKED_AT = 64  # recent executions that are searched; fewer run concurrently in a session
_BUS_MS = 1000  # Spark's listeners count asynchronously; they are up to date within this time


def job_metrics(context: Any, group: str) -> dict[str, Any]:
    """Job ids, spilled bytes and UI address of a finished job group. They come from Spark's status
    store, which exists without the UI too. What cannot be read is left out: it does not fail the
    batch."""
    found: dict[str, Any] = {}
    with suppress(Exception):
        found["ui"] = context.uiWebUrl
        found["jobs"] = tuple(sorted(context.statusTracker().getJobIdsForGroup(group)))
        spark = context._jsc.sc()
        spark.listenerBus().waitUntilEmpty(_BUS_MS)
        store = spark.statusStore()
        found["spilled_bytes"] = sum(_spilled(store, job) for job in found["jobs"])
    return found


def files_written(session: Any, jobs: Collection[int]) -> int | None:
    """How many files the tasks of these jobs have written, or None if that cannot be read. Spark's
    metric counts only the successful attempt of each task."""
    with suppress(Exception):
        session.sparkContext._jsc.sc().listenerBus().waitUntilEmpty(_BUS_MS)
        store = session._jsparkSession.sharedState().statusStore()
        first = max(store.executionsCount() - _LOOKED_AT, 0)
        done = list(_items(store.executionsList(first, _LOOKED_AT)))
        for one in reversed(done):
            if any(one.jobs().contains(job) for job in jobs):
                values = store.executionMetrics(one.executionId())
                known = [values.get(id) for id in {*_counters(one)}]  # adaptive plans repeat them
                counts = [int(value.get().replace(",", "")) for value in known if value.isDefined()]
                return sum(counts) if counts else None
    return None


def _counters(execution: Any) -> Iterator[int]:
    for one in _items(execution.metrics()):
        if one.name() == "number of written files":
            yield one.accumulatorId()


def _spilled(store: Any, job: int) -> int:
    stages = list(_items(store.job(job).stageIds()))
    return sum(int(store.lastStageAttempt(one).diskBytesSpilled()) for one in stages)


def _items(sequence: Any) -> Iterator[Any]:
    """Iterate over a Scala sequence."""
    for index in range(sequence.size()):
        yield sequence.apply(index)
