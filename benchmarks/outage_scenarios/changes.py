"""Changes the numbers of tasks, and upgrades, during outages of the PostgreSQL of a keyed state.

numbers, at full speed → slow (5 ms) → gather: per key in PostgreSQL. All settings are defaults.
"""

from __future__ import annotations

import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.measure import BenchmarkError
from benchmarks.outage_scenarios import _keyed_bits, _outage_watch, postgres
from benchmarks.outage_scenarios._keyed_bits import (
    Keyed,
    gather,
    keyed,
    missing_numbers,
    wrong_keys,
)
from benchmarks.outage_scenarios._outage_watch import Figures, OutageWatch, figures_or_failure
from sunshower import Context, KeyState, Number, Retry, Spout, Topology
from sunshower.actors.cluster import RayCluster
from sunshower.actors.run import RayRun
from sunshower.actors.shipping import ship
from sunshower.errors import LifecycleError, SunshowerError
from sunshower.runtime.plan import ACKER
from sunshower.state import PostgresState

_PAUSE_S = 0.005
_CHANGE_MAX_S = 180.0  # after the end of an outage


class Endless(Spout[Number]):
    """0, 1, 2, … until the file `end` exists; then it writes the count to the file `total`."""

    def __init__(self, folder: Path) -> None:
        self._end, self._total = folder / "end", folder / "total"

    def records(self) -> Iterator[Number]:
        number = 0
        while not self._end.exists():
            yield Number(number)
            number += 1
        self._total.write_text(str(number))


def slow(number: Number) -> Iterator[Keyed]:
    """Takes five milliseconds."""
    time.sleep(_PAUSE_S)
    yield from keyed(number.value)


class Gather:
    """The function of the state, in a version that opens, or in one that fails to open."""

    def __init__(self, opens: bool) -> None:
        self._opens = opens

    def prepare(self, context: Context) -> None:
        if not self._opens:
            raise ValueError("this version does not open")

    def __call__(self, record: Keyed, state: KeyState[bytes]) -> None:
        gather(record, state)


def declare(folder: Path, dsn: str, opens: bool = True) -> Topology:
    """The topology, in one of its versions."""
    topology = Topology("changed")
    retry = Retry(dead_letters=folder / "dead.jsonl")
    pairs = topology.spout("numbers", Endless(folder), retry=retry).shuffle().bolt("slow", slow)
    state = PostgresState(dsn, name="gathered")
    pairs.group_by("key").process(Gather(opens), state=state, name="gather", parallelism=2)
    return topology


class TimedCommand(threading.Thread):
    """Runs a command in a thread, and measures how long it takes."""

    def __init__(self, call: Callable[[], Any]) -> None:
        super().__init__()
        self._call, self.took_s = call, 0.0
        self.error: SunshowerError | None = None

    def run(self) -> None:
        begun_s = time.monotonic()
        try:
            self._call()
        except SunshowerError as error:
            self.error = error
        self.took_s = round(time.monotonic() - begun_s, 1)


def commands(run: RayRun, folder: Path, dsn: str) -> dict[str, Callable[[], Any]]:
    """The commands, in the order of their execution."""
    return {
        "more tasks": lambda: run.rebalance(tasks={"gather": 8, ACKER: 4}),
        "fewer tasks": lambda: run.rebalance(tasks={"gather": 2, ACKER: 2}),
        "new code": lambda: run.upgrade(declare(folder, dsn).graph()),
        "bad code": lambda: run.upgrade(declare(folder, dsn, opens=False).graph()),
    }


def run(seconds: float) -> Figures:
    """Four outages of that length, on a new Ray."""
    ship([_outage_watch, _keyed_bits, sys.modules[__name__]])
    with (
        tempfile.TemporaryDirectory() as name,
        postgres.running() as server,
        RayCluster() as cluster,
    ):
        folder = Path(name)
        topology = cluster.submit(declare(folder, server.dsn).graph())
        watch = OutageWatch(topology, ["numbers"])

        def scenario() -> Figures:
            figures: Figures = {}
            recovery_s = 0.0
            for what, call in commands(topology, folder, server.dsn).items():
                change = TimedCommand(call)

                def stop(change: TimedCommand = change) -> None:
                    server.stop()
                    change.start()

                watch.outage(stop, seconds, server.start)
                change.join(_CHANGE_MAX_S)
                if isinstance(change.error, LifecycleError) != (what == "bad code"):
                    raise BenchmarkError(f"{what}: {change.error}")
                figures[f"{what}, s"] = change.took_s
                recovered_s = float(watch.figures()["recovery_s"])
                recovery_s = -1.0 if recovered_s < 0 else max(recovery_s, recovered_s)
            watch.catch_up(folder / "end", topology.finished)
            total = int((folder / "total").read_text())
            states = dict(PostgresState(server.dsn, name="gathered").items())
            gathered = {
                "lost": missing_numbers(states, total),
                "states_wrong": wrong_keys(states, total),
            }
            return {**figures, "recovery_s": recovery_s, "numbers": total, **gathered}

        figures = figures_or_failure(watch, scenario)
        topology.stop()
        return figures
