"""A program that removes the Ray node of Spark's executor; test_spark_node_dies.py runs it.

It is a program because a process can be connected to one Ray only, and the tests use theirs.
"""

from __future__ import annotations

import os
import sys
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import pyarrow.compute
import pyarrow.dataset
import pytest
import ray
from ray.cluster_utils import Cluster

from sunshower.arrow.record_columns import RecordColumns
from sunshower.clock import SystemClock
from sunshower.errors import SparkLost, SparkUnavailable
from sunshower.spark_integration.sessions.spark_on_ray import why_not_on_ray
from sunshower.spark_integration.sessions.spark_port import BatchInfo, Gateway, SparkStep, Ticket
from sunshower.spark_integration.tables.tables import TableFolder, table
from tests.spark.conftest import ON_RAY

WITHIN_S = 400.0
# As in tests/guarantee/node_dies.py.
HEALTH = {"health_check_period_ms": 1_000, "health_check_failure_threshold": 8}
HEAD: dict[str, Any] = {
    "num_cpus": 0,  # for the gateway, but not for an executor
    "include_dashboard": False,
    "_system_config": HEALTH,
}


class Number(NamedTuple):
    number: int


NUMBERS = RecordColumns.of(Number)
ALL = [Number(number) for number in range(1_000)]


@dataclass(frozen=True)
class Slow:
    """A transform whose tasks write a file when they run, and wait for the file `go`."""

    folder: Path

    def __call__(self, df: Any, batch: BatchInfo) -> Any:
        from pyspark.sql.functions import udf

        def wait(number: int) -> int:
            (self.folder / f"runs-{os.getpid()}").touch()
            until((self.folder / "go").exists)
            return number

        return df.select(udf(wait, "long")("number").alias("number"))


def until(done: Callable[[], bool]) -> None:
    clock = SystemClock()
    end_s = clock.now() + WITHIN_S
    while not done():
        assert clock.now() < end_s, "it takes too long"
        clock.sleep(0.05)


def java_of(folder: Path) -> psutil.Process:
    """The Java process of the executor whose task runs."""
    (running,) = folder.glob("runs-*")
    above = psutil.Process(int(running.name.removeprefix("runs-"))).parents()
    return next(process for process in above if process.name() == "java")


def submit(gateway: Gateway, folder: Path, txid: int, timeout_s: float = WITHIN_S) -> Ticket:
    step = SparkStep(Slow(folder), writers=(table(folder / "table"),), timeout_s=timeout_s)
    return gateway.submit(step, [NUMBERS.table(ALL)], BatchInfo(str(txid), len(ALL), 0, txid))


def main(folder: Path) -> None:
    nodes = Cluster(initialize_head=True, head_node_args=HEAD)
    try:
        ray.init(nodes.address, log_to_driver=False)
        place = replace(ON_RAY, name=uuid.uuid4().hex)
        gateway, opened = place.open(), TableFolder(folder / "table", "t", "b", current=1)
        with pytest.raises(SparkUnavailable, match="of the cluster's 0 CPU"):
            submit(gateway, folder, 1).result()  # starts the gateway, on the first node
        assert "the cluster is too small" in str(why_not_on_ray())
        second = nodes.add_node(num_cpus=1, node_ip_address="127.0.0.2")
        assert why_not_on_ray() is None, "RayDP is the default on a joined cluster"
        ticket = submit(gateway, folder, 1)
        until(lambda: any(folder.glob("runs-*")))
        executor = java_of(folder)
        # It has room for another executor.
        third = nodes.add_node(num_cpus=1, node_ip_address="127.0.0.3")
        nodes.remove_node(second, allow_graceful=False)
        executor.wait(WITHIN_S)
        assert not ticket.done()
        (folder / "go").touch()
        ticket.result()
        assert len([*folder.glob("runs-*")]) > 1, "the task must have run again"
        opened.publish(1)
        submit(gateway, folder, 2).result()
        opened.publish(2)
        nodes.remove_node(third, allow_graceful=False)
        until(lambda: not ray.cluster_resources().get("CPU"))
        with suppress(SparkLost, SparkUnavailable):  # Java ends at about this time
            submit(gateway, folder, 3).result()
        with pytest.raises(SparkUnavailable, match="of the cluster's 0 CPU"):
            submit(gateway, folder, 3).result()
        written = pyarrow.dataset.dataset(folder / "table", partitioning="hive").to_table()
        assert {*written["txid"].to_pylist()} == {1, 2}
        for txid in (1, 2):
            batch = written.filter(pyarrow.compute.field("txid") == txid)
            assert sorted(batch["number"].to_pylist()) == [record.number for record in ALL]
        place.stop()
    finally:
        ray.shutdown()
        nodes.shutdown()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
