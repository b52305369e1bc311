"""`sunshower run` with a Stdout sink, during an outage of a Redis that the bolt before it needs.

numbers, at full speed ─▶ call (5 ms, Redis) ─▶ 60 lines for each number

All settings are defaults. The sink also writes each line to a file: the output must have the same
lines, each equally often. Some have characters of several bytes, and two are long.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from benchmarks.network.ray_nodes import environment
from benchmarks.outage_scenarios import redis
from benchmarks.outage_scenarios._outage_watch import Figures
from benchmarks.outage_scenarios.changes import Endless
from sunshower import Bolt, Context, Number, Stdout, Topology

_CALL_S = 0.005
_LINES = 60  # of each number
_AROUND_S = 12.0  # of load before and after the outage
_MAX_S = 300.0
_POLL_S = 0.1
_WIDE = "日本 Grüße 🌻\ra\x02b\x03"
_PROGRAM = """
from benchmarks.outage_scenarios.printed import declare
topology = declare({folder!r}, {url!r})
"""


class Part(NamedTuple):
    number: int
    part: int


class Call(Bolt[Number, Part]):
    """Takes 5 ms for each number, and writes it to a list in Redis."""

    def __init__(self, url: str) -> None:
        self._url = url

    def prepare(self, context: Context) -> None:
        from redis import Redis

        self._redis = Redis.from_url(self._url, socket_timeout=5, socket_connect_timeout=5)

    def process(self, record: Number) -> Iterator[Part]:
        time.sleep(_CALL_S)
        self._redis.rpush("numbers", record.value)
        for part in range(_LINES):
            yield Part(record.value, part)


class RecordingStdout(Stdout):
    """A Stdout sink that also writes each line to a file in `folder`."""

    def __init__(self, folder: Path) -> None:
        super().__init__(self._record)
        self._folder, self._count = folder, itertools.count()

    def prepare(self, context: Context) -> None:
        path = self._folder / f"lines-{os.getpid()}-{context.index}"
        self._file = path.open("a", encoding="utf-8", newline="\n")

    def _record(self, part: Part) -> str:
        long = {(7, 0): "x" * 200_000, (7, 1): _WIDE * 20_000}
        text = long.get((part.number, part.part), _WIDE if part.part % 2 else "")
        line = f"{os.getpid()}-{next(self._count)} {part.number}.{part.part} {text}"
        self._file.write(f"{line}\n")
        self._file.flush()
        return line


def declare(folder: str, url: str) -> Topology:
    """The topology of the program."""
    topology = Topology("printed")
    called = topology.spout("numbers", Endless(Path(folder))).shuffle().bolt("call", Call(url), 2)
    called.shuffle().bolt("out", RecordingStdout(Path(folder)), 2)
    return topology


def run(seconds: float) -> Figures:
    """The Redis is unavailable for `seconds`."""
    with redis.running() as server, tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        file, out, errors = folder / "printed.py", folder / "out", folder / "errors"
        file.write_text(_PROGRAM.format(folder=name, url=server.url))
        command = [sys.executable, "-m", "sunshower", "run", str(file)]
        with out.open("wb") as to, errors.open("wb") as messages:
            process = subprocess.Popen(command, stdout=to, stderr=messages, env=environment())
        try:
            figures = _run_outage(process, server, out, seconds, folder / "end")
        finally:
            process.kill()
            process.wait()
        messages = " ".join(errors.read_text().split())
        return {**figures, **_compare(folder, out), "said": messages[messages.rfind("Finished") :]}


def _run_outage(
    process: subprocess.Popen[bytes],
    server: redis.RedisServer,
    out: Path,
    seconds: float,
    end: Path,
) -> Figures:
    def until(condition: Callable[[], bool]) -> float:
        begun_s = time.monotonic()
        while not condition() and process.poll() is None and time.monotonic() < begun_s + _MAX_S:
            time.sleep(_POLL_S)
        return round(time.monotonic() - begun_s, 1) if condition() else -1.0

    until(lambda: out.stat().st_size > 0)
    time.sleep(_AROUND_S)
    server.stop()
    time.sleep(seconds)
    size = out.stat().st_size
    server.start()
    recovery_s = until(lambda: out.stat().st_size > size)
    time.sleep(_AROUND_S)
    end.touch()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_MAX_S)
    state = "finished" if process.returncode == 0 else f"failed: status {process.returncode}"
    return {"state": state, "recovery_s": recovery_s}


def _compare(folder: Path, out: Path) -> Figures:
    """Compare the output with the lines that the sinks have written to files."""
    noted = Counter(line for file in folder.glob("lines-*") for line in _lines(file))
    printed = Counter(_lines(out))
    numbers = {line.split(b" ")[1].split(b".")[0] for line in noted}
    return {
        "numbers": len(numbers),
        "lines": noted.total(),
        "lost": (noted - printed).total(),
        "lines_wrong": (printed - noted).total(),
    }


def _lines(file: Path) -> list[bytes]:
    return file.read_bytes().removesuffix(b"\n").split(b"\n")
