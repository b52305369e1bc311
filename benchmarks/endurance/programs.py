"""The experiment programs: twelve programs over event time, with kills, and new code in the middle.

Each of them has ordinary streams, and then exactly-once batches.

two sources ──▶ stage ──▶ stage ──▶ …  ──▶ a file      compared with what a plain program makes
                                        or a state
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import numpy as np

from benchmarks.endurance.kills import EVERY_S, kill_repeatedly, wait_for_end
from benchmarks.measure import Log
from benchmarks.simulated.stage_chains import FIELDS, Part, Row, StageChain, alone, by_place
from benchmarks.start_signal import StartSignal
from sunshower import JsonLines, Spout, Stream, Topology
from sunshower.actors.cluster import RayCluster
from sunshower.actors.run import RayRun
from sunshower.errors import LifecycleError
from sunshower.runtime.plan import Layout
from sunshower.state import SqliteState
from sunshower.topologies.operators.states import MapState
from sunshower.trident import InSqlite, PartitionedSpout, batches
from sunshower.trident.spouts.bounds import Room

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
    "two streams": ("connect", "between"),
    "early results": ("distinct", "early", "totals"),
}
_NOT_IN_BATCHES = ("early", "totals")  # of early results, which batches do not take back
_BATCHES_S = 0.3  # from one batch to the next
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


class EventBatches(PartitionedSpout):
    """The same in batches."""

    emits = Event

    def __init__(self, signal: StartSignal, events: list[Event]) -> None:
        self.signal, self.events = signal, events

    def partitions(self) -> Sequence[str]:
        return ["0"]

    def emit_new(self, partition: str, last: Any, room: Room) -> Any:
        first = last["end"] if last else 0
        due = int(max(time.monotonic() - self.signal.start_s, 0.0) * RATE)
        end = max(first, min(due, len(self.events)))
        room.emit(self.events[first:end])
        return {"first": first, "end": end}

    def emit_again(self, partition: str, metadata: Any, room: Room) -> None:
        room.emit(self.events[metadata["first"] : metadata["end"]])

    def is_end(self, partition: str, metadata: Any) -> bool:
        return bool(metadata["end"] == len(self.events))


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


def stages_of(name: str, *, in_batches: bool) -> tuple[str, ...]:
    stages = PROGRAMS[name]
    return stages[:-1] if in_batches and stages[-2:] == _NOT_IN_BATCHES else stages


@dataclass(frozen=True)
class Declaration:
    """A program, which writes to `rows.jsonl` or `rows.db` in a folder."""

    name: str
    folder: Path
    signal: StartSignal
    seconds: float
    seed: int
    in_batches: bool = False

    def topology(self, *, is_new: bool = False) -> tuple[Topology, Part]:
        """The program, and its last stage. `is_new`: other code, with other numbers of tasks."""
        name, folder = self.name, self.folder
        draw, topology, numbers = Random(f"{name} {self.seed}"), Topology("programs"), count()
        state = lambda: SqliteState(folder / f"state-{next(numbers)}.db")  # noqa: E731
        settings: Any = {"in_batches": self.in_batches, "tasks": _other if is_new else int}
        chain = StageChain(draw, LATE, LATE, unread, state, **settings)
        parts = [self._source(topology, source, draw, is_new=is_new) for source in range(2)]
        last = parts[0]
        for number, kind in enumerate(stages_of(name, in_batches=self.in_batches)):
            last = chain.stage(f"s{number}", kind, last, parts)
            parts.append(last)
        if self.in_batches:
            stored = SqliteState(folder / "rows.db")
            last.stream.global_().partition_persist(stored, _count_rows, name="rows")
        else:
            last.stream.shuffle().bolt("store", JsonLines(folder / "rows.jsonl"))
        return topology, last

    def _source(self, topology: Topology, number: int, draw: Random, *, is_new: bool) -> Part:
        id, events = f"in-{number}", events_of(number, self.seconds, draw)
        stream: Any
        if self.in_batches:
            spout, about = EventBatches(self.signal, events), dict[str, Any]()
            if not number:
                about = {"store": InSqlite(self.folder / "progress.db"), "interval_s": _BATCHES_S}
            stream = batches(topology, id, spout, group="events", **about)
        else:
            stream = topology.spout(id, Events(self.signal, events))
        stream = stream.map(row_of, fields=FIELDS)
        stream = stream.map(alone, fields=FIELDS) if is_new else stream
        rows = [Row(*row_of(event)) for event in events]
        return Part(stream, lambda: rows, "source", is_source=True)

    def stored(self) -> Counter[Row]:
        """The rows that it has written, and how often."""
        if self.in_batches:
            items = dict(SqliteState(self.folder / "rows.db").items("rows"))
            return Counter({_row(json.loads(text)): times for text, times in items.items()})
        lines = (self.folder / "rows.jsonl").read_text(encoding="utf-8").splitlines()
        return Counter(_row(json.loads(line).values()) for line in lines)


def _other(tasks: int) -> int:
    return 3 - tasks


def _row(values: Any) -> Row:
    key, at, ids = values
    return Row(key, at, tuple(ids))


def _count_rows(state: MapState, rows: Sequence[Any]) -> None:
    times = Counter(json.dumps([*row[:2], [*row[2]]]) for row in rows)
    state.multi_update([*times], [partial(_plus, more) for more in times.values()])


def _plus(more: int, times: int | None) -> int:
    return (times or 0) + more


def run_programs(
    cluster: RayCluster, folder: Path, seconds: float, seed: int, log: Log
) -> dict[str, Any]:
    """Run each of them for so long, on both kinds of stream. Raises BenchmarkError if one does not
    finish."""
    each = []
    for number, name in enumerate(PROGRAMS):
        for in_batches in (False, True):
            place = folder / f"{name.replace(' ', '-')}-{in_batches:d}"
            place.mkdir(parents=True)
            declared = Declaration(name, place, StartSignal(place), seconds, seed, in_batches)
            generator = np.random.default_rng([seed, number])  # not the same victims in each
            figures = _run_program(cluster, declared, generator, log)
            each.append(figures)
            log(f"{figures['name']}: {figures['rows']:,} rows, {figures['missing']} missing")
    sums = ("rows", "missing", "repeated", "other", "kills", "upgrades")
    return {sum_: sum(run[sum_] for run in each) for sum_ in sums} | {"each": each}


def _upgrade(run: RayRun, declared: Declaration) -> int:
    """Give a program new code. Returns how often: never if it has finished, on a busy machine."""
    try:
        run.upgrade(declared.topology(is_new=True)[0].graph())
    except LifecycleError:
        if not run.finished():
            raise
        return 0
    return 1


def _run_program(
    cluster: RayCluster, declared: Declaration, generator: np.random.Generator, log: Log
) -> dict[str, Any]:
    topology, last = declared.topology()
    run = cluster.submit(topology.graph(), Layout.PACK)
    half_s, victims = declared.seconds / 2, ("worker", "master")
    try:
        declared.signal.send()
        kills = kill_repeatedly(run, half_s, victims, generator, log)
        upgrades = _upgrade(run, declared)
        kills += kill_repeatedly(run, half_s, victims, generator, log)
        wait_for_end(run, time.monotonic() + EVERY_S + _RECOVERY_MAX_S)
    finally:
        run.stop()
    counted = declared.stored()
    stored, expected = by_place(counted), by_place(last.rows())
    is_once = declared.in_batches and not last.is_update
    repeated = counted - Counter(last.rows()) if is_once else Counter[Row]()
    stages = stages_of(declared.name, in_batches=declared.in_batches)
    return {
        "name": declared.name + ", in batches" * declared.in_batches,
        "stages": " → ".join(stages),
        "rows": len(expected),
        "missing": sum(not stored.get(at, set()) >= ids for at, ids in expected.items()),
        "repeated": repeated.total(),
        "other": sum(ids != expected.get(at) for at, ids in stored.items()),
        "kills": len(kills),
        "upgrades": upgrades,
    }
