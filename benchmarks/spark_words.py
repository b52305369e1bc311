"""Spark Structured Streaming counts the words of files, exactly once.

The counts in SQLite are stored with the number of their batch; the checkpoint has the next number.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from benchmarks import machine
from benchmarks.measure import Outcome
from benchmarks.processes import Starter
from sunshower.spark_integration.sessions.environment import SETTINGS, prepare

CORES = 2


@dataclass(frozen=True)
class Setup:
    """A configuration of Spark. `files`: in a batch. `in_python`: Python splits the lines."""

    files: int
    in_python: bool = False

    @property
    def system(self) -> str:
        return "spark-python" if self.in_python else "spark"

    @property
    def name(self) -> str:
        return f"local[{CORES}], {self.files} files a batch"

    def count_words(self, lines: Path, folder: Path, starter: Starter) -> Outcome:
        """Count the words of the folder `lines`, after a warm-up run of the same query. The time is
        that from the begin of the first batch to the end of the query."""
        spark = _session()
        pids = [spark.sparkContext._gateway.proc.pid, os.getpid()]
        self._run(spark, lines, folder / "warm")
        starter.wait()
        before_s = machine.cpu_s(pids)
        begun_s, ended_s = self._run(spark, lines, folder / "measured")
        after_s = machine.cpu_s(pids)
        with closing(sqlite3.connect(folder / "measured" / "counts.db")) as db:
            (done,) = db.execute("SELECT sum(count) FROM counts").fetchone()
        spark.stop()
        cpu_s = None if before_s is None or after_s is None else after_s - before_s
        return Outcome(begun_s, ended_s, done, cpu_s)

    def _run(self, spark: Any, lines: Path, folder: Path) -> tuple[float, float]:
        from pyspark.sql.functions import col, explode, split

        folder.mkdir()
        stream = spark.readStream.option("maxFilesPerTrigger", self.files).text(str(lines))
        words = (
            stream.mapInArrow(_split, "word string")
            if self.in_python
            else stream.select(explode(split(col("value"), " ")).alias("word"))
        )
        query = (
            words.groupBy("word")
            .count()
            .writeStream.outputMode("update")
            .option("checkpointLocation", str(folder / "checkpoint"))
            .trigger(availableNow=True)
            .foreachBatch(_writer(folder / "counts.db"))
            .start()
        )
        query.awaitTermination()
        ended_s = time.monotonic()
        first = datetime.fromisoformat(query.recentProgress[0]["timestamp"])
        return ended_s - (datetime.now(UTC) - first).total_seconds(), ended_s


def _split(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        words = [word for line in batch.column(0).to_pylist() for word in line.split()]
        yield pa.record_batch({"word": pa.array(words, pa.string())})


def _session() -> Any:
    prepare("pyspark")
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(f"local[{CORES}]").appName("words")
    ours = {"spark.driver.memory": "2g", "spark.sql.shuffle.partitions": str(CORES)}
    for name, value in {**SETTINGS, **ours}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


def _writer(file: Path) -> Callable[[Any, int], None]:
    """Writes the changes of a batch exactly once: in one transaction with its number."""
    with closing(sqlite3.connect(file)) as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("CREATE TABLE counts (word TEXT PRIMARY KEY, count INTEGER) WITHOUT ROWID")
        db.execute("CREATE TABLE last (batch INTEGER)")

    def write(changed: Any, batch: int) -> None:
        rows = changed.collect()
        with closing(sqlite3.connect(file)) as db, db:
            if db.execute("SELECT 1 FROM last WHERE batch >= ?", (batch,)).fetchone():
                return
            sql = "INSERT INTO counts VALUES (?, ?) ON CONFLICT DO UPDATE SET count=excluded.count"
            db.executemany(sql, rows)
            db.execute("DELETE FROM last")
            db.execute("INSERT INTO last VALUES (?)", (batch,))

    return write
