"""A call to a store that hangs ends before the tuple that waits for it times out."""

from __future__ import annotations

import inspect
import socket
import sqlite3
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sunshower.config import Config
from sunshower.errors import StoreUnreachable
from sunshower.state.backing import Home, Mark
from sunshower.state.postgres_backing import PostgresBacking
from sunshower.state.redis_backing import RedisBacking
from sunshower.state.sqlite import SqliteBacking
from sunshower.state.sqlite_tree import SqliteTree
from sunshower.state.zookeeper_tree import ZooKeeperTree

HOME = Home("counts", 0)


@pytest.mark.parametrize(
    "store", [PostgresBacking, RedisBacking, SqliteBacking, SqliteTree, ZooKeeperTree]
)
def test_two_calls_in_a_row_end_before_the_timeout_of_a_tuple(store: Callable[..., Any]) -> None:
    waits = inspect.signature(store).parameters["answer_within_s"].default
    assert 2 * waits < Config().message_timeout_s


def test_a_call_to_a_locked_file_ends(tmp_path: Path) -> None:
    file = tmp_path / "states.db"
    backing = SqliteBacking(file, HOME, answer_within_s=0.05)
    other = sqlite3.connect(file, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreUnreachable, match="locked"):
        backing.put({"a": "1"}, Mark("w", ""), None)
    other.close()
    backing.put({"a": "1"}, Mark("w", ""), None)
    assert backing.get(["a"]) == ["1"]
    backing.close()


@pytest.fixture
def hanging_postgres() -> Iterator[str]:
    """The address of a PostgreSQL that accepts every client and then does not answer."""
    server = socket.create_server(("127.0.0.1", 0))
    connections: list[socket.socket] = []

    def serve() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            connections.append(connection)
            _accept(connection)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield f"postgresql://nobody@127.0.0.1:{server.getsockname()[1]}/none?sslmode=disable"
    server.shutdown(socket.SHUT_RDWR)
    server.close()
    thread.join()
    for connection in connections:
        connection.close()


def _accept(connection: socket.socket) -> None:
    while True:
        (length,) = struct.unpack("!i", connection.recv(4, socket.MSG_WAITALL))
        body = connection.recv(length - 4, socket.MSG_WAITALL)
        if struct.unpack("!i", body[:4])[0] == 3 << 16:
            break
        connection.sendall(b"N")  # refuses every kind of encryption
    parameters = {"server_version": "16.0", "client_encoding": "UTF8"}
    parts = [b"\0".join([*(text.encode() for text in pair), b""]) for pair in parameters.items()]
    messages = [(b"R", struct.pack("!i", 0)), *((b"S", part) for part in parts), (b"Z", b"I")]
    connection.sendall(
        b"".join(kind + struct.pack("!i", 4 + len(of)) + of for kind, of in messages)
    )


def test_a_call_to_a_hanging_postgresql_ends(
    hanging_postgres: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("psycopg")
    monkeypatch.setattr("sunshower.state.postgres_backing._GRACE_S", 0.1)
    with pytest.raises(StoreUnreachable, match="closed the connection"):
        PostgresBacking(hanging_postgres, HOME, answer_within_s=0.2)
