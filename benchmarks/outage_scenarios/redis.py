"""A Redis that is shut down and restarted: a list of a plain sink, and a state of batches."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.measure import BenchmarkError
from benchmarks.outage_scenarios._measured_outage import Figures, Outage, loaded_topology, measure
from sunshower import Bolt, Context, Number
from sunshower.state import RedisState

_START_MAX_S = 60.0
# Answered writes are on the disk, so they survive the end of the server.
_SETTINGS = ["--appendonly", "yes", "--appendfsync", "always", "--save"]


class RedisSink(Bolt[Number, None]):
    """An entry of a list for each number, one command for each batch of inputs."""

    def __init__(self, url: str) -> None:
        self._url = url

    def prepare(self, context: Context) -> None:
        self._numbers: list[int] = []
        self._redis = _client(self._url)

    def process(self, record: Number) -> None:
        self._numbers.append(record.value)

    def flush(self) -> None:
        numbers, self._numbers = self._numbers, []
        if numbers:
            self._redis.rpush("numbers", *numbers)


class RedisServer:
    """A server with its own folder and a socket in it; in a network namespace it also has an
    address."""

    def __init__(self, folder: Path, namespace: str = "", host: str = "", port: int = 0) -> None:
        executable = shutil.which("redis-server")
        if executable is None:
            raise BenchmarkError("redis-server is not installed: apt-get install redis-server")
        socket = folder / "socket"
        self.url = f"unix://{socket}"
        within = ["ip", "netns", "exec", namespace] if namespace else []
        listens = ["--port", str(port), *(["--bind", host, "--protected-mode", "no"] * bool(port))]
        here = ["--dir", str(folder), "--unixsocket", str(socket)]
        self._command = [*within, executable, *listens, *_SETTINGS, "", *here]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        from redis.exceptions import ConnectionError as NotUp

        self._process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL)
        until_s = time.monotonic() + _START_MAX_S
        while True:
            try:
                _client(self.url).ping()
                return
            except NotUp as error:
                if time.monotonic() > until_s or self._process.poll() is not None:
                    raise BenchmarkError(f"redis-server does not start: {error}") from error
            time.sleep(0.05)

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait()


@contextmanager
def running(namespace: str = "", host: str = "", port: int = 0) -> Iterator[RedisServer]:
    """A running server. Raises BenchmarkError if Redis is not installed."""
    with tempfile.TemporaryDirectory(prefix="sunshower-redis-") as folder:
        server = RedisServer(Path(folder), namespace, host, port)
        server.start()
        try:
            yield server
        finally:
            server.stop()


def run(seconds: float) -> Figures:
    """The server is down for `seconds`."""
    with running() as server, tempfile.TemporaryDirectory() as folder:
        state = RedisState(server.url, name="counts")
        topology = loaded_topology("redis", Path(folder), RedisSink(server.url), state)

        def written() -> list[int]:
            return [int(number) for number in _client(server.url).lrange("numbers", 0, -1)]

        outage = Outage(server.stop, server.start, written, lambda: dict(state.items()))
        return measure(topology, outage, seconds)


def _client(url: str) -> Any:
    from redis import Redis

    return Redis.from_url(url, socket_timeout=5, socket_connect_timeout=5)
