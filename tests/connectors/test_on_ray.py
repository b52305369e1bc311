"""Sinks and the HTTP source in worker processes of Ray, one of which is killed."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import httpx2
import pytest

from sunshower import JsonLines, Records, Topology
from sunshower.actors.cluster import RayCluster
from sunshower.clock import SystemClock
from sunshower.connectors import HttpSink, HttpSource, PostgresTable
from sunshower.dev.servers import Ports
from tests.connectors.http_server import http_server
from tests.connectors.postgres_server import SALES, Sale, execute, sales


@pytest.mark.long
def test_the_records_of_a_killed_worker_are_written(ray_cluster: RayCluster, postgres: str) -> None:
    execute(postgres, SALES)
    try:
        with http_server() as server:
            topology = Topology("sinks", workers=2)
            spout = topology.spout("sales", Records(sales(0, 3_000), type=Sale))
            table = PostgresTable(postgres, "sales", key="id")
            spout.fields("id").bolt("table", table, parallelism=2)
            spout.shuffle().bolt("send", HttpSink(server.url, id="id"), parallelism=2)
            run = ray_cluster.submit(topology.graph())
            run.kill_worker(1)
            assert run.wait(120)
            assert run.snapshot().component("sales").acked == 3_000
        assert execute(postgres, "SELECT * FROM sales ORDER BY id") == sales(0, 3_000)
        assert {body["id"] for body in server.bodies} == {*range(3_000)}
    finally:
        execute(postgres, "DROP TABLE sales")


@pytest.mark.long
def test_a_worker_takes_records_over_http(ray_cluster: RayCluster, tmp_path: Path) -> None:
    ports = Ports()
    port = ports.claim()
    topology = Topology("intake", workers=1)
    source = topology.spout("sales", HttpSource(port, type=Sale))
    source.shuffle().bolt("lines", JsonLines(tmp_path / "sales.jsonl"))
    run = ray_cluster.submit(topology.graph())
    clock, url = SystemClock(), f"http://127.0.0.1:{port}"
    until_s = clock.now() + 60.0
    try:
        with httpx2.Client(base_url=url, timeout=60.0, trust_env=False) as client:

            def is_taken(sale: Sale) -> bool:
                with suppress(httpx2.ConnectError):
                    return client.post("/", json=sale._asdict()).status_code == 200
                return False

            while not is_taken(sales(0, 1)[0]):  # until the worker has opened its tasks
                assert clock.now() < until_s, run.snapshot()
                clock.sleep(0.05)
            assert all(map(is_taken, sales(1, 5)))
    finally:
        run.kill(wait_s=5)
        ports.release()
    assert len((tmp_path / "sales.jsonl").read_text().splitlines()) == 5
