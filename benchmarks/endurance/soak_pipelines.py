"""The pipelines of the long run that read its topic: to a table by Spark, and to PostgreSQL.

topic ──▶ batches ──▶ Spark ──▶ table of committed batches     exactly once, progress in ZooKeeper
topic ──▶ keyed totals ──▶ PostgreSQL, and a row a number      at least once
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet

from benchmarks.outage_scenarios.postgres import PostgresSink, connect
from sunshower import Number, Retry, Topology
from sunshower.kafka import BatchOptions, KafkaTransactional, Received
from sunshower.kafka.partitions.topic_ends import messages
from sunshower.kafka.spout import KafkaSpout
from sunshower.spark_integration import LocalSpark, spark, table
from sunshower.state import PostgresState
from sunshower.topologies.streams import Stream
from sunshower.trident import Bounds, InZooKeeper, batches, count

READER = "to_postgres"  # a spout, and its group in Kafka
_KEYS = 100
_BATCH_ROWS, _BATCH_S = 1_000, 1.0
_TABLE = "CREATE TABLE numbers (n bigint NOT NULL)"


class MessageRow(NamedTuple):
    """A message as a row."""

    partition: int
    offset: int
    value: int


class Keyed(NamedTuple):
    """A number of the topic, and its group."""

    key: int
    value: int


@dataclass(frozen=True)
class PipelineEndpoints:
    """Where the pipelines read and write."""

    bootstrap: str
    topic: str
    zookeeper: str
    folder: Path  # of the table
    dsn: str

    @property
    def totals(self) -> PostgresState:
        """The keyed totals."""
        return PostgresState(self.dsn, name="totals")

    @property
    def table(self) -> Path:
        """The folder of committed batches."""
        return self.folder / "table"


def message_row(received: Received) -> MessageRow:
    return MessageRow(received.partition, received.offset, int(received.value))


def add_double(rows: Any, _: Any) -> Any:
    """Add a column with twice the value, in Spark."""
    return rows.selectExpr("*", "value * 2 twice")


def parse(record: Any) -> Iterator[Number]:
    yield Number(int(record.value))


def with_key(number: Number) -> Iterator[Keyed]:
    yield Keyed(number.value % _KEYS, number.value)


def declare_pipelines(
    topology: Topology, endpoints: PipelineEndpoints, retry: Retry
) -> Stream[Any]:
    """Add both pipelines to a topology. Returns the spout that has dead letters."""
    settings = {"bootstrap.servers": endpoints.bootstrap}
    source = KafkaTransactional(
        {**settings, "group.id": "spark"},
        topics=[endpoints.topic],
        translate=message_row,
        emits=MessageRow,
        options=BatchOptions(bounds=Bounds(records=_BATCH_ROWS)),
    )
    store = InZooKeeper(endpoints.zookeeper)
    rows = batches(topology, "messages", source, store=store, interval_s=_BATCH_S)
    step = spark(add_double, where=LocalSpark(cores=1)).write(table(endpoints.table))
    rows.apply(step).named("spark")
    spout = KafkaSpout({**settings, "group.id": READER}, topics=[endpoints.topic])
    read = topology.spout(READER, spout, 2, retry=retry)
    numbers = read.shuffle().bolt("parsed", parse)
    numbers.shuffle().bolt("keyed", with_key).group_by("key").aggregate(
        count(), state=endpoints.totals
    )
    numbers.shuffle().bolt("rows", PostgresSink(endpoints.dsn))
    return read


def create_table(dsn: str) -> None:
    """Create the table that the rows are inserted into."""
    with connect(dsn) as db:
        db.execute(_TABLE)


def committed_rows(endpoints: PipelineEndpoints) -> int:
    """How many rows the table of Spark has."""
    files = endpoints.table.glob("txid=*/*.parquet")
    return sum(pyarrow.parquet.read_metadata(file).num_rows for file in files)


def read_topic(endpoints: PipelineEndpoints) -> list[MessageRow]:
    """All messages of the topic."""
    all_messages = messages({"bootstrap.servers": endpoints.bootstrap}, endpoints.topic)
    return [
        MessageRow(message.partition(), message.offset(), int(message.value()))
        for message in all_messages
    ]


def compare_rows(endpoints: PipelineEndpoints, wanted: Iterable[MessageRow]) -> dict[str, int]:
    """How many rows of Spark's table are missing, and how many are duplicates or wrong; how many
    numbers are missing in PostgreSQL; how many of its totals are below those of a plain program."""
    expected = Counter((*row, 2 * row.value) for row in wanted)
    written: Counter[tuple[int, ...]] = Counter()
    for file in endpoints.table.glob("txid=*/*.parquet"):
        columns = pyarrow.parquet.read_table(file).select([*MessageRow._fields, "twice"])
        written.update(tuple(row.values()) for row in columns.to_pylist())
    with connect(endpoints.dsn) as db:
        rows = {number for (number,) in db.execute("SELECT n FROM numbers")}
    totals = {int(key): times for key, times in endpoints.totals.items()}
    plain = Counter(value % _KEYS for _, _, value, _ in expected.elements())
    return {
        "rows_of_spark": written.total(),
        "missing_rows": (expected - written).total(),
        "wrong_rows": (written - expected).total(),
        "lost_rows": len({value for _, _, value, _ in expected} - rows),
        "low_totals": sum(totals.get(key, 0) < times for key, times in plain.items()),
    }
