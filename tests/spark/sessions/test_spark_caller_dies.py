"""When a worker is killed during a job of Spark, the next life of its task cancels the job."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import Any

import pytest
import ray

from sunshower.spark_integration.sessions.spark_port import (
    BatchInfo,
    Gateway,
    SparkPlace,
    SparkStep,
)
from tests.spark.sales import WITHIN_S
from tests.spark.sessions.test_spark_gateway import SALES, SOME, Total

SPARK = BatchInfo("1", len(SOME), topology="t", task="spark-0")


class Caller:
    """A task in a process of its own."""

    def __init__(self, place: SparkPlace) -> None:
        self._gateway = place.open()

    def hand_over(self) -> None:
        """Submit a job that never ends, and uses all cores."""
        self._ticket = self._gateway.submit(
            SparkStep(endless_job, Total), [SALES.table(SOME)], SPARK
        )


def endless_job(df: Any, batch: BatchInfo) -> Any:
    maximum = df.sparkSession.range(10**14).groupBy().max("id")
    return maximum.selectExpr("'a' page", "double(`max(id)`) total")


@dataclass(frozen=True)
class Until:
    """A transform that only waits until exactly `active` jobs of Spark are running."""

    active: int

    def __call__(self, df: Any, batch: BatchInfo) -> None:
        tracker = df.sparkSession.sparkContext.statusTracker()
        end_s = time.monotonic() + WITHIN_S
        while len(tracker.getActiveJobsIds()) != self.active:
            assert time.monotonic() < end_s, f"there were never {self.active} jobs running"
            threading.Event().wait(0.05)


@pytest.mark.long
@pytest.mark.parametrize("place", ["on_ray"], indirect=True)
def test_the_job_of_a_killed_task_is_ended_by_its_next_life(
    place: SparkPlace, gateway: Gateway
) -> None:
    no_task, rows = BatchInfo("2", len(SOME)), [SALES.table(SOME)]
    caller = ray.remote(Caller).options(num_cpus=0).remote(place)
    ray.get(caller.hand_over.remote())
    gateway.submit(SparkStep(Until(1)), rows, no_task).result()
    ray.kill(caller)
    gateway.submit(SparkStep(Until(1)), rows, no_task).result()  # other callers do not end it
    next_life = place.open()
    next_life.submit(SparkStep(Until(0)), rows, SPARK).result()
    next_life.close()
