"""Sales from a Kafka topic are parsed by bolts, ranked by Spark, and written to a table once each.

    sunshower submit examples/kafka_to_spark/pipeline.py

docs/PIPELINE.md is a tutorial. Messages that are not valid sales are sent to the topic
`dead-sales`. With SPARK_READS=ranges Spark reads and parses the messages; with SPARK_ON=cluster its
session is on the Ray cluster, not in the worker, with SPARK_ON=spark://HOST:PORT its executors are
those of a standalone cluster, and with SPARK_ON=sc://HOST:PORT it is at a server of Spark Connect;
with SPARK_INTO=delta the table is a Delta Lake table.
"""

import json
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
from pyspark.sql import DataFrame, Window
from pyspark.sql.functions import desc, lit, pandas_udf, row_number
from sales import FOLDER, HOUR_MS, KAFKA, LATE_MS, PAGES, RATES, TOPIC, dead

from sunshower import Topology
from sunshower.dev import spark_delta, spark_kafka
from sunshower.kafka import BatchOptions, KafkaBolt, KafkaRanges, KafkaTransactional, Received
from sunshower.spark_integration import (
    BatchInfo,
    KafkaRows,
    LocalSpark,
    RayDPSpark,
    SparkCluster,
    SparkConnect,
    delta,
    spark,
    table,
)
from sunshower.trident import Bounds, InSqlite, batches


class Message(NamedTuple):
    place: str  # partition-offset
    received_ms: int
    value: bytes


class DeadSale(NamedTuple):
    place: str
    value: str
    reason: str


class Sale(NamedTuple):
    id: int
    at_ms: int
    received_ms: int
    page: str
    cents: int
    currency: str


class HourlySale(NamedTuple):
    id: int
    hour: int
    page: str
    cents: int
    currency: str
    late: bool


# ---- messages as rows: bolts parse them ----------------------------------------------------------


def message(received: Received) -> Message:
    place = f"{received.partition}-{received.offset}"
    return Message(place, received.timestamp_ms, received.value or b"")


def read_sale(message: Message) -> Sale:
    """Raises ValueError, KeyError and TypeError for a message that is not a valid sale."""
    fields = json.loads(message.value)
    cents, currency = int(fields["cents"]), fields["currency"]
    return Sale(fields["id"], fields["at_ms"], message.received_ms, fields["page"], cents, currency)


def parse(message: Message) -> Iterator[Sale]:
    try:
        yield read_sale(message)
    except (ValueError, KeyError, TypeError):
        return  # `bury` emits it


def bury(message: Message) -> Iterator[DeadSale]:
    try:
        read_sale(message)
    except (ValueError, KeyError, TypeError) as error:
        yield DeadSale(message.place, message.value.decode(errors="replace"), repr(error))


def enrich(sale: Sale) -> HourlySale:
    hour, late = sale.at_ms // HOUR_MS % 24, sale.received_ms - sale.at_ms > LATE_MS
    return HourlySale(sale.id, hour, sale.page, sale.cents, sale.currency, late)


# ---- ranges of offsets: Spark parses the messages ------------------------------------------------

FIELDS = ("id", "at_ms", "page", "cents", "currency")
IS_SALE = " and ".join(f"sale.{name} is not null" for name in FIELDS)
TYPES = "id long, at_ms long, page string, cents long, currency string"


def parsed(records: DataFrame) -> DataFrame:
    return records.selectExpr("*", f"from_json(string(value), '{TYPES}') sale")


def ranked_from_kafka(records: DataFrame, batch: BatchInfo) -> DataFrame:
    hour = f"sale.at_ms div {HOUR_MS} % 24 hour"
    late = f"unix_millis(timestamp) - sale.at_ms > {LATE_MS} late"
    columns = ("sale.id", hour, "sale.page", "sale.cents", "sale.currency", late)
    return ranked(parsed(records).where(IS_SALE).selectExpr(*columns), batch)


def dead_from_kafka(records: DataFrame, _: BatchInfo) -> DataFrame:
    place = "concat(partition, '-', offset) place"
    broken = parsed(records).where(f"not ({IS_SALE})")
    return broken.selectExpr(place, "string(value) value", "'no sale' reason")


# ---- both ways -----------------------------------------------------------------------------------


def ranked(sales: DataFrame, batch: BatchInfo) -> DataFrame:
    """Join with the pages, convert to euros, and rank by category and hour within the batch."""

    @pandas_udf("long")
    def euro_cents(cents: pd.Series, currency: pd.Series) -> pd.Series:
        return (cents * currency.map(RATES)).round().astype("int64")

    best_first = Window.partitionBy("category", "hour").orderBy(desc("euro_cents"), "id")
    priced = sales.withColumn("euro_cents", euro_cents("cents", "currency"))
    joined = priced.drop("cents", "currency").join(batch.tables["pages"], "page")
    numbered = joined.withColumn("batch", lit(batch.txid))
    return numbered.withColumn("rank", row_number().over(best_first))


def pipeline(
    kafka: str = KAFKA,
    topic: str = TOPIC,
    folder: Path = FOLDER,
    *,
    place: Callable[..., Any] = LocalSpark,
    ranges: bool = False,
    into: Callable[[Path], Any] = table,
    records: int = 1_000,  # of a batch, at most
    until_end: bool = False,
) -> Topology:
    folder.mkdir(parents=True, exist_ok=True)
    settings = {"bootstrap.servers": kafka, "group.id": "kafka-to-spark"}
    options = BatchOptions(bounds=Bounds(records=records), until_end=until_end)
    jars = (*(spark_kafka() if ranges else ()), *(spark_delta() if into is delta else ()))
    in_spark: dict[str, Any] = {"tables": {"pages": PAGES}, "where": place(jars=jars)}
    topology, store = Topology("kafka-to-spark"), InSqlite(folder / "batches.db")

    def source(spout: Any) -> Any:
        return batches(topology, "sales", spout, store=store, max_batches=2, interval_s=1.0)

    if ranges:
        rows = source(KafkaRanges(settings, topics=[topic], options=options))
        in_spark["reads"] = KafkaRows(kafka)
        letters = rows.apply(spark(dead_from_kafka, out=DeadSale, **in_spark))
        sales, step = rows, spark(ranked_from_kafka, **in_spark)
    else:
        spout = KafkaTransactional(
            settings, topics=[topic], translate=message, emits=Message, options=options
        )
        rows = source(spout)
        letters = rows.flat_map(bury)
        sales, step = (
            rows.shuffle(parallelism=2).flat_map(parse).map(enrich),
            spark(ranked, **in_spark),
        )
    sales.apply(step.write(into(folder / "table"))).named("spark")
    to_kafka = KafkaBolt({"bootstrap.servers": kafka}, dead(topic), key="place")
    letters.records("dead-letters").shuffle().bolt("to-kafka", to_kafka)
    return topology


def place_of(on: str) -> Callable[..., Any]:
    """What makes the place where Spark runs: `cluster`, the master of a cluster, the address of a
    server, or nothing."""
    if on == "cluster":
        return partial(RayDPSpark, "sales")
    if on.startswith("sc:"):
        return lambda **_: SparkConnect(on)  # which has its own jars
    return partial(SparkCluster, on) if on else LocalSpark


topology = pipeline(
    place=place_of(os.environ.get("SPARK_ON", "")),
    ranges=os.environ.get("SPARK_READS") == "ranges",
    into=delta if os.environ.get("SPARK_INTO") == "delta" else table,
)
