"""Submits the batches of one task to Spark, again if Spark dies, and sums their reports."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice

import pyarrow as pa

from sunshower.errors import SparkError, SparkLost, Unavailable
from sunshower.spark_integration.sessions.spark_port import (
    BatchInfo,
    JobReport,
    SparkPlace,
    SparkStep,
    Ticket,
)
from sunshower.topologies.components import Context

_LOST_MAX = 3  # how often a batch is submitted again because Spark died
_REPORTS_MAX = 100
_OPEN_SHOWN_MAX = 20  # batches in the figures; more wait rarely


class Submissions:
    """A task's gateway to Spark, and sums over its finished batches. The session starts in the
    background."""

    def __init__(self, step: SparkStep, place: SparkPlace, context: Context) -> None:
        self._step = step
        self._topology, self._task = context.topology, f"{context.component}-{context.index}"
        self._reports: deque[JobReport] = deque(maxlen=_REPORTS_MAX)
        self._sums = dict.fromkeys(("batches", "rows in", "rows out", "bytes in", "spilled"), 0.0)
        self._job_s = 0.0
        self._clock = context.clock
        self._open: dict[Submission, float] = {}  # unfinished ones → when they were added
        self._failed = self._lost = 0
        self._gateway = place.open()
        self._gateway.start()

    def add(self, tables: Sequence[pa.Table], batch: BatchInfo) -> Submission:
        """A batch with one table for each input; its first `poll` submits it."""
        batch = replace(batch, topology=self._topology, task=self._task)
        submission = Submission(self, tables, batch)
        self._open[submission] = self._clock.now()
        return submission

    def submit(self, tables: Sequence[pa.Table], batch: BatchInfo) -> Ticket:
        """Submit a batch once. Raises what the gateway raises."""
        return self._gateway.submit(self._step, tables, batch)

    def ended(self, submission: Submission, *, failed: bool = False) -> None:
        """The batch is no longer open: it is finished, cancelled or has failed."""
        self._open.pop(submission, None)
        self._failed += failed

    def lost(self) -> None:
        """Spark has died during a batch."""
        self._lost += 1

    def finished(self, report: JobReport | None) -> None:
        """Add the report of a finished batch; None if there is none."""
        if report is None:
            return
        self._reports.append(report)
        self._job_s += report.job_s
        amounts = (1, report.rows_in, report.rows_out, report.bytes_in, report.spilled_bytes)
        for name, amount in zip(self._sums, amounts, strict=True):
            self._sums[name] += amount

    def figures(self) -> dict[str, float]:
        """Sums over all batches that have ended, the seconds of the last one, and of each open
        batch ID `spark batch ID/phase` (0: waits to be submitted, 1: at Spark, 2: publishes),
        `/attempt`, `/rows` and `/age seconds`."""
        found = {f"spark {name}": amount for name, amount in self._sums.items()}
        found |= {"spark failed": self._failed, "spark lost": self._lost}
        now = self._clock.now()
        for submission, since_s in islice(self._open.items(), _OPEN_SHOWN_MAX):
            batch = submission.batch
            name = f"spark batch {batch.id}"
            found[f"{name}/phase"] = submission.phase
            found[f"{name}/attempt"] = max(batch.attempt, 1) + batch.run
            found[f"{name}/rows"] = batch.rows
            found[f"{name}/age seconds"] = now - since_s
        if self._reports:
            last = self._reports[-1]
            found["spark wait seconds"] = last.wait_s
            found["spark hand-over seconds"] = last.hand_over_s
            found["spark job seconds"] = last.job_s
            found["spark mean job seconds"] = self._job_s / self._sums["batches"]
        return found

    def reports(self) -> list[JobReport]:
        """The reports of the last batches, oldest first."""
        return list(self._reports)

    def close(self) -> None:
        self._gateway.close()


class Submission:
    """One batch, until Spark has finished it.

    new ──poll──▶ at Spark ──poll──▶ finished: `result`
                    ├─ SparkLost ──▶ submitted again, up to three times
                    └─ Unavailable ▶ raised; the next poll submits it again
    """

    def __init__(self, owner: Submissions, tables: Sequence[pa.Table], batch: BatchInfo) -> None:
        self.batch = batch
        self.result: pa.Table | None = None
        self._owner, self._tables = owner, tables
        self._ticket: Ticket | None = None

    @property
    def phase(self) -> int:
        """0: waits to be submitted, 1: at Spark, 2: publishes at Spark."""
        if self._ticket is None:
            return 0
        return 1 if self.batch.publish is None else 2

    def poll(self) -> bool:
        """Submit the batch, or return whether it is finished. Raises SparkError if it has failed,
        Unavailable during an outage, and what else the gateway raises."""
        try:
            return self._advance()
        except Unavailable:
            raise
        except SparkError:
            self._owner.ended(self, failed=True)
            raise

    def _advance(self) -> bool:
        if self._ticket is None:
            self._ticket = self._owner.submit(self._tables, self.batch)
            return False
        if not self._ticket.done():
            return False
        try:
            self.result = self._ticket.result()
        except Unavailable:
            self._ticket = None
            raise
        except SparkLost:
            self._owner.lost()
            if self.batch.run == _LOST_MAX:
                raise
            self._ticket.cancel()  # on a cluster the job may still run
            self._ticket = None
            self.batch = replace(self.batch, run=self.batch.run + 1)
            return self._advance()
        self._owner.ended(self)
        if self.batch.publish is None:
            self._owner.finished(self._ticket.report())
        return True

    def cancel(self) -> None:
        """Cancel the job, if it is not finished."""
        self._owner.ended(self)
        if self._ticket is not None and not self._ticket.done():
            self._ticket.cancel()
