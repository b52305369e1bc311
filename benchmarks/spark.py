"""Spark: a batch of 100,000 rows to Spark, grouped there, and back, with and without our gateway.

The bare path runs in the same session, in its driver's process, so that both use the same warm
Java. It has its fastest configuration: on Ray, the bytes of the batch in the object store; on one
machine, PySpark's createDataFrame from pandas.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property, partial
from statistics import median
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import ray

from benchmarks import machine
from benchmarks.benchmark_cluster import BenchmarkCluster
from benchmarks.figures import Key, Ratio
from benchmarks.measure import BenchmarkError, Comparison, Entry, Sample
from sunshower.actors.shipping import ship
from sunshower.dev.jars import spark_kafka
from sunshower.spark_integration.sessions.local_spark import LocalSpark
from sunshower.spark_integration.sessions.spark_on_ray import RayDPSpark
from sunshower.spark_integration.sessions.spark_port import (
    BatchInfo,
    Gateway,
    SparkPlace,
    SparkStep,
)

ROWS, PAGES = 100_000, 1_000
BATCHES = 5  # in a run, which returns their median
MIB = 1 << 20
_WARM = 20
_ARROW = {"spark.sql.execution.arrow.pyspark.enabled": "true"}  # only for the bare path
_THRESHOLD = "spark.sql.execution.arrow.localRelationThreshold"


class Total(NamedTuple):
    page: str
    total: float


class Seconds(NamedTuple):
    seconds: float


class Memory(NamedTuple):
    heap: int  # used bytes of the driver's Java heap
    java: int  # process id of that Java
    own: int  # process id of the driver's Python


def sales() -> pa.Table:
    """A batch: 2.3 MB."""
    chance = np.random.default_rng(1)
    pages = pa.array([f"page-{number:04}" for number in range(PAGES)])
    return pa.table(
        {
            "page": pages.take(pa.array(chance.integers(0, PAGES, ROWS))),
            "price": chance.random(ROWS),
        }
    )


def totals(df: Any, _: BatchInfo) -> Any:
    return df.groupBy("page").sum("price").withColumnRenamed("sum(price)", "total")


def bare_local(df: Any, _: BatchInfo) -> Any:
    """Run PySpark's usual way BATCHES times; its rows are the seconds of each."""
    session, table = df.sparkSession, sales()
    ours = session.conf.get(_THRESHOLD)
    session.conf.set(_THRESHOLD, "48MB")  # Spark's default
    try:
        return _timed(session, lambda: session.createDataFrame(table.to_pandas()))
    finally:
        session.conf.set(_THRESHOLD, ours)


def bare_on_ray(df: Any, _: BatchInfo) -> Any:
    """Run BATCHES times with the bytes in the object store; its rows are the seconds of each."""
    from raydp.spark import ray_dataset_to_spark_dataframe

    session, table = df.sparkSession, sales()
    heaps = []

    def frame() -> Any:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as stream:
            stream.write_table(table)
        heaps[:] = [ray.put(sink.getvalue().to_pybytes())]
        return ray_dataset_to_spark_dataframe(session, table.schema, [*heaps])

    return _timed(session, frame)


def _timed(session: Any, frame: Callable[[], Any]) -> Any:
    reports = []
    for _ in range(BATCHES):
        begun_s = time.perf_counter()
        rows = frame().groupBy("page").sum("price").toPandas()
        reports.append(time.perf_counter() - begun_s)
        assert len(rows) == PAGES
    return session.sql(f"select col1 seconds from values {', '.join(f'({s}D)' for s in reports)}")


def memory(df: Any, _: BatchInfo) -> Any:
    """After a garbage collection: the used heap, and the process ids of Java and Python."""
    jvm, java = df.sparkSession._jvm, df.sparkSession.sparkContext._gateway.proc.pid
    jvm.java.lang.System.gc()
    runtime = jvm.java.lang.Runtime.getRuntime()
    heap = runtime.totalMemory() - runtime.freeMemory()
    return df.sparkSession.sql(f"select {heap}L heap, {java}L java, {os.getpid()}L own")


