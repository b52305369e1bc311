"""Programs that publish batches: each row once, in order, with kills and outages (no Spark)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sunshower import Topology
from sunshower.clock import ManualClock
from sunshower.errors import ConfigError, SparkUnavailable
from sunshower.runtime.inline import run_inline
from sunshower.runtime.plan import Layout
from sunshower.simulation.cluster import SimCluster
from sunshower.spark_integration.bolt import SparkBatchBolt
from sunshower.spark_integration.sessions.spark_port import BatchInfo, SparkStep
from sunshower.spark_integration.tables.lake_table import delta
from sunshower.trident import InMemory, InSqlite, batches
from tests.spark.scripted import ScriptedPlace, ScriptedTicket
from tests.trident.rigs.group_rig import Hook, Numbers, OpaqueNumbers, Row
from tests.trident.rigs.programs import SETTINGS, kill_three

TOTAL = 40


@dataclass(frozen=True)
class FileLog:
    """A writer that publishes without Spark: an attempt is a file, the table is a file of lines.
    For each file `outage-N`, the store is unavailable once when batch N is published."""

    folder: Path

    @property
    def place(self) -> str:
        return str(self.folder)

    def __call__(self, result: pa.Table, batch: BatchInfo) -> None:
        file = self.folder / f"{batch.txid}-{batch.attempt:04}"
        file.write_text(" ".join(map(str, result["number"].to_pylist())))

    def publish(self, session: Any, batch: BatchInfo) -> None:
        assert batch.publish is not None
        table = self.folder / "table"
        lines = table.read_text().splitlines() if table.exists() else []
        for txid in range(len(lines) + 1, batch.publish.current):
            if (outage := self.folder / f"outage-{txid}").exists():
                outage.unlink()
                raise SparkUnavailable("the store is unavailable")
            lines.append(max(self.folder.glob(f"{txid}-*")).read_text())
        table.write_text("".join(f"{line}\n" for line in lines))


def same(rows: pa.Table, batch: BatchInfo) -> pa.Table:
    return rows


def program(spout: Any, log: FileLog, **options: Any) -> Topology:
    topology, store = Topology("numbers", **SETTINGS), options.pop("store", InMemory())
    read = batches(topology, "numbers", spout, store=store, **options)
    read.apply(ScriptedPlace().step(same, Row).write(log))
    return topology


def published(log: FileLog) -> list[int]:
    return sorted(int(number) for number in (log.folder / "table").read_text().split())


@pytest.mark.parametrize("seed", range(4))
def test_each_row_is_published_once_with_kills_and_outages(seed: int, tmp_path: Path) -> None:
    log = FileLog(tmp_path)
    for txid in (2, 5):
        (tmp_path / f"outage-{txid}").touch()
    spout = (OpaqueNumbers(TOTAL, 5, Hook()), Numbers(TOTAL, 5))[seed % 2]
    topology = program(spout, log, max_batches=1 + seed % 3, interval_s=0.2)
    layout = (Layout.ISOLATE, Layout.PACK)[seed // 2 % 2]
    run = SimCluster(seed, check=True).submit(topology.graph(), layout)
    kill_three(run, seed, lambda number: 0.3 + 0.17 * (number % 5))
    assert run.wait(3_000.0)
    run.stop()  # publishes the last batch
    assert published(log) == [*range(TOTAL)]
    assert not [*tmp_path.glob("outage-*")]


def test_batches_that_a_run_has_not_published_are_published_by_the_next_one(tmp_path: Path) -> None:
    log, store = FileLog(tmp_path), InSqlite(tmp_path / "batches.db")
    run_inline(program(Numbers(TOTAL, 5), log, store=store).graph(), clock=ManualClock())
    table = tmp_path / "table"
    table.write_text("".join(table.read_text().splitlines(keepends=True)[:-2]))
    assert published(log) != [*range(TOTAL)]
    run_inline(program(Numbers(TOTAL, 5), log, store=store).graph(), clock=ManualClock())
    assert published(log) == [*range(TOTAL)]


@dataclass
class SlowTicket(ScriptedTicket):
    looks: int = 0

    def done(self) -> bool:
        self.looks += 1
        return self.batch.publish is None or self.looks > 60


class SlowToPublish(ScriptedPlace):
    def submit(self, step: SparkStep, tables: Any, batch: BatchInfo) -> ScriptedTicket:
        return SlowTicket(step, tables, batch, ready=True)


class NotFarBehind(FileLog):
    def __call__(self, result: pa.Table, batch: BatchInfo) -> None:
        table = self.folder / "table"
        shown = len(table.read_text().splitlines()) if table.exists() else 0
        assert batch.txid is not None
        assert batch.txid - shown <= 4, "at most one batch waits to be shown, and three run"
        super().__call__(result, batch)


def test_batches_wait_for_a_table_that_is_slow_to_show_them(tmp_path: Path) -> None:
    log, topology = NotFarBehind(tmp_path), Topology("numbers", **SETTINGS)
    read = batches(topology, "numbers", Numbers(TOTAL, 2), store=InMemory(), max_batches=3)
    read.apply(SlowToPublish().step(same, Row).write(log))
    run = SimCluster(1).submit(topology.graph(), Layout.PACK)
    assert run.wait(3_000.0)
    run.stop()
    assert published(log) == [*range(TOTAL)]


def test_a_table_needs_batches_with_txids(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"delta\(.*needs batches that have txids"):
        SparkBatchBolt(ScriptedPlace().step(same, Row).write(delta(tmp_path)))
