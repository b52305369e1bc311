"""A server that a plain bolt writes to is stopped, refuses connections, and is restarted.

numbers, 500 a second → write: one connection, one message and one answer for each batch. The server
is a process that answers when a batch is on the disk.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path

from benchmarks.measure import BenchmarkError
from sunshower import Bolt, Context, DeadLetter, Number, Retry, Spout, Topology
from sunshower.actors.cluster import RayCluster
from sunshower.actors.run import RayRun
from sunshower.actors.shipping import ship
from sunshower.errors import TopologyFailed
from sunshower.runtime.events.metrics import Snapshot

Figures = dict[str, float | int | str]
RATE = 500.0
_AROUND_S = 5.0  # of load before the outage, and after its end
_RECOVERY_MAX_S = 120.0
_DRAIN_MAX_S = 120.0
_ANSWER_S = 5.0
_SERVER = """
import contextlib, socket, sys
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
print(listener.getsockname()[1], flush=True)
with open(sys.argv[2], "a") as rows:
    while True:
        peer, _ = listener.accept()
        # A client that is killed resets its connection.
        with contextlib.suppress(ConnectionError), peer, peer.makefile("rw") as stream:
            for line in stream:
                rows.write(line)
                rows.flush()
                stream.write("ok\\n")
                stream.flush()
"""


class Server:
    """Appends the numbers of each line to `file`, and answers. It has one connection at a time."""

    def __init__(self, file: Path) -> None:
        self.port, self.file = 0, file
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Listen, after a restart at the same port. Returns when it accepts connections."""
        command = [sys.executable, "-c", _SERVER, str(self.port), str(self.file)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())

    def stop(self) -> None:
        """Kill the server: its connections are reset, and new ones refused."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


class Write(Bolt[Number, None]):
    """Sends each batch, and waits for the answer."""

    def __init__(self, port: int) -> None:
        self._port = port

    def prepare(self, context: Context) -> None:
        self._numbers: list[int] = []
        self._stream: socket.SocketIO | None = None

    def process(self, record: Number) -> None:
        self._numbers.append(record.value)

    def flush(self) -> None:
        numbers, self._numbers = self._numbers, []
        if not numbers:
            return
        try:
            if self._stream is None:
                place = ("127.0.0.1", self._port)
                peer = socket.create_connection(place, timeout=_ANSWER_S)
                self._stream = peer.makefile("rwb", buffering=0)
            self._stream.write(" ".join(map(str, numbers)).encode() + b"\n")
            if not self._stream.read(3):
                raise ConnectionResetError("the server has closed the connection")
        except BaseException:
            self._stream = None
            raise


class Paced(Spout[Number]):
    """0, 1, 2 …, `rate` a second."""

    def __init__(self, rate: float) -> None:
        self._rate = rate

    def records(self) -> Iterator[Number | None]:
        begun_s = time.monotonic()
        for number in count():
            while number >= (time.monotonic() - begun_s) * self._rate:
                yield None
            yield Number(number)


def discard(letter: DeadLetter) -> None:
    """Discard a dead letter; there should be none."""
    del letter


def run(seconds: float) -> Figures:
    """The server is unavailable for `seconds`."""
    ship([sys.modules[__name__]])
    with tempfile.TemporaryDirectory() as folder, RayCluster() as cluster:
        rows = Path(folder) / "rows"
        server = Server(rows)
        server.start()
        try:
            topology = Topology("sink-away")
            numbers = topology.spout("numbers", Paced(RATE), retry=Retry(dead_letters=True))
            numbers.shuffle().bolt("write", Write(server.port))
            numbers.stream("dead_letters", DeadLetter).shuffle().bolt("discard", discard)
            running = cluster.submit(topology.graph())
            try:
                figures = _run_outage(running, server, seconds)
            finally:
                running.stop()
        except TopologyFailed as failed:
            return {"state": "failed", "why": str(failed).splitlines()[0][:300]}
        finally:
            server.stop()
        written = [int(word) for line in rows.read_text().splitlines() for word in line.split()]
    lost = len(set(range(int(figures["emitted"]))) - set(written))
    return figures | {"lost": lost, "doubled": len(written) - len(set(written))}


def _run_outage(running: RayRun, server: Server, seconds: float) -> Figures:
    if _until_acked(running, 1) is None:
        raise BenchmarkError(f"{running.topology} has not begun to work")
    time.sleep(_AROUND_S)
    server.stop()
    time.sleep(seconds)
    before = running.snapshot()
    server.start()
    recovery_s = _until_acked(running, before.component("numbers").acked + 1)
    time.sleep(_AROUND_S)
    running.drain()
    ended = running.wait(_DRAIN_MAX_S)
    after = running.snapshot()
    counts = after.component("numbers")
    return {
        "state": after.state if ended else f"{after.state}, not drained",
        "recovery_s": -1.0 if recovery_s is None else round(recovery_s, 2),
        "waited_for": _waited_for(before),
        "emitted": counts.emitted - counts.replayed,
        "acked": counts.acked,
        "dead_letters": counts.dead,
        "quarantined": len(after.degraded),
        **{f"failed, {cause}": times for cause, times in sorted(counts.causes.items())},
    }


def _waited_for(snapshot: Snapshot) -> str:
    waits = {(task.component, task.health.wait) for task in snapshot.waiting()}
    return "; ".join(sorted(f"{name}: {wait.error.text}" for name, wait in waits if wait))[:200]


def _until_acked(running: RayRun, number: int) -> float | None:
    begun_s = time.monotonic()
    while (passed_s := time.monotonic() - begun_s) < _RECOVERY_MAX_S:
        if running.snapshot().component("numbers").acked >= number:
            return passed_s
        time.sleep(0.1)
    return None
