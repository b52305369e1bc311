"""What Spark has done: of one job, as Spark itself counts it, and of one task of ours in sum."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator
from contextlib import suppress
from typing import Any

from sunshower.spark_integration.port import JobReport

_KEPT = 100  # reports of one task
_LOOKED_AT = 64  # of the last writes and queries of a session; more do not end side by side
_BUS_MS = 1000  # Spark counts beside the work; it is done with that soon after


class Seen:
    """The batches of one task that Spark has finished."""

    def __init__(self) -> None:
        self._last: deque[JobReport] = deque(maxlen=_KEPT)
        self._sums = dict.fromkeys(("batches", "rows in", "rows out", "bytes in", "spilled"), 0.0)
        self._job_s = 0.0

    @property
    def last(self) -> list[JobReport]:
        """The last reports, oldest first."""
        return list(self._last)

    def add(self, report: JobReport | None) -> None:
        """A batch is done; None: nothing was heard of how."""
        if report is None:
            return
        self._last.append(report)
        self._job_s += report.job_s
        amounts = (1, report.rows_in, report.rows_out, report.bytes_in, report.spilled_bytes)
        for name, amount in zip(self._sums, amounts, strict=True):
            self._sums[name] += amount

    def figures(self) -> dict[str, float]:
        """Sums over all batches, and seconds of the last one."""
        found = {f"spark {name}": amount for name, amount in self._sums.items()}
        if self._last:
            last = self._last[-1]
            found["spark wait seconds"] = last.wait_s
            found["spark hand-over seconds"] = last.hand_over_s
            found["spark job seconds"] = last.job_s
            found["spark mean job seconds"] = self._job_s / self._sums["batches"]
        return found


def spark_said(context: Any, group: str) -> dict[str, Any]:
    """Of a group of jobs that has ended: their ids, what they spilled, and where Spark shows them.

    It comes of the store that Spark's own pages read, which is there without them too. What cannot
    be learnt is left out: a batch does not fail for it.
    """
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
    """How many files the tasks of these jobs have written: Spark's own sum of what those told
    whose work counts, so tasks that were repeated are in it once. None: it cannot be learnt."""
    with suppress(Exception):
        session.sparkContext._jsc.sc().listenerBus().waitUntilEmpty(_BUS_MS)
        store = session._jsparkSession.sharedState().statusStore()
        first = max(store.executionsCount() - _LOOKED_AT, 0)
        done = list(_items(store.executionsList(first, _LOOKED_AT)))
        for one in reversed(done):
            if any(one.jobs().contains(job) for job in jobs):
                values = store.executionMetrics(one.executionId())
                known = [values.get(id) for id in {*_counters(one)}]  # plans that adapt repeat them
                told = [int(value.get().replace(",", "")) for value in known if value.isDefined()]
                return sum(told) if told else None
    return None


def _counters(execution: Any) -> Iterator[int]:
    for one in _items(execution.metrics()):
        if one.name() == "number of written files":
            yield one.accumulatorId()


def _spilled(store: Any, job: int) -> int:
    stages = list(_items(store.job(job).stageIds()))
    return sum(int(store.lastStageAttempt(one).diskBytesSpilled()) for one in stages)


def _items(sequence: Any) -> Iterator[Any]:
    """Of one of Scala's."""
    for index in range(sequence.size()):
        yield sequence.apply(index)
