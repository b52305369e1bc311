"""One job in a session, without Spark: what is asked of it, when, and what is kept afterwards."""

from __future__ import annotations

from typing import Any, NamedTuple

import pyarrow as pa
import pytest

from sunshower.errors import SparkError
from sunshower.spark_integration.port import BatchInfo, Step
from sunshower.spark_integration.running import Runner
from sunshower.spark_integration.schema import Columns, spark_schema

pytest.importorskip("pyspark")
BATCH = BatchInfo("7", 0)


class Sale(NamedTuple):
    page: str


class FakeSession:
    def newSession(self) -> FakeSession:  # noqa: N802
        return self


def runner() -> Runner:
    session: Any = FakeSession()
    return Runner(session, lambda _, table: table)


def uncollected() -> Any:
    """A DataFrame of sales that is not to be computed."""
    from pyspark.sql import DataFrame

    class Uncollected(DataFrame):
        schema = spark_schema(Columns.of(Sale).arrow)

        def __init__(self) -> None:
            pass

    return Uncollected()


def test_what_is_given_up_while_it_is_planned_is_not_computed() -> None:
    over: list[bool] = []

    def planned(df: Any, batch: BatchInfo) -> Any:
        over.append(True)
        return uncollected()

    with pytest.raises(SparkError, match="planned: batch 7 was given up"):
        runner().run(Step(planned, Sale), [pa.table({})], BATCH, lambda: bool(over))
