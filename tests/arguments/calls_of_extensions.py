"""Valid calls of Kafka, the connectors, Spark, and experiments."""

from __future__ import annotations

from dataclasses import fields
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
    Layout,
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
from tests.arguments.calls import TASKS, ZOOKEEPER, defaults
from tests.arguments.helpers import Calls, Store, first, lines, nothing, on
from tests.kafka import sale_pb2
from tests.topologies.examples import Word

BROKER = {"bootstrap.servers": "b:1", "group.id": "g"}
READ: dict[str, Any] = {"settings": BROKER, "topics": ["a"], "options": None, "deployment": None}
DECODED: dict[str, Any] = {"value": None, "key": None, "translate": None, "emits": None}
SENT: dict[str, Any] = {"settings": BROKER, "topic": "t", "value": None, "key": None}
SENT |= {"headers": None, "partition": None}
RECORD = {"record_type": None}

KAFKA: Calls = {
    "KafkaSpout": (kafka.KafkaSpout, {**READ, **DECODED, "fields": ()}),
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
    "KafkaOptions": (kafka.KafkaOptions, defaults(kafka.KafkaOptions)),
    "BatchOptions": (kafka.BatchOptions, defaults(kafka.BatchOptions)),
    "StartTime": (kafka.StartTime, {"timestamp_ms": 1}),
    "KafkaOpaque": (kafka.KafkaOpaque, {**READ, **DECODED}),
    "KafkaTransactional": (kafka.KafkaTransactional, {**READ, **DECODED}),
    "KafkaRanges": (kafka.KafkaRanges, READ),
    "Text": (kafka.Text, {"encoding": "utf-8"}),
    "Json": (kafka.Json, RECORD),
    "MessagePack": (kafka.MessagePack, RECORD),
    "Avro": (kafka.Avro, {"registry": {"url": "http://x"}, **RECORD}),
    "Protobuf": (kafka.Protobuf, {"message": sale_pb2.Sale, "framed": False, **RECORD}),
    "KafkaBolt": (kafka.KafkaBolt, SENT),
    "KafkaBolt.dead_letters": (
        kafka.KafkaBolt.dead_letters,
        {"settings": BROKER, "topic": "t"},
    ),
    "TransactionalKafkaBolt": (
        kafka.TransactionalKafkaBolt,
        {**SENT, "transactional_id": "x"},
    ),
    "SoleWriterBolt": (kafka.SoleWriterBolt, {**SENT, "id": "word", "memory": 5}),
    "SoleWriterBolt of lines": (
        lambda **named: lines().shuffle().bolt("x", kafka.SoleWriterBolt(BROKER, "t", **named)),
        {"id": "word"},
    ),
    "Producer": (kafka.Producer, {"settings": BROKER}),
    "deduplicate": (
        kafka.deduplicate,
        {"key": "word", "bolt": Store(), "memory": 5, "store": None, "path": "/d"},
    ),
    "OffsetsWithResults": (kafka.OffsetsWithResults, {"place": "x.db", "id": "x"}),
    "OffsetsWithResults.bolt": (
        on(lambda: kafka.OffsetsWithResults("x.db", "x"), "bolt"),
        {"write": nothing, "setup": ""},
    ),
    "SqliteOffsets": (kafka.SqliteOffsets, {"file": "x.db", "id": "x"}),
    "StormOffsets": (
        kafka.StormOffsets,
        {"root": "/r", "id": "x", "wildcard": False, **ZOOKEEPER},
    ),
    "PlainOffsets": (kafka.PlainOffsets, {"group": "x", **ZOOKEEPER}),
    "ByZooKeeperGroup": (
        kafka.ByZooKeeperGroup,
        {"group": "x", "rule": kafka.by_range_of_threads, "streams": 1, **ZOOKEEPER},
    ),
    "ZooKeeperBrokers": (
        kafka.ZooKeeperBrokers,
        {"root": "", "listener": "PLAINTEXT", **ZOOKEEPER},
    ),
}

CONNECTORS: Calls = {
    "HttpSink": (
        HttpSink,
        {
            "url": "http://h/x",
            "value": None,
            "id": None,
            "headers": None,
            "records_max": 1,
            "connections": 1,
            "timeout_s": 1.0,
        },
    ),
    "HttpSource": (
        HttpSource,
        {
            "port": 80,
            "type": Word,
            "path": "/",
            "host": "127.0.0.1",
            "token": None,
            "pending_max": 5,
            "body_bytes_max": 5,
        },
    ),
    "ObjectBatches": (
        ObjectBatches,
        {
            "place": "folder",
            "type": Word,
            "bounds": None,
            "shares": 8,
            "ends": False,
            "unreadable": None,
        },
    ),
    "ObjectFiles": (ObjectFiles, {"place": "folder", "format": "jsonl"}),
    "PostgresTable": (
        PostgresTable,
        {"dsn": "postgresql://h/d", "table": "t", "key": "word", "columns": None, "version": None},
    ),
}

