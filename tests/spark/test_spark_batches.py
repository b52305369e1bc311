"""Programs of batches with a Spark step: the results of a plain program, also when Java dies."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

from sunshower import Topology
from sunshower.errors import TopologyFailed
from sunshower.runtime.inline import run_inline
from sunshower.spark_integration.sessions.local_spark import LocalSpark
from sunshower.spark_integration.sessions.spark_connect import SparkConnect
from sunshower.spark_integration.sessions.spark_port import (
    BatchInfo,
    Gateway,
    SparkPlace,
    SparkStep,
)
from sunshower.spark_integration.steps import Spark, parquet, spark
from sunshower.state import MemoryState
from sunshower.topologies.graph import Graph
from sunshower.trident import BatchStream, FixedBatchSpout, InMemory, Skip, batches, sum_
from tests.spark.sales import run, run_through_outages

WITHIN_S = 240.0


class Sale(NamedTuple):
    page: str
    cents: int


class Total(NamedTuple):
    page: str
    cents: int


SALES = [Sale(f"p{number % 3}", number) for number in range(1200)]
PLAIN: Counter[str] = Counter()
for sale in SALES:
    PLAIN[sale.page] += sale.cents


def totals(sales: Any, batch: BatchInfo) -> Any:
    return sales.groupBy("page").sum("cents").withColumnRenamed("sum(cents)", "cents")


def two_together(sales: Any, batch: BatchInfo) -> Any:
    """Batch 1 waits for batch 2."""
    if batch.txid is not None and batch.txid <= 2:
        _together.wait(WITHIN_S)
    return totals(sales, batch)


_together = threading.Barrier(2)  # of the process that the transforms run in


def declared(topology: Topology, **options: Any) -> BatchStream[Sale]:
    spout = FixedBatchSpout(SALES, 300, type=Sale)
    return batches(topology, "sales", spout, store=InMemory(), **options)


def program(step: Spark, **options: Any) -> tuple[Graph, MemoryState]:
    """A program with the step, and its state."""
    topology, state = Topology("sales", message_timeout_s=300), MemoryState()
    spark_rows = declared(topology, **options).apply(step).named("spark")
    spark_rows.group_by("page").aggregate(sum_("cents"), state=state)
    return topology.graph(), state


def test_a_program_with_two_batches_at_a_time_has_the_results_of_a_plain_one(
    place: SparkPlace, gateway: Gateway
) -> None:
    graph, state = program(spark(two_together, out=Total, where=place), max_batches=2)
    ((all_reports,),) = run_inline(graph).results["spark"]
    assert dict(state.items()) == PLAIN
    reports = [report for report in all_reports if report.rows_in]
    assert sorted(report.batch for report in reports) == ["1", "2", "3", "4"]
    assert {(report.rows_in, report.rows_out) for report in reports} == {(300, 3)}
    if not isinstance(place, SparkConnect):  # a client does not see jobs
        assert all(report.jobs for report in reports)
        assert len({job for report in reports for job in report.jobs}) >= 4
    assert all(report.hand_over_s > 0 and report.job_s > 0 for report in reports)
    assert {(report.spilled_bytes, report.ui) for report in reports} == {(0, None)}


@dataclass(frozen=True)
class NotedRead:
    """Reads the numbers of the rows, and notes each number that it computes."""

    notes: str

    def check(self, columns: pa.Schema) -> None:
        pass

    def __call__(self, session: Any, table: pa.Table) -> Any:
        from pyspark.sql.functions import udf

        notes = Path(self.notes)

        def noted(number: int) -> int:
            with notes.open("a") as file:
                file.write("x")
            return number

        begin = table["cents"][0].as_py() if table.num_rows else 0
        numbers = session.range(begin, begin + table.num_rows)
        return numbers.select(udf(noted, "bigint")("id").alias("cents"))


def by_rest(numbers: Any, batch: BatchInfo) -> Any:
    return totals(numbers.selectExpr("string(cents % 2) page", "cents"), batch)


def least(numbers: Any, batch: BatchInfo) -> Any:
    """A query, for which the session must be that of the job."""
    numbers.createOrReplaceTempView("numbers")
    session, name = numbers.sparkSession, f"batch {batch.txid}"
    return session.sql(f"select '{name}' page, coalesce(min(cents), 0L) cents from numbers")


class Kept(NamedTuple):
    number: int


def still_cached(df: Any, batch: BatchInfo) -> Any:
    session = df.sparkSession
    return session.sql(f"select {session.sparkContext._jsc.getPersistentRDDs().size()}L number")


def test_two_steps_that_read_the_same_share_one_cached_read(
    place: SparkPlace, gateway: Gateway, tmp_path: Path
) -> None:
    if isinstance(place, SparkConnect):
        pytest.skip("sessions of a server share no read")
    reads, topology = NotedRead(str(tmp_path / "notes")), Topology("shared", message_timeout_s=300)
    sales, states = declared(topology, max_batches=2), [MemoryState(), MemoryState()]
    for transform, state in zip((by_rest, least), states, strict=True):
        read = sales.apply(spark(transform, out=Total, reads=reads, where=place))
        named = f"of_{transform.__name__}"
        read.group_by("page").aggregate(sum_("cents"), state=state, name=named)
    run_inline(topology.graph())
    even, odd = sum(range(0, 1200, 2)), sum(range(1, 1200, 2))
    assert dict(states[0].items()) == {"0": even, "1": odd}
    firsts = {f"batch {txid}": 300 * (txid - 1) for txid in range(1, 5)}
    assert firsts.items() <= dict(states[1].items()).items()
    assert len((tmp_path / "notes").read_text()) == len(SALES), "rows were read again"
    assert run(gateway, SparkStep(still_cached, Kept), pa.table({})) == [Kept(0)]


@dataclass(frozen=True)
class KillsJavaOnce:
    """A transform with a UDF that once kills the Java process of its executor."""

    marker: str

    def __call__(self, sales: Any, batch: BatchInfo) -> Any:
        from pyspark.sql.functions import udf

        marker = Path(self.marker)

        def cents(amount: int) -> int:
            import psutil

            if not marker.exists():
                marker.touch()
                java = next(
                    parent for parent in psutil.Process().parents() if parent.name() == "java"
                )
                java.kill()
            return amount

        return totals(sales.withColumn("cents", udf(cents, "bigint")("cents")), batch)


def test_the_java_of_an_executor_is_killed_in_the_middle_of_a_job(
    place: SparkPlace, gateway: Gateway, tmp_path: Path
) -> None:
    """It is the Java of the driver as well, with LocalSpark and at a server."""
    step = spark(KillsJavaOnce(str(tmp_path / "killed")), out=Total, where=place)
    graph, state = program(step, max_batches=2)
    run_through_outages(graph)
    assert (tmp_path / "killed").exists()
    assert dict(state.items()) == PLAIN


def test_the_error_names_a_folder_that_cannot_be_written(
    place: SparkPlace, gateway: Gateway, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    folder = str(tmp_path / "file" / "totals")
    topology = Topology("sales", message_timeout_s=300)
    step = spark(totals, where=place).write(parquet(folder))
    declared(topology, skip=Skip(attempts=1)).apply(step)
    with pytest.raises(TopologyFailed) as caught:
        run_inline(topology.graph())
    message = str(caught.value)
    assert f"WriteFailed: totals: batch 1 could not be written by parquet({folder!r})" in message
    assert "\tat " not in message


@dataclass(frozen=True)
class OnFullDisk:
    """A writer that limits the files of its Java to 16 bytes while it writes."""

    folder: str

    def __call__(self, result: Any, batch: BatchInfo) -> None:
        import psutil

        java = psutil.Process(result.sparkSession.sparkContext._gateway.proc.pid)
        before = java.rlimit(psutil.RLIMIT_FSIZE)
        java.rlimit(psutil.RLIMIT_FSIZE, (16, before[1]))
        try:
            parquet(self.folder)(result, batch)
        finally:
            java.rlimit(psutil.RLIMIT_FSIZE, before)


def test_a_full_disk_is_reported_in_the_error(
    place: SparkPlace, gateway: Gateway, tmp_path: Path
) -> None:
    if not isinstance(place, LocalSpark):
        pytest.skip("the executors are not children of the writing process")
    topology = Topology("sales", message_timeout_s=300)
    step = spark(totals, where=place).write(OnFullDisk(str(tmp_path / "totals")))
    declared(topology, skip=Skip(attempts=1)).apply(step)
    with pytest.raises(TopologyFailed, match=r"could not be written by OnFullDisk.*File too large"):
        run_inline(topology.graph())