@dataclass
class SparkBench:
    """A place for Spark. Its session starts with the first run, and ends with `stack`."""

    place: SparkPlace
    bare_step: Callable[..., Any]
    stack: ExitStack

    @cached_property
    def table(self) -> pa.Table:
        return sales()

    @cached_property
    def gateway(self) -> Gateway:
        gateway = self.place.open()
        self.stack.callback(self._end, gateway)
        gateway.start()
        for _ in range(_WARM):
            self._batch(gateway)
        return gateway

    def ours(self) -> Sample:
        return Sample(median(self._batch(self.gateway) for _ in range(BATCHES)))

    def bare(self) -> Sample:
        return Sample(
            median(row["seconds"] for row in self._rows(SparkStep(self.bare_step, Seconds)))
        )

    def growth(self, batches: int) -> Sample:
        """By how many MiB Java's heap, our process and the object store grow over `batches`."""
        before = self._memory_mib()
        for _ in range(batches):
            self._batch(self.gateway)
        after = self._memory_mib()
        growth = sum(after[name] - before[name] for name in ("heap", "own", "stored"))
        return Sample(growth, more={f"{name}_mib": value for name, value in after.items()})

    def _memory_mib(self) -> dict[str, float]:
        """Memory in MiB; `java` is the resident memory of its process."""
        (row,) = self._rows(SparkStep(memory, Memory))
        figures = {
            "heap": row["heap"],
            "java": machine.resident([row["java"]]),
            "own": machine.resident([row["own"]]),
            "stored": _stored(),
        }
        return {name: value / MIB for name, value in figures.items()}

    def _batch(self, gateway: Gateway) -> float:
        begun_s = time.perf_counter()
        result = gateway.submit(TOTALS, [self.table], BatchInfo("1", ROWS)).result()
        seconds = time.perf_counter() - begun_s
        if result is None or result.num_rows != PAGES:
            raise BenchmarkError(f"{result and result.num_rows} pages came back, not {PAGES}")
        return seconds

    def _rows(self, step: SparkStep) -> list[dict[str, Any]]:
        table = self.gateway.submit(step, [self.table.slice(0, 1)], BatchInfo("1", 1)).result()
        assert table is not None
        rows: list[dict[str, Any]] = table.to_pylist()
        return rows

    def _end(self, gateway: Gateway) -> None:
        gateway.close()
        if isinstance(self.place, RayDPSpark):
            self.place.stop()


TOTALS = SparkStep(totals, Total)


def local_bench(stack: ExitStack) -> SparkBench:
    """A session in this process that can read Kafka."""
    return SparkBench(LocalSpark(settings=_ARROW, jars=spark_kafka()), bare_local, stack)


def comparison(
    _cluster: BenchmarkCluster, here: SparkBench, many: int, stack: ExitStack
) -> Comparison:
    """Both places in turn; RayDP uses the running Ray. `many`: batches in a memory measurement."""
    ship([sys.modules[__name__]])
    places = {
        "local": here,
        "ray": SparkBench(RayDPSpark("bench", settings=_ARROW), bare_on_ray, stack),
    }
    entries, ratios = list[Entry](), list[Ratio]()
    for name, bench in places.items():
        ours = Key("spark", "sunshower", name, "s")
        bare = Key("spark", "bare", name, "s")
        growth = Key("spark", "sunshower", f"memory-growth-{name}", "MiB")
        entries += [Entry(ours, bench.ours), Entry(bare, bench.bare)]
        entries += [Entry(growth, partial(bench.growth, many))]
        ratios += [Ratio(f"spark/{name}/bare", ours, bare)]
    return Comparison("spark", entries, ratios, rounds=2)


def _stored() -> float:
    """The bytes in Ray's object store, as Ray last reported them."""
    name = "object_store_memory"
    return ray.cluster_resources()[name] - ray.available_resources().get(name, 0.0)
