"""A PostgreSQL is unavailable, to which an HTTP server writes requests of another topology.

All settings are defaults.

sending: numbers, at full speed → slow (5 ms) → HttpSink
taking:  HttpSource, the target of that sink → slow (5 ms) → PostgresTable
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from time import sleep

from benchmarks.outage_scenarios import _outage_watch, changes, postgres
from benchmarks.outage_scenarios._outage_watch import Figures, OutageWatch, figures_or_failure
from benchmarks.outage_scenarios.changes import Endless
from sunshower import Number, Retry, Topology
from sunshower.actors.cluster import RayCluster
from sunshower.actors.shipping import ship
from sunshower.connectors import HttpSink, HttpSource, PostgresTable
from sunshower.dev.servers import HOST, Ports

_PAUSE_S = 0.005


def slow(number: Number) -> Iterator[Number]:
    """Takes five milliseconds."""
    sleep(_PAUSE_S)
    yield number


def sender_topology(folder: Path, port: int) -> Topology:
    """Numbers to the HTTP server."""
    topology = Topology("sending")
    numbers = topology.spout("numbers", Endless(folder), retry=Retry(dead_letters=folder / "dead"))
    sink = HttpSink(f"http://{HOST}:{port}/", id="value")
    numbers.shuffle().bolt("slow", slow).shuffle().bolt("send", sink)
    return topology


def receiver_topology(dsn: str, port: int) -> Topology:
    """The requests of the HTTP server to PostgreSQL."""
    topology = Topology("taking")
    taken = topology.spout("requests", HttpSource(port, type=Number)).shuffle().bolt("slow", slow)
    taken.fields("value").bolt("table", PostgresTable(dsn, "numbers", key="value"))
    return topology


def run(seconds: float) -> Figures:
    """One outage of that length, on a new Ray."""
    ship([_outage_watch, changes, sys.modules[__name__]])
    ports = Ports()
    port = ports.claim()
    with (
        tempfile.TemporaryDirectory() as name,
        postgres.running() as server,
        RayCluster() as cluster,
    ):
        folder = Path(name)
        with postgres.connect(server.dsn) as db:
            db.execute("CREATE TABLE numbers (value bigint PRIMARY KEY)")
        receiver = cluster.submit(receiver_topology(server.dsn, port).graph())
        topology = cluster.submit(sender_topology(folder, port).graph())
        watch = OutageWatch(topology, ["numbers"])

        def scenario() -> Figures:
            watch.outage(server.stop, seconds, server.start)
            watch.catch_up(folder / "end", topology.finished)
            total = int((folder / "total").read_text())
            with postgres.connect(server.dsn) as db:
                rows = {number for (number,) in db.execute("SELECT value FROM numbers")}
            requests = receiver.snapshot().component("requests")
            causes = {f"requests failed: {cause}": n for cause, n in requests.causes.items()}
            return {"numbers": total, "lost": len({*range(total)} - rows), **causes}

        figures = figures_or_failure(watch, scenario)
        topology.stop()
        receiver.stop()
    ports.release()
    return figures
