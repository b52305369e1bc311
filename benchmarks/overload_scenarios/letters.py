"""Dead letters and a busy bolt, with default settings: one record in 1,000 fails twice.

`worst_s` is the longest time from the last failure of a record until its dead letter was written.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from sunshower import Bolt, Context, Counter, DeadLetter, Number, Retry, Topology
from sunshower.actors.cluster import RayCluster
from sunshower.actors.shipping import ship
from sunshower.errors import TopologyFailed

Figures = dict[str, float | int | str]
PAUSE_S = 0.001
EVERY = 1_000
_FINISH_MAX_S = 60.0  # for the tuples that are open at the end


class TimeFile:
    """Writes lines with a number and the wall-clock time."""

    def __init__(self, file: Path) -> None:
        self._lines = file.open("a", encoding="ascii", buffering=1)

    def write(self, number: int) -> None:
        """Write a line now."""
        self._lines.write(f"{number} {time.time()}\n")


def last_times(file: Path) -> dict[int, float]:
    """The last time of each number."""
    if not file.exists():
        return {}
    rows = (line.split() for line in file.read_text(encoding="ascii").splitlines())
    return {int(number): float(at_s) for number, at_s in rows}


class Slow(Bolt[Number, None]):
    """Takes a millisecond, and raises an error for one number in a thousand."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def prepare(self, context: Context) -> None:
        self._failures = TimeFile(self._file)

    def process(self, record: Number) -> None:
        time.sleep(PAUSE_S)
        if record.value % EVERY == EVERY - 1:
            self._failures.write(record.value)
            raise ValueError("one in a thousand")


class RecordLetters(Bolt[DeadLetter, None]):
    """Notes when each dead letter arrived."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def prepare(self, context: Context) -> None:
        self._letters = TimeFile(self._file)

    def process(self, record: DeadLetter) -> None:
        self._letters.write(int(record.record["value"]))


def run(seconds: float) -> Figures:
    """Run for `seconds`, then drain."""
    ship([sys.modules[__name__]])
    with tempfile.TemporaryDirectory() as name, RayCluster() as cluster:
        failed, written = Path(name) / "failed", Path(name) / "written"
        topology = Topology("letters")
        retry = Retry(attempts=2, dead_letters=True)
        numbers = topology.spout("n", Counter(), retry=retry)
        numbers.shuffle().bolt("slow", Slow(failed))
        numbers.stream("dead_letters", DeadLetter).shuffle().bolt("letters", RecordLetters(written))
        running = cluster.submit(topology.graph())
        begun_s = time.monotonic()
        try:
            finished = running.wait(seconds)
            running.drain()
            finished = running.wait(_FINISH_MAX_S)
            snapshot = running.snapshot()
        except TopologyFailed as error:
            lasted_s = round(time.monotonic() - begun_s)
            why = str(error).splitlines()[0][:300]
            return {"state": f"failed after {lasted_s} s", "why": why}
        finally:
            running.stop()
        failures, letters = last_times(failed), last_times(written)
    counts = snapshot.component("n")
    late_s = [letters[number] - failures[number] for number in letters]
    return {
        "state": snapshot.state if finished else f"{snapshot.state}, not drained",
        "acked": counts.acked,
        "letters": len(letters),
        "missing": len(failures.keys() - letters.keys()),
        "worst_s": round(max(late_s, default=-1.0), 2),
        "timeouts": counts.causes.get("timeout", 0),
    }
