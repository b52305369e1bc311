"""A PostgreSQL that is shut down and restarted: rows of a sink, and a state of batches."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.measure import BenchmarkError
from benchmarks.outage_scenarios._measured_outage import Figures, Outage, loaded_topology, measure
from sunshower import Bolt, Context, Number
from sunshower.state import PostgresState

_DEBIAN = Path("/usr/lib/postgresql")
_USER = "postgres"


class PostgresSink(Bolt[Number, None]):
    """A row for each number, a transaction for each batch of inputs."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn

    def prepare(self, context: Context) -> None:
        self._rows: list[tuple[int]] = []
        self._db: Any = None

    def process(self, record: Number) -> None:
        self._rows.append((record.value,))

    def flush(self) -> None:
        rows, self._rows = self._rows, []
        if self._db is None or self._db.closed:
            self._db = connect(self._dsn)
        with self._db.transaction(), self._db.cursor() as cursor:
            cursor.executemany("INSERT INTO numbers VALUES (%s)", rows)


class PostgresServer:
    """A server with its own folder, and a socket in it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.dsn = f"postgresql:///postgres?host={folder}&user={_USER}"
        # PostgreSQL refuses to run as root.
        self._as: dict[str, Any] = {"user": _USER} if os.getuid() == 0 else {}
        if self._as:
            shutil.chown(folder, _USER)
        self._call("initdb", "--auth=trust", f"--username={_USER}", "--no-sync")

    def start(self) -> None:
        options = f"-c listen_addresses='' -c unix_socket_directories='{self._folder}'"
        self._call("pg_ctl", "start", "--wait", f"--options={options}", f"--log={self._log}")

    def stop(self) -> None:
        self._call("pg_ctl", "stop", "--wait", "--mode=fast")

    @property
    def _log(self) -> Path:
        return self._folder / "server.log"

    def _call(self, program: str, *arguments: str) -> None:
        command = [_find(program), f"--pgdata={self._folder / 'data'}", *arguments]
        done = subprocess.run(
            command, check=False, capture_output=True, text=True, cwd=self._folder, **self._as
        )
        if done.returncode:
            raise BenchmarkError(f"{program} has failed: {done.stderr.strip()}")


@contextmanager
def running() -> Iterator[PostgresServer]:
    """A running server. Raises BenchmarkError if PostgreSQL is not installed."""
    folder = Path(tempfile.mkdtemp(prefix="sunshower-postgres-"))
    try:
        server = PostgresServer(folder)
        server.start()
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def run(seconds: float) -> Figures:
    """The server is down for `seconds`."""
    with running() as server, tempfile.TemporaryDirectory() as folder:
        with connect(server.dsn) as db:
            db.execute("CREATE TABLE numbers (n bigint NOT NULL)")
        state = PostgresState(server.dsn, name="counts")
        topology = loaded_topology("postgres", Path(folder), PostgresSink(server.dsn), state)

        def written() -> list[int]:
            with connect(server.dsn) as db:
                return [number for (number,) in db.execute("SELECT n FROM numbers")]

        outage = Outage(server.stop, server.start, written, lambda: dict(state.items()))
        return measure(topology, outage, seconds)


def connect(dsn: str) -> Any:
    import psycopg

    return psycopg.connect(dsn, autocommit=True, connect_timeout=5)


def _find(program: str) -> str:
    """Debian has the programs of each version in a folder that is not in PATH."""
    versions = sorted(_DEBIAN.glob(f"*/bin/{program}"))
    executable = shutil.which(program) or (str(versions[-1]) if versions else None)
    if executable is None:
        raise BenchmarkError(f"{program} is not installed: apt-get install postgresql")
    return executable
