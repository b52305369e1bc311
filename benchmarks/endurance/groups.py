"""The experiment groups: sessions exactly once, a million open, and the time and memory of batches.

A batch has a second of event time: 10,000 events, of which half begin a session, and half are the
second and last event of one. So as many sessions end with each batch as begin with it. The events
come as fast as they are processed, from one process, without Ray; states and progress are in
SQLite, on the disk when a batch is committed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from benchmarks import machine
from benchmarks.measure import BenchmarkError, Log
from sunshower import Bolt, Topology, count, sessions
from sunshower.runtime.control.lifecycle import State
from sunshower.runtime.garbage import collect_seldom
from sunshower.runtime.inline import InlineTopology
from sunshower.state import SqliteState
from sunshower.trident import InSqlite, batches
from sunshower.trident.spouts.bounds import Bounds, Room
from sunshower.trident.spouts.port import PartitionedSpout
from sunshower.trident.stages.batch_windows import KEY

RATE = 10_000  # events a second of event time
OPEN = 1_000_000  # sessions
PAUSE_S = OPEN // RATE  # between the two events of a session, and after the second one
_SECOND = 1_000  # milliseconds
_MASTER, _STATE, STATES = "$mastercoord-events", "sessions", "states.db"
_SAMPLES = 20  # at least, of the time after the first sessions have ended
_WORK_S = 0.2


class Event(NamedTuple):
    session: int
    at: int  # milliseconds


class Ended(NamedTuple):
    session: int
    end: int
    events: int


class Events(PartitionedSpout):
    """The events of so many seconds, a second in each batch."""

    emits = Event
    bounds = Bounds(records=RATE)

    def __init__(self, seconds: int) -> None:
        self.seconds = seconds

    def partitions(self) -> Sequence[str]:
        return ["events"]

    def emit_new(self, partition: str, last: Any, room: Room) -> Any:
        first = last["end"] if last else 0
        end = min(first + room.records, self.seconds * RATE)
        self.emit_again(partition, {"first": first, "end": end}, room)
        return {"first": first, "end": end}

    def emit_again(self, partition: str, metadata: Any, room: Room) -> None:
        room.emit([event(number) for number in range(metadata["first"], metadata["end"])])

    def is_end(self, partition: str, metadata: Any) -> bool:
        return bool(metadata["end"] == self.seconds * RATE)


def event(number: int) -> Event:
    """An event of an even number begins a session. Another one is the last of a session, or in the
    first PAUSE_S seconds alone in one, whose number is negative."""
    session = number // 2 - (number % 2) * PAUSE_S * RATE // 2
    return Event(session, number * _SECOND // RATE)


class Sink(Bolt[Ended, None]):
    """Raises for a session with another number of events."""

    def process(self, record: Ended) -> None:
        if record.events != (1 if record.session < 0 else 2):
            raise BenchmarkError(f"{record}")


def declared(folder: Path, seconds: int) -> Topology:
    topology = Topology("groups")
    events = batches(topology, "events", Events(seconds), store=InSqlite(folder / "batches.db"))
    gap = (PAUSE_S + 1) * _SECOND
    window = sessions(gap=gap, field="at", at_end="keep", ahead=None)
    state = SqliteState(folder / STATES)
    ended: Any = events.group_by("session").window(
        window, count(), fields=Ended, name=_STATE, state=state
    )
    ended.records("ended").shuffle().bolt("sink", Sink(), fields=())
    return topology


def run_groups(folder: Path, seconds: float, log: Log) -> dict[str, Any]:
    """One run over `seconds` of event time after the first sessions have ended."""
    folder.mkdir(parents=True)
    collect_seldom()  # as a worker does
    before, after = 2 * PAUSE_S + 1, int(seconds)
    every = max(after // _SAMPLES, 1)
    samples: list[dict[str, float]] = []
    with InlineTopology(declared(folder, before + after).graph()) as topology:
        at, at_s = 0.0, time.monotonic()
        while (snapshot := topology.snapshot()).state is not State.FINISHED:
            topology.work(_WORK_S)
            done = topology.snapshot().figures(_MASTER).get("batches committed", 0)
            if done - at >= every:
                now = time.monotonic()
                sample = {
                    "batches": done,
                    "batch_s": round((now - at_s) / (done - at), 3),
                    "mib": round(machine.resident([os.getpid()]) / (1 << 20)),
                }
                at, at_s = done, now
                samples.append(sample)
                log(f"{sample}")
        ended = snapshot.component("sink").executed
    stored = sum(1 for key, _ in SqliteState(folder / STATES, name=_STATE).items() if key != KEY)
    lost = (before + after + PAUSE_S) * RATE // 2 - ended - stored
    return {"open": stored, "ended": ended, "lost": lost, **figures(samples, before)}


def figures(samples: Sequence[Mapping[str, float]], before: int) -> dict[str, Any]:
    """The figures of a run: medians of a quarter of its samples, after the first `before` batches
    and at the end."""
    steady = [sample for sample in samples if sample["batches"] > before]
    size = max(len(steady) // 4, 1)
    first, last = (
        {name: median(sample[name] for sample in part) for name in ("batch_s", "mib")}
        for part in (steady[:size], steady[-size:])
    )
    return {
        "samples": [*samples],
        "batch_s": last["batch_s"],
        "slower": round(last["batch_s"] / first["batch_s"], 3),
        "mib": last["mib"],
        "larger": round(last["mib"] / first["mib"], 3),
    }
