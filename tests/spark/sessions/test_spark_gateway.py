"""What every implementation of SparkPlace must do: values, results, errors, timeouts, crashes."""

from __future__ import annotations

import math
import os
import select
import signal
import threading
import time
import weakref
from contextlib import suppress
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, NamedTuple

import psutil
import pyarrow as pa
import pytest

from sunshower.arrow.record_columns import RecordColumns
from sunshower.errors import (
    ResultMismatch,
    SparkError,
    SparkLost,
    SparkTimeout,
    SparkUnavailable,
    TransformFailed,
)
from sunshower.spark_integration.job import is_remote
from sunshower.spark_integration.sessions.spark_connect import SparkConnect
from sunshower.spark_integration.sessions.spark_port import (
    BatchInfo,
    Gateway,
    SparkPlace,
    SparkStep,
)
from sunshower.spark_integration.steps import SqlQuery
from tests.spark.everything import EVERYTHING, Colour, Everything, Inner, same
from tests.spark.processes import CONNECT, java_processes
from tests.spark.sales import WITHIN_S, identity, run


class Sale(NamedTuple):
    page: str
    price: float | None


class Total(NamedTuple):
    page: str
    total: float | None


SALES = RecordColumns.of(Sale)
SOME = [Sale("a", 1.5), Sale("b", 2.0), Sale("a", None), Sale("a", 2.5)]


def totals(df: Any, batch: BatchInfo) -> Any:
    return df.groupBy("page").sum("price").withColumnRenamed("sum(price)", "total")


def fails(gateway: Gateway, transform: Any, out: Any = Total) -> SparkError:
    with pytest.raises(SparkError) as caught:
        run(gateway, SparkStep(transform, out), SALES.table(SOME))
    assert "\tat " not in str(caught.value), "a Java stack"
    assert "py4j" not in str(caught.value)
    return caught.value


VALUES = [
    Everything(
        number=-(2**63),
        share=math.nan,
        flag=True,
        text="a\0ü\U0001f600",
        raw=b"\0\xff",
        price=Decimal("-12345678901234567890.123456789012345678"),
        day=date(1, 1, 1),
        at=datetime(1582, 10, 10, 1, 2, 3, 4, tzinfo=UTC),
        colour=Colour.GREEN,
        maybe_number=None,
        maybe_share=math.nan,
        maybe_text="",
        maybe_at=None,
        maybe_colour=None,
        numbers=[1, None],
        shares=(math.inf, math.nan),
        lists=[[], ["x"]],
        table={"a": math.nan, "b": None},
        inner=Inner(1, None),
        maybe_inner=Inner(2, []),
        inners=[Inner(3, ["y"]), Inner(4, None)],
        by_colour={Colour.RED: None, Colour.GREEN: Inner(5, [])},
    ),
    Everything(
        number=2**63 - 1,
        share=-0.0,
        flag=False,
        text="",
        raw=b"",
        price=Decimal(0),
        day=date(9999, 12, 31),
        at=datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
        colour=Colour.RED,
        maybe_number=7,
        maybe_share=None,
        maybe_text=None,
        maybe_at=datetime(1969, 12, 31, tzinfo=UTC),
        maybe_colour=Colour.RED,
        numbers=[],
        shares=(),
        lists=None,
        table={},
        inner=Inner(0, []),
        maybe_inner=None,
        inners=[],
        by_colour={},
    ),
]


def through_a_task(df: Any, batch: BatchInfo) -> Any:
    """An exchange converts the values to Spark's own rows and back."""
    return df.repartition(1)


NULLS = [
    record._replace(
        maybe_number=None,
        maybe_share=None,
        maybe_text=None,
        maybe_at=None,
        maybe_colour=None,
        maybe_inner=None,
        lists=None,
    )
    for record in VALUES
]


@pytest.mark.parametrize("transform", [identity, through_a_task])
@pytest.mark.parametrize("values", [VALUES, NULLS], ids=["values", "columns of nulls"])
def test_every_value_comes_back_as_it_was(
    gateway: Gateway, transform: Any, values: list[Everything]
) -> None:
    back = run(gateway, SparkStep(transform, Everything), EVERYTHING.table(values))
    assert same(sorted(back, key=lambda record: record.number), values)


