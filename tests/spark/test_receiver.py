"""A group in ZooKeeper passes Kafka's messages to Spark, while its processes are killed."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from sunshower.clock import SystemClock
from sunshower.dev.kafka import Kafka
from sunshower.dev.zookeeper import ZooKeeper
from sunshower.runtime.plan import Layout
from sunshower.state.zookeeper_tree import ZooKeeperTree
from tests.actors.programs.evidence import submitted, worker_of
from tests.spark.conftest import shipped_example
from tests.spark.processes import java_processes

if TYPE_CHECKING:
    from sunshower.actors.cluster import RayCluster

EACH = 300
WITHIN_S = 150.0


def until(condition: Callable[[], object]) -> None:
    clock = SystemClock()
    end_s = clock.now() + WITHIN_S
    while not condition():
        assert clock.now() < end_s, "the condition never held"
        clock.sleep(0.1)


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    with shipped_example(monkeypatch, "group", "sales") as modules:
        yield modules


def kill_java_of_spark(others: set[psutil.Process]) -> bool:
    """Kill the Java processes that are not among the others. Returns whether there was one."""
    started = [process for process in java_processes() if process not in others]
    for process in started:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    return bool(started)


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.timeout(600)  # Spark starts three times
def test_no_sale_is_missing_when_members_and_spark_are_killed(
    ray_cluster: RayCluster, kafka: Kafka, zookeeper: ZooKeeper, tmp_path: Path, example: list[Any]
) -> None:
    """Spark: org/apache/spark/streaming/kafka/KafkaInputDStream.scala."""
    group, sales = example
    topic, folder = f"sales-{uuid.uuid4().hex[:8]}", tmp_path / "group"
    others = {*java_processes()}
    sales.fill(EACH, kafka.bootstrap, topic)
    receiver = group.receiver(
        kafka.bootstrap, zookeeper.connect, topic, folder, rows=100, session_timeout_s=6.0
    )

    def written() -> set[tuple[Any, ...]]:
        rows = group.rows_of(folder).values()
        return {tuple(row[name] for name in sales.COLUMNS) for row in rows}

    with (
        closing(ZooKeeperTree(zookeeper.connect)) as tree,
        submitted(ray_cluster, receiver, layout=Layout.PACK) as run,
    ):

        def has_all() -> bool:
            run.snapshot()  # raises if the topology has failed
            return written() == {*sales.plain(kafka.bootstrap, topic)[0]}

        home = f"/consumers/spark-{topic}"
        until(lambda: written() and len(tree.children(f"{home}/ids")) == 2)
        of_spark = worker_of(run, "spark")
        (alone,) = {worker_of(run, "sales", index) for index in range(2)} - {of_spark}
        kills: list[Callable[[], object]] = [
            lambda: run.kill_worker(alone),
            lambda: until(lambda: kill_java_of_spark(others)),
            lambda: run.kill_worker(of_spark),
        ]
        for kill in kills:
            until(has_all)
            sales.fill(EACH, kafka.bootstrap, topic)
            kill()
        until(has_all)
        until(lambda: len(tree.children(f"{home}/ids")) == 2)
        ends = [end for _, end in sales.bounds(sales.reader(kafka.bootstrap), topic)]

        def committed() -> list[int]:
            nodes = [tree.get(f"{home}/offsets/{topic}/{n}") for n in range(len(ends))]
            return [int(node.value) if node else 0 for node in nodes]

        until(lambda: committed() == ends)
