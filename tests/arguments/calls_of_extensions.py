"""Valid calls of Kafka, the connectors, Spark, and experiments."""

from __future__ import annotations

from typing import Any

import numpy as np

from sunshower import kafka
from sunshower import spark_integration as sparks
from sunshower.connectors import HttpSink, HttpSource, ObjectBatches, ObjectFiles, PostgresTable
from sunshower.experiments import (
    AtLeastOnce,
    BoundedPending,
    ExactlyOnce,
    Experiment,
    Liveness,
    NothingCharged,
    Recovers,
    Step,
    acker,
    anybody,
    at,
    away,
    component,
    cut,
    errors,
    every,
    isolate,
    kill,
    lossy,
    node,
    numbers,
    outage,
    pause,
    phases,
    quiet,
    random,
    rebalance,
    relayed,
    slow,
    spout,
    task,
    until,
    worker,
)
from sunshower.state import MemoryState
from tests.arguments.helpers import (
    VALUES,
    Calls,
    Store,
    first,
    functions,
    lines,
    methods,
    nothing,
    used,
    valid,
)
from tests.kafka import sale_pb2
from tests.topologies.examples import Word

BROKER = VALUES["settings"]
READ: dict[str, Any] = {"settings": BROKER, "topics": ["a"], "options": None, "deployment": None}
DECODED: dict[str, Any] = {"value": None, "key": None, "translate": None, "emits": None}


def _written(bolt: Any) -> Any:
    return lines().shuffle().bolt("x", bolt)


KAFKA: Calls = {
    "KafkaSpout": (kafka.KafkaSpout, {**READ, **DECODED, "fields": ()}),
    "KafkaOpaque": (kafka.KafkaOpaque, {**READ, **DECODED}),
    "KafkaTransactional": (kafka.KafkaTransactional, {**READ, **DECODED}),
    "KafkaRanges": (kafka.KafkaRanges, READ),
    "KafkaSpout of a pattern": (kafka.KafkaSpout, {"settings": BROKER, "pattern": "a.*"}),
    "KafkaSpout of partitions": (
        kafka.KafkaSpout,
        {"settings": BROKER, "partitions": [kafka.Partition("a", 0)]},
    ),
    "a topic": (lambda topic: kafka.KafkaSpout(BROKER, topics=[topic]), {"topic": "a"}),
    "Partition": (
        lambda **named: kafka.KafkaSpout(BROKER, partitions=[kafka.Partition(**named)]),
        {"topic": "a", "number": 0},
    ),
    **functions(kafka.KafkaOptions, kafka.BatchOptions, kafka.Text, kafka.Json, kafka.MessagePack),
    **functions(kafka.StartTime, timestamp_ms=1),
    **functions(kafka.Avro, registry={"url": "http://x"}),
    **functions(kafka.Protobuf, message=sale_pb2.Sale),
    **functions(kafka.KafkaBolt, kafka.KafkaBolt.dead_letters, kafka.Producer),
    **functions(kafka.TransactionalKafkaBolt, transactional_id="x"),
    **functions(kafka.KafkaMessages, transactional_id="x", state=MemoryState()),
    **functions(kafka.SoleWriterBolt, id="word"),
    "SoleWriterBolt of lines": (
        used(lambda **named: kafka.SoleWriterBolt(BROKER, "t", **named), _written),
        {"id": "word"},
    ),
    **functions(kafka.deduplicate, bolt=Store()),
    **functions(kafka.OffsetsWithResults, kafka.SqliteOffsets, kafka.StormOffsets),
    **methods(
        "OffsetsWithResults",
        lambda: kafka.OffsetsWithResults("x.db", "x"),
        bolt={"write": nothing},
    ),
    **functions(kafka.PlainOffsets, kafka.ByZooKeeperGroup, kafka.ZooKeeperBrokers),
}

CONNECTORS: Calls = {
    **functions(HttpSink, PostgresTable),
    **functions(HttpSource, port=80),
    **functions(ObjectBatches, ObjectFiles, place="folder"),
}

SPARK: Calls = {
    **functions(sparks.spark, transform=nothing),
    **functions(sparks.spark_sql, query="select 1"),
    **methods("spark", lambda: sparks.spark(nothing), write={"writer": sparks.parquet("x")}),
    **functions(sparks.SparkBatchBolt, step=sparks.spark(nothing)),
    **functions(sparks.LocalSpark, sparks.RayDPSpark, sparks.parquet, sparks.table),
    **functions(sparks.SparkCluster, master="spark://host:7077"),
    **functions(sparks.batches_in, sparks.delta),
    "saved_as": (sparks.saved_as, {"format": "jdbc", "url": "x"}),
    **functions(sparks.iceberg, table="a.b.c"),
    **functions(sparks.spark_state, of=Word),
    **functions(sparks.KafkaRows, servers="h:1"),
    **functions(sparks.Digits, precision=12, scale=2),
}

LASTING: dict[str, Any] = {"target": worker(0), "for_s": 1.0}
RATES = dict.fromkeys(("drop", "forget", "repeat", "corrupt", "delay", "delay_s"), 0.1)
KILL = kill(anybody())
EXPERIMENTS: Calls = {
    **functions(
        Experiment,
        name="e",
        topology=nothing,
        plan=nothing,
        checkers=[AtLeastOnce()],
        parameters={},
        sweep={},
    ),
    **functions(Step, at_s=1.0, fault=KILL),
    "at": valid(used(at, list), fault=KILL),
    "every": (
        lambda fault, **named: next(every(named.pop("seconds"), fault, **named)),
        {"seconds": 1.0, "fault": KILL, "start": None},
    ),
    "random": valid(
        used(random, next), mean_s=1.0, faults=[KILL], generator=np.random.default_rng(0)
    ),
    "until": valid(used(until, list), end_s=1.0, plan=[]),
    "phases": (first(phases, "phase"), {"phase": (1, [])}),
    **functions(quiet, errors, away, rebalance, acker, spout, worker, node, component),
    **functions(kill, target=anybody()),
    **functions(pause, isolate, slow, **LASTING),
    **functions(lossy, source="a", target="b", **RATES),
    **functions(cut, source="a", target="b"),
    **functions(outage, what="x", down=nothing, up=nothing),
    **functions(task, index=0),
    **functions(numbers, relayed, total=5),
    **functions(AtLeastOnce, ExactlyOnce, NothingCharged, Liveness, Recovers, BoundedPending),
}
