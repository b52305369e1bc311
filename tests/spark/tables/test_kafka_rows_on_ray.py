"""Ranges of a real Kafka, read by Spark on Ray while workers are killed: each record once."""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.dataset
import pytest

from sunshower import Topology
from sunshower.dev.kafka import Kafka
from sunshower.kafka.exactly_once.batch_spouts import BatchOptions, KafkaRanges
from sunshower.runtime.plan import Layout
from sunshower.spark_integration.sessions.spark_port import BatchInfo
from sunshower.spark_integration.steps import spark
from sunshower.spark_integration.tables.kafka_rows import KafkaRows
from sunshower.spark_integration.tables.tables import batches_in, table
from sunshower.trident import InSqlite, batches
from sunshower.trident.spouts.bounds import Bounds
from tests.kafka.topics import fill, new_topic, read_all
from tests.spark.conftest import LOCAL, jars, require_spark
from tests.spark.processes import java_left, java_processes

if TYPE_CHECKING:
    from sunshower.actors.cluster import RayCluster


@dataclass(frozen=True)
class AsRead:
    """A transform that writes a file for each job that begins."""

    began: Path

    def __call__(self, records: Any, batch: BatchInfo) -> Any:
        (self.began / f"{batch.id}-{batch.attempt}").touch()
        return records.selectExpr("partition", "offset", "string(value) number")


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.timeout(600)  # two sessions start, on a busy machine one by one
def test_each_record_is_in_the_table_once_when_workers_are_killed(
    ray_cluster: RayCluster, kafka: Kafka, tmp_path: Path
) -> None:
    require_spark()
    if not (files := jars()):
        pytest.skip("no jars of Spark for Kafka here")
    topic, before = new_topic(kafka.bootstrap, 3), java_processes()
    for partition in range(2):  # the third partition stays empty
        fill(kafka.bootstrap, topic, [b"%d" % number for number in range(700)], partition)
    began, folder = tmp_path / "began", tmp_path / "table"
    began.mkdir()
    settings = {"bootstrap.servers": kafka.bootstrap, "group.id": uuid.uuid4().hex}
    options = BatchOptions(bounds=Bounds(records=100), until_end=True)
    place, reads = replace(LOCAL, jars=files), KafkaRows(kafka.bootstrap)
    topology = Topology("ranges", message_timeout_s=300)
    ranges = KafkaRanges(settings, topics=[topic], options=options)
    store, step = InSqlite(tmp_path / "store.db"), spark(AsRead(began), reads=reads, where=place)
    read = batches(topology, "in", ranges, parallelism=2, store=store, max_batches=2)
    read.apply(step.write(table(folder))).named("spark")
    run = ray_cluster.submit(topology.graph(), Layout.PACK)
    try:
        of_spark, of_ranges = run.plan.tasks_of("spark")[0], run.plan.tasks_of("in")[1]
        assert of_spark.worker != of_ranges.worker
        waiting, end_s = [(of_spark, 2), (of_ranges, 4)], time.monotonic() + 500
        while time.monotonic() < end_s and not run.wait(0.02):
            if waiting and any(began.glob(f"{waiting[0][1]}-*")):  # that job is running
                run.kill_worker(waiting.pop(0)[0].worker)
        assert not waiting, run.snapshot()
        assert run.finished(), run.snapshot()
        assert run.snapshot().restarts == 2
    finally:
        run.stop()
    written = pyarrow.dataset.dataset(folder, partitioning="hive").to_table()
    rows = zip(
        *(written[name].to_pylist() for name in ("partition", "offset", "number")), strict=True
    )
    plain = [
        (message.partition(), message.offset(), (message.value() or b"").decode())
        for message in read_all(kafka.bootstrap, topic)
    ]
    assert sorted(rows) == sorted(plain)
    txids = [batch.txid for batch in batches_in(folder)]
    assert txids == [*range(1, len(txids) + 1)]
    assert len([*began.iterdir()]) > len(txids), "no job was started again"
    assert java_left(before) == []
