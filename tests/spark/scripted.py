"""A SparkPlace without Spark: its transforms are plain functions of tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import pyarrow as pa

from sunshower.errors import SparkError
from sunshower.spark_integration.sessions.spark_port import (
    BatchInfo,
    JobReport,
    PublishingWriter,
    SparkStep,
)
from sunshower.spark_integration.steps import Spark


@dataclass
class ScriptedTicket:
    """A ticket that is done when `ready` is set. Its result is `error`, or what the transform
    returns, after the writers have written it."""

    step: SparkStep
    tables: Sequence[pa.Table]
    batch: BatchInfo
    ready: bool
    error: SparkError | None = None
    cancelled: bool = False

    def done(self) -> bool:
        return self.ready

    def result(self) -> pa.Table | None:
        if self.error is not None:
            raise self.error
        if self.batch.publish is not None:
            for write in self.step.writers:
                if isinstance(write, PublishingWriter):
                    write.publish(cast("Any", None), self.batch)
            return None
        state = self.step.state
        before = () if state is None else (state.before(cast("Any", None), self.batch),)
        result: Any = self.step.transform(*self.tables, *before, self.batch)
        if state is not None:
            result, new = result
            state(new, self.batch)
        for write in self.step.writers:
            write(result, self.batch)
        return cast("pa.Table | None", result)

    def report(self) -> JobReport:
        return JobReport(
            self.batch.id,
            self.batch.attempt,
            wait_s=0.0,
            hand_over_s=0.1,
            job_s=1.0,
            rows_in=self.batch.rows,
            rows_out=0,
            bytes_in=0,
            bytes_out=0,
        )

    def cancel(self) -> None:
        self.cancelled = True


@dataclass
class ScriptedPlace:
    """A place and its gateway, shared by all copies. The first tickets fail with the `errors`."""

    ready: bool = True
    errors: list[SparkError] = field(default_factory=list)
    tickets: list[ScriptedTicket] = field(default_factory=list)
    closed: int = 0

    def open(self) -> ScriptedPlace:
        return self

    def start(self) -> None:
        pass

    def submit(
        self, step: SparkStep, tables: Sequence[pa.Table], batch: BatchInfo
    ) -> ScriptedTicket:
        error = self.errors.pop(0) if self.errors else None
        self.tickets.append(ScriptedTicket(step, tables, batch, self.ready, error))
        return self.tickets[-1]

    def close(self) -> None:
        self.closed += 1

    def __deepcopy__(self, memo: Any) -> ScriptedPlace:
        return self

    def step(self, transform: Any, out: Any = None) -> Spark:
        return Spark(SparkStep(transform, out), self)
