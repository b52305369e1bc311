"""Lets Spark read ranges of Kafka offsets itself, so that the records never pass through Python.

    KafkaRanges ──(topic, partition, first, end)──▶ a batch ──KafkaRows──▶ DataFrame of its records

The columns are those of Spark's Kafka source: key, value, topic, partition, offset, timestamp …
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from sunshower.arguments import check_all
from sunshower.errors import ConfigError, RecordMismatch, SparkMissing
from sunshower.secret import protected, revealed
from sunshower.spark_integration.job import is_remote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_RANGE = pa.schema({"topic": "string", "partition": "int64", "first": "int64", "end": "int64"})
_RESERVED = {  # the ranges define these; other values would lose records without an error
    *("subscribe", "subscribepattern", "assign", "startingoffsets", "endingoffsets"),
    *("startingtimestamp", "endingtimestamp", "startingoffsetsbytimestamp"),
    *("endingoffsetsbytimestamp", "failondataloss", "kafka.bootstrap.servers"),
}
_CLIENT_OPTIONS = {
    "kafka.isolation.level": "read_committed",
    # After each poll Spark asks for the bounds of the partition, which discards what was
    # prefetched. So one poll returns a whole fetch, and a fetch is large.
    "kafka.max.poll.records": "200000",
    "kafka.max.partition.fetch.bytes": str(16 << 20),
}
_NO_RECORDS = (  # the columns of Spark's Kafka source, for a batch without ranges
    "cast(null as binary) key, cast(null as binary) value, '' topic, 0 partition, 0L offset, "
    "timestamp'1970-01-01' timestamp, 0 timestampType"
)
_HEADERS = ", cast(null as array<struct<key: string, value: binary>>) headers"


@dataclass(frozen=True)
class KafkaRows:
    """`spark(…, reads=KafkaRows("host:9092"))`: the transform gets the records of its ranges.

    `options` are further options of Spark's source: `minPartitions` for more tasks than partitions,
    `includeHeaders`, and client settings with the prefix `kafka.`, as `kafka.security.protocol`.
    Only committed records are read, as KafkaRanges counts them. Spark needs jars:
    `LocalSpark(jars=spark_kafka())`. Raises ConfigError for a reserved option; the job raises
    RangeGone for records that Kafka has removed.
    """

    servers: str
    options: Mapping[str, str] = field(default_factory=dict)
    _id: str = field(
        default_factory=lambda: uuid.uuid4().hex, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        check_all(self, {}, "KafkaRows: ")
        for name in self.options:
            if name.lower() in _RESERVED:
                raise ConfigError(
                    f"KafkaRows: {name} is not to be set, the ranges say what is read, and all of "
                    "it must be there"
                )
        object.__setattr__(self, "options", protected(self.options))

    def check(self, columns: pa.Schema) -> None:
        """Raise RecordMismatch for an input that has no ranges of offsets."""
        missing = [
            column.name
            for column in _RANGE
            if column.name not in columns.names or column not in [*columns]
        ]
        if missing:
            raise RecordMismatch(
                f"KafkaRows reads ranges of offsets, and the input has no {missing[0]} of type "
                f"{_RANGE.field(missing[0]).type}; its columns are: {', '.join(columns.names)}. "
                "KafkaRanges(…) emits them"
            )

    def __call__(self, session: SparkSession, table: pa.Table) -> DataFrame:
        """The records of a table of ranges. Raises SparkMissing without the jars."""
        from pyspark.errors import AnalysisException
        from pyspark.sql import DataFrame

        ranges = table.to_pylist()
        group = self._group(ranges)
        try:
            frames = [self._read(session, group | options) for options in reads(ranges)]
            for frame in frames[:1]:
                frame.columns  # noqa: B018  # Connect looks for the source only here
        except AnalysisException as error:
            if not re.search("find (the )?data source: `?kafka", str(error)):
                raise
            scala = "2.12" if session.version.startswith("3.") else "2.13"
            package = f"org.apache.spark:spark-sql-kafka-0-10_{scala}:{session.version}"
            remedy = (
                f"start the server with --packages {package}"
                if is_remote(session)
                else "give its place jars=spark_kafka(), from sunshower.dev.jars, or the setting "
                f"spark.jars.packages={package}"
            )
            raise SparkMissing(f"Spark has no way to Kafka: {remedy}") from error
        return reduce(DataFrame.unionAll, frames) if frames else self._no_records(session)

    def _group(self, ranges: Iterable[Mapping[str, Any]]) -> dict[str, str]:
        """The option for the group id of Spark's clients, which join no group and commit nothing.
        By this id Spark finds the clients of former batches, with what they have fetched beyond
        their ranges. So it is the same for all batches, and another one for topics that were
        created again. Ranges without the ids of their topics get new clients."""
        topics = sorted({offsets.get("topic_id", "") for offsets in ranges})
        if not all(topics):
            return {}
        names = {name.lower(): text for name, text in self.options.items()}
        clients = uuid.uuid5(uuid.UUID(self._id), " ".join(topics))
        return {"kafka.group.id": f"{names.get('groupidprefix', 'spark-kafka-relation')}-{clients}"}

    def _read(self, session: SparkSession, read: Mapping[str, str]) -> DataFrame:
        ours = {"kafka.bootstrap.servers": self.servers, "failOnDataLoss": "true"}
        options = {**_CLIENT_OPTIONS, **read, **revealed(self.options), **ours}
        return session.read.format("kafka").options(**options).load()

    def _no_records(self, session: SparkSession) -> DataFrame:
        with_headers = str(self.options.get("includeHeaders", "")).lower() == "true"
        columns = _NO_RECORDS + _HEADERS if with_headers else _NO_RECORDS
        return session.sql(f"select {columns} where false")


def reads(ranges: Iterable[Mapping[str, Any]]) -> list[dict[str, str]]:
    """Options of Spark's source for each read that is needed. A read takes one range per partition,
    so several ranges of a partition need several reads."""
    read_ranges: list[dict[tuple[str, int], Mapping[str, Any]]] = []
    for offsets in ranges:
        place = offsets["topic"], offsets["partition"]
        free = next((read for read in read_ranges if place not in read), None)
        if free is None:
            read_ranges.append(free := {})
        free[place] = offsets
    return [_options(read.values()) for read in read_ranges]


def _options(ranges: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    first: dict[str, dict[str, int]] = {}
    end: dict[str, dict[str, int]] = {}
    for offsets in ranges:
        first.setdefault(offsets["topic"], {})[str(offsets["partition"])] = offsets["first"]
        end.setdefault(offsets["topic"], {})[str(offsets["partition"])] = offsets["end"]
    partitions = {topic: [*map(int, numbers)] for topic, numbers in first.items()}
    return {
        "assign": json.dumps(partitions),
        "startingOffsets": json.dumps(first),
        "endingOffsets": json.dumps(end),
    }