def test_empty_batches_and_columns_of_nulls_are_batches_too(gateway: Gateway) -> None:
    assert run(gateway, SparkStep(identity, Sale), SALES.table([])) == []
    nulls = [Sale("a", None), Sale("b", None)]
    assert sorted(run(gateway, SparkStep(identity, Sale), SALES.table(nulls))) == nulls
    assert run(gateway, SparkStep(totals, Total), SALES.table([])) == []


class Number(NamedTuple):
    number: int
    text: str


def test_a_million_rows_come_back_as_they_were(gateway: Gateway) -> None:
    columns = RecordColumns.of(Number)
    numbers = pa.array(range(1_000_000), pa.int64())
    table = pa.Table.from_arrays([numbers, numbers.cast(pa.string())], schema=columns.arrow)
    result = gateway.submit(
        SparkStep(identity, Number), [table], BatchInfo("1", 1_000_000)
    ).result()
    assert result is not None
    assert result.sort_by("number").combine_chunks() == table


def test_a_transform_may_group_join_and_use_sql(gateway: Gateway) -> None:
    assert sorted(run(gateway, SparkStep(totals, Total), SALES.table(SOME))) == [
        ("a", 4.0),
        ("b", 2.0),
    ]
    pages = pa.table({"page": ["a"], "title": pa.array(["A"], pa.large_string())})
    query = SqlQuery(
        "select title page, max(price) total from batch join pages using (page) group by 1"
    )
    step = SparkStep(query, Total, {"pages": pages})
    assert run(gateway, step, SALES.table(SOME)) == [Total("A", 2.5)]


def test_two_batches_are_in_flight_at_a_time(gateway: Gateway) -> None:
    run(gateway, SparkStep(totals, Total), SALES.table(SOME))
    step = SparkStep(two_together, Total)
    tickets = [gateway.submit(step, [SALES.table(SOME)], BatchInfo(str(n), 4)) for n in range(2)]
    assert all(ticket.result() is not None for ticket in tickets)


_together = threading.Barrier(2)  # of the process that the transforms run in


def two_together(df: Any, batch: BatchInfo) -> Any:
    _together.wait(WITHIN_S)
    return totals(df, batch)


def seven(df: Any, batch: BatchInfo) -> int:
    return 7


def raising(df: Any, batch: BatchInfo) -> Any:
    prices = {"a": 1}
    return df.withColumn("total", prices["no such page"])


def no_such_column(df: Any, batch: BatchInfo) -> Any:
    return df.select("page", df.colour)


def raising_inside(df: Any, batch: BatchInfo) -> Any:
    from pyspark.sql.functions import udf

    def halve(price: float) -> float:
        return 1.0 / 0

    return df.select("page", udf(halve, "double")("price").alias("total"))


def refusing_in_java(df: Any, batch: BatchInfo) -> Any:
    return df.selectExpr("page", "double(raise_error('no price')) total")


@pytest.mark.parametrize(
    ("transform", "line", "end"),
    [
        (
            raising,
            'df.withColumn("total", prices["no such page"])',
            "KeyError: 'no such page'",
        ),
        (no_such_column, 'return df.select("page", df.colour)', ""),
        (raising_inside, "return 1.0 / 0", "ZeroDivisionError: float division by zero"),
        (refusing_in_java, "", "no price"),
    ],
    ids=["in the transform", "in Spark", "in a UDF", "in Java"],
)
def test_an_error_has_the_line_that_raised_it_and_its_message(
    gateway: Gateway, transform: Any, line: str, end: str
) -> None:
    error = fails(gateway, transform)
    assert isinstance(error, TransformFailed)
    message, _, trace = str(error).partition("\nTraceback (most recent call last):\n")
    assert line in trace
    assert message.removesuffix(" SQLSTATE: P0001").endswith(end)  # Spark 4 adds it
    assert transform is not no_such_column or "colour" in message


def test_a_result_of_another_schema_is_refused_before_it_is_computed(gateway: Gateway) -> None:
    error = fails(gateway, identity)
    assert isinstance(error, ResultMismatch)
    assert (
        "Total has a field 'total', and there is no such column; the columns are: page, price"
        in str(error)
    )
    error = fails(gateway, seven)
    assert "returned int; it must return a DataFrame" in str(error)


