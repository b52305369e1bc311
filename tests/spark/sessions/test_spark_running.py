"""One job in a session, without Spark: jobs that are given up, and the cache of static tables."""

from __future__ import annotations

from typing import Any, NamedTuple

import pyarrow as pa
import pytest

from sunshower.arrow.record_columns import RecordColumns
from sunshower.errors import SparkError
from sunshower.spark_integration.job import Runner, spark_schema
from sunshower.spark_integration.sessions.session_host import DriverSession
from sunshower.spark_integration.sessions.spark_port import BatchInfo, SparkStep
from tests.spark.sessions.test_spark_host import FakeConf

pytest.importorskip("pyspark")
BATCH, PAGES = BatchInfo("7", 0), pa.table({"page": ["a"]})


class Sale(NamedTuple):
    page: str


class FakeSession(DriverSession):
    def __init__(self) -> None:
        self.spark, self.conf = self, FakeConf()

    def newSession(self) -> FakeSession:  # noqa: N802
        return self

    def hand_over(self, session: Any, table: pa.Table) -> Any:
        return table


def runner() -> Runner:
    return Runner(FakeSession())


def uncollected() -> Any:
    """A DataFrame of sales that cannot be computed."""
    from pyspark.sql import DataFrame

    class Uncollected(DataFrame):
        schema = spark_schema(RecordColumns.of(Sale).arrow)

        def __init__(self) -> None:
            pass

    return Uncollected()


def test_a_job_that_is_cancelled_while_it_is_planned_is_not_computed() -> None:
    given_up: list[bool] = []

    def planned(df: Any, batch: BatchInfo) -> Any:
        given_up.append(True)
        return uncollected()

    with pytest.raises(SparkError, match="planned: batch 7 was given up"):
        runner().run(SparkStep(planned, Sale), [pa.table({})], BATCH, lambda: bool(given_up))


def test_static_tables_are_made_once_and_kept_only_for_the_last_steps() -> None:
    calls: list[int] = []

    def nothing(batch: BatchInfo) -> None:
        assert batch.tables["pages"] is PAGES

    def pages(session: Any) -> Any:
        calls.append(1)
        return PAGES

    spark_runner, ours = runner(), [SparkStep(nothing, tables={"pages": pages}) for _ in range(100)]
    for step in ours:
        for _ in range(3):
            spark_runner.run(ours[0], [], BATCH)
            spark_runner.run(step, [], BATCH)
    assert len(calls) == 100, "the first step is always among the last ones used"
    assert len(spark_runner._static) < 20
    spark_runner.run(ours[1], [], BATCH)
    assert len(calls) == 101
