"""From a topic of Kafka through Spark into a table, compared with Spark Structured Streaming.

Both run the pipeline of examples/kafka_to_spark, exactly once. The measured time is that from the
first batch in the table to the last, without any start-up.
"""

from __future__ import annotations

import sys
from contextlib import chdir
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.benchmark_cluster import BenchmarkCluster, wait
from benchmarks.figures import Key, Ratio
from benchmarks.measure import BenchmarkError, Comparison, Entry, Outcome, Sample
from benchmarks.processes import Starter, run_together
from sunshower.actors.shipping import ship
from sunshower.dev.jars import spark_delta, spark_kafka
from sunshower.dev.kafka import Kafka
from sunshower.runtime.plan import Layout
from sunshower.spark_integration.sessions.environment import SETTINGS, prepare, with_jars
from sunshower.spark_integration.sessions.spark_on_ray import RayDPSpark
from sunshower.spark_integration.sessions.spark_port import BatchInfo
from sunshower.spark_integration.tables.lake_table import delta
from sunshower.spark_integration.tables.tables import table

EXAMPLE = Path(__file__).parents[1] / "examples/kafka_to_spark"
BATCHES, TOPIC, UNIT, THOUSAND = 10, "bench-sales", "k sales/s", 1e3
PATHS = (
    *(("rows", "local", "table"), ("rows", "ray", "table"), ("rows", "local", "delta")),
    *(("ranges", "local", "table"), ("ranges", "ray", "table"), ("ranges", "local", "delta")),
)


def example(folder: Path, name: str) -> Any:
    """A module of the example, imported with `folder` as the current folder, for its files."""
    if str(EXAMPLE) not in sys.path:
        sys.path.append(str(EXAMPLE))
    with chdir(folder):
        return import_module(name)


def comparison(cluster: BenchmarkCluster, server: Kafka, messages: int) -> Comparison:
    """All paths in turn; each run has its own sessions."""
    pipeline, sales = (example(cluster.folder, name) for name in ("pipeline", "sales"))
    ship([pipeline, sales])
    sales.fill(messages, server.bootstrap, TOPIC)
    batch = messages // BATCHES
    peers = {into: Key("pipeline", "spark", into, UNIT) for into in ("table", "delta")}
    entries = [
        Entry(key, partial(_structured, cluster, server, batch, into))
        for into, key in peers.items()
    ]
    ratios = []
    for reads, on, into in PATHS:
        key = Key("pipeline", "sunshower", f"{reads}-{on}-{into}", UNIT)
        entries.append(Entry(key, partial(_ours, cluster, server, batch, reads, on, into)))
        ratios.append(Ratio(f"pipeline/{reads}-{on}-{into}/spark", key, peers[into]))
    return Comparison("pipeline", entries, ratios, rounds=1)


def _ours(
    cluster: BenchmarkCluster, server: Kafka, batch: int, reads: str, on: str, into: str
) -> Sample:
    with cluster.fresh_folder() as folder:
        module = example(folder, "pipeline")
        topology = module.pipeline(
            server.bootstrap,
            TOPIC,
            folder,
            place=module.place_of("cluster" if on == "ray" else ""),
            ranges=reads == "ranges",
            into={"table": table, "delta": delta}[into],
            records=batch,
            until_end=True,
        )
        try:
            with cluster.running(topology, Layout.PACK) as run:
                wait(run.finished)
        finally:
            RayDPSpark("sales").stop()  # the next run has other jars
        return _sample(folder, server)


def _structured(cluster: BenchmarkCluster, server: Kafka, batch: int, into: str) -> Sample:
    with cluster.fresh_folder() as folder:
        run_together([partial(stream, server.bootstrap, batch, into, folder)], folder)
        return _sample(folder, server)


def stream(kafka: str, rows: int, into: str, folder: Path, starter: Starter) -> Outcome:
    """Structured Streaming: a repeated batch replaces its folder, or is ignored by Delta."""
    prepare("pyspark")
    from pyspark.sql import SparkSession

    pipeline, sales = (example(folder, name) for name in ("pipeline", "sales"))
    builder = SparkSession.builder.master("local[*]").appName("sales")
    ours = {"spark.driver.memory": "1g", "spark.sql.shuffle.partitions": "4"}
    jars = with_jars((*spark_kafka(), *(spark_delta() if into == "delta" else ())))
    for name, value in {**SETTINGS, **ours, **jars}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    pages = spark.createDataFrame(sales.PAGES.to_pandas())
    target = str(folder / "table")

    def write(records: Any, number: int) -> None:
        records.persist()
        batch = BatchInfo(str(number), 0, txid=number, tables={"pages": pages})
        ranked = pipeline.ranked_from_kafka(records, batch).write
        if into == "delta":
            once = {"txnAppId": "sales", "txnVersion": number}
            ranked.format("delta").options(**once).mode("append").save(target)
        else:
            ranked.mode("overwrite").parquet(f"{target}/txid={number}")
        dead = pipeline.dead_from_kafka(records, batch).selectExpr("place key", "value")
        address = {"kafka.bootstrap.servers": kafka, "topic": sales.dead(TOPIC)}
        dead.write.format("kafka").options(**address).save()
        records.unpersist()

    starter.wait()
    source = {"kafka.bootstrap.servers": kafka, "subscribe": TOPIC, "startingOffsets": "earliest"}
    limit = rows + sales.PARTITIONS  # each partition's share is rounded down
    read = spark.readStream.format("kafka").options(**source, maxOffsetsPerTrigger=limit).load()
    query = read.writeStream.option("checkpointLocation", str(folder / "checkpoint"))
    query.trigger(availableNow=True).foreachBatch(write).start().awaitTermination()
    spark.stop()
    return Outcome(0.0, 1.0, 0)


def _sample(folder: Path, server: Kafka) -> Sample:
    """The sales a second of all batches except the first, by when the batches became visible.

    Raises BenchmarkError unless the table has each sale of the topic once.
    """
    sales, target = example(folder, "sales"), folder / "table"
    rows = sales.rows_of(target)
    wanted, _ = sales.plain(server.bootstrap, TOPIC)
    if sorted(row["id"] for row in rows) != sorted(row[0] for row in wanted.elements()):
        raise BenchmarkError(f"{len(rows):,} sales are in the table, not {wanted.total():,}")
    first = min(row["batch"] for row in rows)
    last = max(row["batch"] for row in rows)
    shown = [target / f"txid={number}" for number in (first, last)]
    if log := sorted(target.glob("_delta_log/*.json")):
        shown = [log[0], log[-1]]
    begun_s, ended_s = (file.stat().st_ctime for file in shown)
    done = sum(row["batch"] != first for row in rows)
    return Sample(done / (ended_s - begun_s) / THOUSAND)
