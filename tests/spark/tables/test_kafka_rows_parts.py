"""The options for Spark's Kafka source, and which declarations are refused, without Spark."""

from __future__ import annotations

import json
import pickle
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from sunshower.arrow.record_columns import RecordColumns
from sunshower.errors import ConfigError, RangeGone, RecordMismatch, SparkMissing
from sunshower.kafka.exactly_once.batch_spouts import OffsetRange
from sunshower.records import Schema
from sunshower.spark_integration.job import spark_error
from sunshower.spark_integration.sessions.environment import with_jars
from sunshower.spark_integration.steps import spark
from sunshower.spark_integration.tables.kafka_rows import KafkaRows, reads

SOME = [OffsetRange("a", 0, 3, 9), OffsetRange("b", 4, 0, 1), OffsetRange("a", 2, 5, 6)]


def options(*ranges: OffsetRange) -> list[dict[str, Any]]:
    records = reads(range_._asdict() for range_ in ranges)
    return [{name: json.loads(value) for name, value in record.items()} for record in records]


def test_all_partitions_of_a_batch_are_one_read() -> None:
    assert options(*SOME) == [
        {
            "assign": {"a": [0, 2], "b": [4]},
            "startingOffsets": {"a": {"0": 3, "2": 5}, "b": {"4": 0}},
            "endingOffsets": {"a": {"0": 9, "2": 6}, "b": {"4": 1}},
        }
    ]
    assert options() == []


def test_several_ranges_of_a_partition_are_separate_reads() -> None:
    records = options(*SOME, OffsetRange("a", 0, 9, 12), OffsetRange("a", 0, 3, 9))
    assert [record["startingOffsets"]["a"]["0"] for record in records] == [3, 9, 3]
    assert [record["endingOffsets"]["a"]["0"] for record in records] == [9, 12, 9]


class Reader:
    """A session that keeps the options of each read."""

    def __init__(self) -> None:
        self.read = self
        self.reads: list[dict[str, str]] = []

    def format(self, name: str) -> Reader:
        return self

    def options(self, **options: str) -> Reader:
        self.reads.append(options)
        return self

    def load(self) -> Any:
        return SimpleNamespace(columns=[])


def groups(*reads_and_ids: tuple[KafkaRows, str]) -> list[str | None]:
    """The group id of each read of a range of a topic with this id."""
    session: Any = Reader()
    columns = RecordColumns.of(OffsetRange)
    for rows, topic_id in reads_and_ids:
        for first in (0, 5):
            rows(session, columns.table([OffsetRange("a", 0, first, first + 5, topic_id)]))
    return [options.get("kafka.group.id") for options in session.reads]


def test_all_batches_of_a_topic_have_the_same_clients() -> None:
    rows, other = KafkaRows("nowhere:1"), KafkaRows("nowhere:1")
    sent = pickle.loads(pickle.dumps(rows))
    first, *again, second, second_again = groups((rows, "x"), (sent, "x"), (rows, "y"))
    assert again == [first] * 3
    assert second == second_again != first
    assert groups((other, "x"))[0] not in {first, second}, "its options may differ"
    assert other == rows, "steps that read the same share one read"
    assert groups((rows, "")) == [None, None]


def test_the_group_id_has_the_prefix_that_is_set_or_is_the_one_that_is_set() -> None:
    (name, _) = groups((KafkaRows("nowhere:1", {"groupIdPrefix": "mine"}), "x"))
    assert name is not None
    assert name.startswith("mine-")
    assert groups((KafkaRows("nowhere:1", {"kafka.group.id": "g"}), "x")) == ["g", "g"]


def nothing(df: Any, batch: Any) -> Any:
    return df


class Sale(NamedTuple):
    topic: str
    partition: float


def test_an_input_that_is_no_range_is_refused_where_it_is_declared() -> None:
    step = spark(nothing, reads=KafkaRows("nowhere:1"))
    with pytest.raises(RecordMismatch, match="no partition of type int64; its columns are: topic,"):
        step.operator([Schema.of(Sale)])
    step.operator([Schema.of(OffsetRange)])


@pytest.mark.parametrize("name", ["failOnDataLoss", "subscribe", "STARTINGOFFSETS"])
def test_options_that_the_ranges_determine_cannot_be_set(name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name} is not to be set"):
        KafkaRows("nowhere:1", {name: "x"})


GONE_WITH_SPARK_3 = (
    "Job aborted: Lost task 0.0 (executor driver): java.lang.IllegalStateException: Cannot "
    "fetch offset 3 (GroupId: g, TopicPartition: a-0). \nSome data may have been lost because "
    "they are not available in Kafka any more\n\tat org.apache.spark.X.y(X.scala:1)"
)
GONE_WITH_SPARK_4 = (
    "Fetch position FetchPosition{offset=3, offsetEpoch=Optional.empty, "
    "currentLeader=LeaderAndEpoch{leader=Optional[host:9092 (id: 1 rack: null)], epoch=0}} is out "
    "of range for partition a-0\n\tat org.apache.kafka.X.y(X.java:1)"
)


@pytest.mark.parametrize(
    ("message", "offset"),
    [
        (GONE_WITH_SPARK_3, "offset 3 (GroupId: g, TopicPartition: a-0)"),
        (GONE_WITH_SPARK_4, "offset 3 of a-0"),
    ],
)
def test_offsets_that_are_gone_have_an_error_of_their_own(message: str, offset: str) -> None:
    error = spark_error(RuntimeError(message), "totals", True)
    assert isinstance(error, RangeGone)
    assert f"Cannot fetch {offset}. Retention" in str(error)


def test_a_missing_jar_is_reported_before_spark_starts() -> None:
    with pytest.raises(SparkMissing, match=r"no file /no/such\.jar, which jars=\(…\) names"):
        with_jars(["/no/such.jar"])
    assert with_jars([]) == {}
    assert with_jars([__file__, __file__]) == {"spark.jars": f"{__file__},{__file__}"}
