"""The experiment programs: twelve programs over event time, whose workers and masters are killed.

two sources ──▶ stage ──▶ stage ──▶ …  ──▶ a file      compared with what a plain program makes
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import numpy as np

from benchmarks.endurance.kills import EVERY_S, kill_repeatedly, wait_for_end
from benchmarks.measure import Log
from benchmarks.simulated.stage_chains import FIELDS, Part, Row, StageChain, by_place
from benchmarks.start_signal import StartSignal
from sunshower import JsonLines, Spout, Stream, Topology
from sunshower.actors.cluster import RayCluster
from sunshower.runtime.plan import Layout
from sunshower.state import SqliteState

PROGRAMS: dict[str, tuple[str, ...]] = {  # the kinds of their stages: see stage_chains
    "windows of windows": ("tumbling", "sliding", "tumbling"),
    "windows of sessions": ("sessions", "tumbling"),
    "sessions of pairs": ("pairs", "sessions"),
    "pairs of windows": ("tumbling", "until", "left"),
    "totals of days": ("days", "totals", "totals"),
    "timers behind sessions": ("sessions", "timer"),
    "windows and prices": ("tumbling", "as of", "sliding"),
    "names and prices": ("table", "as of", "tumbling"),
    "patterns of timers": ("timer", "match"),
    "ordered partners": ("ordered", "semi", "tumbling"),
    "two streams": ("connect", "between", "anti"),
    "early results": ("distinct", "early", "totals"),
}
RATE = 8  # records a second of each source
SPEED = 3  # seconds of event time in a second
LATE = 8
_KEYS = 3
_RECOVERY_MAX_S = 120.0


class Event(NamedTuple):
    number: int
    at: int


class Events(Spout[Event]):
    """The events of one source, RATE a second from the start on, also after a restart."""

    emits = Event

    def __init__(self, signal: StartSignal, events: list[Event]) -> None:
        self.signal, self.events = signal, events

    def records(self) -> Iterator[Event | None]:
        for number, event in enumerate(self.events):
            while time.monotonic() < self.signal.start_s + number / RATE:
                yield None
            yield event


def events_of(source: int, seconds: float, draw: Random) -> list[Event]:
    """Each is at most LATE before the event times of those before it."""
    return [
        Event(2 * number + source, number * SPEED // RATE - draw.choice((0, draw.randint(0, LATE))))
        for number in range(int(seconds * RATE))
    ]


def row_of(event: Event) -> tuple[int, int, tuple[int, ...]]:
    return event.number % _KEYS, event.at, (event.number,)


def unread(name: str, stream: Stream[Any]) -> None:
    """Late rows have no reader."""


def declare(
    name: str, folder: Path, signal: StartSignal, seconds: float, seed: int
) -> tuple[Topology, Part]:
    """The program, which writes to `rows.jsonl`, and its last stage."""
    draw, topology, numbers = Random(f"{name} {seed}"), Topology("programs", workers=3), count()
    parts = []
    for source in range(2):
        events = events_of(source, seconds, draw)
        stream = topology.spout(f"in-{source}", Events(signal, events))
        rows = [Row(*row_of(event)) for event in events]
        stream = stream.map(row_of, fields=FIELDS)
        parts.append(Part(stream, lambda rows=rows: rows, "source", is_source=True))
    state = lambda: SqliteState(folder / f"state-{next(numbers)}.db")  # noqa: E731
    chain, last = StageChain(draw, LATE, LATE, unread, state), parts[0]
    for number, kind in enumerate(PROGRAMS[name]):
        last = chain.stage(f"s{number}", kind, last, parts)
        parts.append(last)
    last.stream.shuffle().bolt("store", JsonLines(folder / "rows.jsonl"))
    return topology, last


def run_programs(
    cluster: RayCluster, folder: Path, seconds: float, seed: int, log: Log
) -> dict[str, Any]:
    """Run each of them for so long. Raises BenchmarkError if one does not finish."""
    each = []
    for name in PROGRAMS:
        place = folder / name.replace(" ", "-")
        place.mkdir(parents=True)
        each.append(_run_program(cluster, name, place, seconds, seed, log))
        log(f"{name}: {each[-1]['rows']:,} rows, {each[-1]['missing']} missing")
    sums = ("rows", "missing", "other", "kills")
    return {sum_: sum(run[sum_] for run in each) for sum_ in sums} | {"each": each}


def _run_program(
    cluster: RayCluster, name: str, folder: Path, seconds: float, seed: int, log: Log
) -> dict[str, Any]:
    signal = StartSignal(folder)
    topology, last = declare(name, folder, signal, seconds, seed)
    run = cluster.submit(topology.graph(), Layout.PACK)
    try:
        signal.send()
        generator = np.random.default_rng(seed)
        kills = kill_repeatedly(run, seconds, ("worker", "master"), generator, log)
        wait_for_end(run, time.monotonic() + EVERY_S + _RECOVERY_MAX_S)
    finally:
        run.stop()
    lines = (folder / "rows.jsonl").read_text(encoding="utf-8").splitlines()
    stored = by_place(Row(*json.loads(line).values()) for line in lines)
    expected = by_place(last.rows())
    return {
        "name": name,
        "stages": " → ".join(PROGRAMS[name]),
        "rows": len(expected),
        "missing": sum(not stored.get(at, set()) >= ids for at, ids in expected.items()),
        "other": sum(ids != expected.get(at) for at, ids in stored.items()),
        "kills": len(kills),
    }