def how_many_are_kept(df: Any, batch: BatchInfo) -> Any:
    alive = sum(frame() is not None for frame in _frames)
    _frames.append(weakref.ref(df))
    return df.limit(1).selectExpr("page", f"double({alive}) total")


_frames: list[weakref.ref[Any]] = []  # of the process that the transforms run in


def test_nothing_of_a_batch_is_kept_when_it_is_done(gateway: Gateway) -> None:
    step = SparkStep(how_many_are_kept, Total)
    counts = [run(gateway, step, SALES.table(SOME))[0].total for _ in range(6)]
    assert max(counts) <= 2, counts  # each of the two slots may still hold its last batch


def never_ending(df: Any, batch: BatchInfo) -> Any:
    threading.Event().wait(60)


def long_job(df: Any, batch: BatchInfo) -> Any:
    numbers = df.sparkSession.range(10**13)
    return (
        df.crossJoin(numbers)
        .groupBy("page")
        .agg({"id": "max"})
        .selectExpr("page", "double(`max(id)`) total")
    )


def long_job_after_another(df: Any, batch: BatchInfo) -> Any:
    """Start the second one when the first one has been cancelled."""
    with suppress(Exception):
        long_job(df, batch).collect()
    long_job(df, batch).collect()


def test_a_job_that_never_ends_is_ended_and_the_next_one_runs(gateway: Gateway) -> None:
    run(gateway, SparkStep(totals, Total), SALES.table(SOME))
    for transform in (never_ending, long_job, long_job_after_another):
        step = SparkStep(transform, Total, timeout_s=1.0)
        tickets = [gateway.submit(step, [SALES.table(SOME)], BatchInfo("9", 4)) for _ in range(2)]
        for ticket in tickets:  # they occupied both slots, which must be replaced
            with pytest.raises(SparkTimeout, match=r"longer than 1 s for batch 9 of 4 rows"):
                ticket.result()
        assert Total("a", 4.0) in run(gateway, SparkStep(totals, Total), SALES.table(SOME))


def java_of(df: Any) -> psutil.Process:
    """The Java of the driver; at a server of Spark Connect the server's."""
    if is_remote(df):
        return next(java for java in java_processes() if CONNECT in java.cmdline())
    return psutil.Process(df.sparkSession.sparkContext._gateway.proc.pid)


def killing_java(df: Any, batch: BatchInfo) -> Any:
    java = java_of(df)
    java.kill()
    java.wait()
    return df.withColumnRenamed("price", "total")


def stopping_spark(df: Any, batch: BatchInfo) -> Any:
    df.sparkSession.sparkContext._jsc.sc().stop()
    return df.withColumnRenamed("price", "total")


@pytest.mark.parametrize(
    "ending", [killing_java, pytest.param(stopping_spark, marks=pytest.mark.long)]
)
def test_a_job_whose_session_dies_is_lost_and_the_next_one_has_a_new_session(
    place: SparkPlace, gateway: Gateway, ending: Any
) -> None:
    if ending is stopping_spark and isinstance(place, SparkConnect):
        pytest.skip("a client cannot stop the server")
    error = fails(gateway, ending)
    assert isinstance(error, SparkLost), error
    assert Total("a", 4.0) in run_when_open(gateway)


def run_when_open(gateway: Gateway) -> Any:
    """Run a job; a server of Spark Connect that was killed is away until it has started again."""
    end_s = time.monotonic() + WITHIN_S
    while True:
        try:
            return run(gateway, SparkStep(totals, Total), SALES.table(SOME))
        except SparkUnavailable:  # after seconds: the client tries to connect
            if time.monotonic() > end_s:
                raise


class Process(NamedTuple):
    pid: int


def of_java(df: Any, batch: BatchInfo) -> Any:
    return df.sparkSession.sql(f"select {java_of(df).pid}L pid")


def test_when_java_dies_between_two_jobs_the_second_one_succeeds(
    gateway: Gateway,
) -> None:
    (java,) = run(gateway, SparkStep(of_java, Process), SALES.table(SOME))
    process = os.pidfd_open(java.pid)
    os.kill(java.pid, signal.SIGKILL)
    assert select.select([process], [], [], WITHIN_S)[0], "it still runs"
    os.close(process)
    assert Total("a", 4.0) in run_when_open(gateway)
