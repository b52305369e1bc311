"""Spark's receiver way: members of a group in ZooKeeper read sales, and Spark gets them in batches.

    sunshower run examples/kafka_to_spark/group.py
    python examples/kafka_to_spark/group.py

The second command counts the sales in `sales/group`. Each task of the spout is a member of the
group; several programs may run at the same time, and share the topic. An offset is stored in
ZooKeeper when Spark has written the sales up to it, so none is lost in a crash, and some may be
written again, in another batch: `place`, the partition and offset, identifies them. `pipeline.py`
is the direct way, which writes each sale once.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet
from pyspark.sql import DataFrame
from sales import FOLDER, HOUR_MS, KAFKA, LATE_MS, PAGES, RATES, TOPIC, dead

from sunshower import KafkaBolt, KafkaSpout, Retry, Topology
from sunshower.kafka import ByZooKeeperGroup, KafkaOptions, PlainOffsets, Received
from sunshower.spark_integration import BatchInfo, SparkBatchBolt, parquet, spark

ZOOKEEPER = os.environ.get("ZOOKEEPER", "127.0.0.1:2181")


class PricedSale(NamedTuple):
    place: str  # partition-offset
    id: int
    hour: int
    page: str
    euro_cents: int
    late: bool


def priced(received: Received) -> PricedSale:
    """Raises ValueError, KeyError and TypeError for a message that is not a valid sale: it becomes
    a dead letter."""
    sale = json.loads(received.value)
    return PricedSale(
        f"{received.partition}-{received.offset}",
        sale["id"],
        sale["at_ms"] // HOUR_MS % 24,
        sale["page"],
        round(sale["cents"] * RATES[sale["currency"]]),
        received.timestamp_ms - sale["at_ms"] > LATE_MS,
    )


def categorised(sales: DataFrame, batch: BatchInfo) -> DataFrame:
    return sales.join(batch.tables["pages"], "page")


def receiver(
    kafka: str = KAFKA,
    zookeeper: str = ZOOKEEPER,
    topic: str = TOPIC,
    folder: Path = FOLDER / "group",
    *,
    rows: int = 1_000,  # of a batch, at most
    session_timeout_s: float = 10.0,
) -> Topology:
    group = f"spark-{topic}"
    options = KafkaOptions(
        sharing=ByZooKeeperGroup(zookeeper, group, session_timeout_s=session_timeout_s),
        store=PlainOffsets(zookeeper, group),
    )
    settings = {"bootstrap.servers": kafka, "group.id": group}
    source = KafkaSpout(settings, topics=[topic], translate=priced, options=options)
    step = spark(categorised, tables={"pages": PAGES})
    bolt = SparkBatchBolt(step.write(parquet(str(folder))), rows_max=rows)
    topology = Topology("kafka-group-to-spark", workers=2)
    sales = topology.spout("sales", source, parallelism=2, retry=Retry(dead_letters=True))
    sales.shuffle().bolt("spark", bolt)
    letters = KafkaBolt.dead_letters({"bootstrap.servers": kafka}, dead(topic))
    sales.stream("dead_letters").shuffle().bolt("letters", letters)
    return topology


def rows_of(folder: Path) -> dict[str, dict[str, Any]]:
    """The sales that Spark has written, by their places: of a repeated one, any."""
    files = [*folder.glob("batch=*/*.parquet")]
    rows = [row for file in files for row in pyarrow.parquet.read_table(file).to_pylist()]
    return {row["place"]: row for row in rows}


topology = receiver()

if __name__ == "__main__":
    print(f"{len(rows_of(FOLDER / 'group')):,} sales, whatever was repeated.")