STEP: dict[str, Any] = {"out": None, "tables": None, "where": None, "timeout_s": 5.0, "reads": None}
SESSION: dict[str, Any] = {"cores": 1, "memory": "1g", "in_flight": 1, "settings": {}, "jars": ()}
SPARK: Calls = {
    "spark": (sparks.spark, {"transform": nothing, "state": None, **STEP}),
    "spark_sql": (sparks.spark_sql, {"query": "select 1", **STEP}),
    "spark.write": (on(lambda: sparks.spark(nothing), "write"), {"writer": sparks.parquet("x")}),
    "SparkBatchBolt": (
        sparks.SparkBatchBolt,
        {
            "step": sparks.spark(nothing),
            "rows_max": 5,
            "wait_s": 1.0,
            "batches_max": 1,
            "edges_max": 4,
        },
    ),
    "LocalSpark": (sparks.LocalSpark, SESSION),
    "RayDPSpark": (
        sparks.RayDPSpark,
        {"name": "s", "executors": 1, "driver_memory": "1g", "idle_s": 5.0, **SESSION},
    ),
    "parquet": (sparks.parquet, {"folder": "x"}),
    "saved_as": (sparks.saved_as, {"format": "jdbc", "url": "x"}),
    "table": (sparks.table, {"folder": "x"}),
    "batches_in": (sparks.batches_in, {"folder": "x"}),
    "delta": (sparks.delta, {"path": "x", "keys": ()}),
    "iceberg": (sparks.iceberg, {"table": "a.b.c", "keys": ()}),
    "spark_state": (sparks.spark_state, {"folder": "x", "of": Word}),
    "KafkaRows": (sparks.KafkaRows, {"servers": "h:1", "options": {}}),
    "Digits": (sparks.Digits, {"precision": 12, "scale": 2}),
}

LASTING: dict[str, Any] = {"target": worker(0), "for_s": 1.0}
RATES = dict.fromkeys(("drop", "forget", "repeat", "corrupt", "delay", "delay_s"), 0.1)
EXPERIMENT: dict[str, Any] = {
    **{one.name: one.default for one in fields(Experiment)},
    "name": "e",
    "topology": nothing,
    "plan": nothing,
    "checkers": [AtLeastOnce()],
    "parameters": {},
    "sweep": {},
}
EXPERIMENTS: Calls = {
    "Experiment": (Experiment, EXPERIMENT),
    "Step": (Step, {"at_s": 1.0, "fault": kill(anybody()), "stream": 0}),
    "at": (lambda **named: [*at(**named)], {"seconds": 1.0, "fault": kill(anybody())}),
    "every": (
        lambda fault, **named: next(every(named.pop("seconds"), fault, **named)),
        {"seconds": 1.0, "fault": kill(anybody()), "start": None},
    ),
    "random": (
        lambda **named: next(random(**named)),
        {"mean_s": 1.0, "faults": [kill(anybody())], "generator": np.random.default_rng(0)},
    ),
    "until": (lambda **named: [*until(**named)], {"end_s": 1.0, "plan": []}),
    "phases": (first(phases, "phase"), {"phase": (1, [])}),
    "quiet": (quiet, {"seconds": 1.0}),
    "kill": (kill, {"target": anybody()}),
    "pause": (pause, LASTING),
    "isolate": (isolate, LASTING),
    "slow": (slow, {**LASTING, "seconds": 1.0}),
    "errors": (errors, {"component": "x", "for_s": 1.0, "probability": 1.0, "where": None}),
    "away": (away, {"component": "x", "for_s": 1.0, "index": None}),
    "lossy": (lossy, {"source": "a", "target": "b", "for_s": 1.0, **RATES}),
    "cut": (cut, {"source": "a", "target": "b", "for_s": 1.0}),
    "outage": (outage, {"what": "x", "down": nothing, "up": nothing, "for_s": 1.0}),
    "rebalance": (rebalance, {"workers": None, "layout": Layout.PACK, "wait_s": None}),
    "task": (task, {"component": "x", "index": 0}),
    "component": (component, {"component": "x"}),
    "acker": (acker, {"index": None}),
    "spout": (spout, {"component": None}),
    "worker": (worker, {"worker": None}),
    "node": (node, {"node": None}),
    "numbers": (numbers, {"total": 5, "rate": None, "keys": 16}),
    "relayed": (
        relayed,
        {"total": 5, "rate": None, "parallelism": TASKS["parallelism"], "name": "r"},
    ),
    "AtLeastOnce": (AtLeastOnce, {"written": None}),
    "ExactlyOnce": (ExactlyOnce, {"model": None}),
    "NothingCharged": (NothingCharged, {"poison": frozenset(), "letters_only": False}),
    "Liveness": (Liveness, {"within_s": 1.0}),
    "Recovers": (Recovers, {"within_s": 1.0}),
    "BoundedPending": (BoundedPending, {"limit": None}),
}
