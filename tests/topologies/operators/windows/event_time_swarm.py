"""Random programs over event time: logs whose brokers fail while partitions move and are added."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from random import Random
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from sunshower import Bolt, Context, LogSpout, Polled, Topology, collect, tumbling
from sunshower.config import Internals
from sunshower.errors import ClusterError
from sunshower.runtime.events.event_log import What
from sunshower.runtime.events.injected_faults import InjectedFaults, Raise, SlowTask
from sunshower.runtime.plan import Layout
from sunshower.runtime.tasks.spouts import spout_task, watermark_sender
from sunshower.runtime.transport import channels
from sunshower.simulation import worker
from sunshower.simulation.cluster import SimCluster, SimRun
from sunshower.state import MemoryState
from sunshower.topologies.operators.windows import watermarks
from sunshower.trident.spouts import reached_times
from tests.simulation.swarm import FAULTS
from tests.trident.rigs.programs import heal

SHIFT = 32
LATE = 8.0
WINDOW = tumbling(seconds=4, field="at", late=LATE, unit="s")
FAR = 5e9  # in seconds since 1970: ahead of the simulator's clock
STEPS = 24  # of a second
SPEED = 3.0  # seconds of event time in a second
IDLE_S = 10.0  # instead of 30
DELAY_S = 5  # of producers: shorter than IDLE_S, in which a partition would be passed over
SETTLES_S = 2.0  # as in groups of Kafka
# An event of the simulator costs processor time, and simulated time does not. So a program is
# short, with short times until a partition is idle, and polls and watermarks are rare.
STATS_S = 1.0  # how often workers report statistics
_TIMES: tuple[tuple[Any, str, float], ...] = (
    (watermarks, "IDLE_S", IDLE_S),
    (watermarks, "GAP_S", IDLE_S / 3),
    (watermark_sender, "_EVERY_S", 0.8),
    (reached_times, "GAP_S", IDLE_S / 3),
    (spout_task, "_SHORTEST_S", 0.2),
    (channels, "_GRANT_S", 0.5),
    (worker, "_REPORT_SOON_S", STATS_S),
)
_NAMES = ("kill a worker", "kill the master", "kill a node", "pause a worker", "bad links")
_FAULTS = {
    **{name: FAULTS[name] for name in (*_NAMES, "other places")},
    "errors": lambda run, draw: run.disturb(
        InjectedFaults(raises=(Raise(component="relay", probability=draw.random() / 2),))
    ),
    "slowness": lambda run, draw: run.disturb(
        InjectedFaults(slows=(SlowTask(component="relay", seconds=draw.random() / 20),))
    ),
}
SETTINGS: dict[str, Any] = {
    "workers": 2,
    "ackers": 1,
    "attempts_max": 10_000,
    "message_timeout_s": IDLE_S,
    "internals": Internals(
        peer_link_retry_s=0.5, restart_backoff_s=0.05, task_backoff_s=0.05, idle_poll_s=1.0
    ),
    "deaths_max": 1_000,
    "task_errors_max": 1_000,
}


class Event(NamedTuple):
    number: int
    at: float


class EventLog:
    """Outlives processes. A partition that is `away` cannot be read or written."""

    def __init__(self, partitions: int, tasks: int) -> None:
        self.partitions: list[list[Event]] = [[] for _ in range(partitions)]
        self.buffered: list[list[Event]] = [[] for _ in range(partitions)]  # by producers
        self.committed = [0] * partitions
        self.owners = [part % tasks for part in range(partitions)]
        self.moves = 0
        self.away: set[int] = set()
        self.delayed_until: dict[int, int] = {}  # partition → the step until which producers wait
        self.found: set[int] = set()  # partitions that are in a batch
        self.ended = False

    def __deepcopy__(self, memo: object) -> EventLog:
        return self

    def __reduce__(self) -> Any:
        raise AssertionError("it belongs to one process")

    def add_partition(self, owner: int) -> None:
        self.partitions.append([])
        self.buffered.append([])
        self.committed.append(0)
        self.owners.append(owner)

    def write(self, part: int, event: Event) -> None:
        self.buffered[part].append(event)
        self.flush()

    def come_back(self) -> None:
        """End the outages and delays of all partitions."""
        self.away.clear()
        self.delayed_until.clear()
        self.flush()

    def flush(self) -> None:
        """Write what producers have buffered, except for brokers that are away."""
        for part, events in enumerate(self.buffered):
            if part not in self.away and part not in self.delayed_until:
                self.partitions[part] += events
                events.clear()


class LogReader(LogSpout[Event]):
    """Reads the partitions that it owns, at most `pace` records of each in a poll."""

    def __init__(self, log: EventLog, pace: int) -> None:
        self.log, self.pace = log, pace
        self.emits = Event

    def open(self, context: Context) -> None:
        self.clock, self.index = context.clock, context.index
        self.position: dict[int, int] = {}
        self.open_: dict[int, set[int]] = {}
        self.at_end: dict[int, float] = {}
        self.moves, self.moved_s = -1, 0.0

    def poll(self, limit: int) -> Polled[Event]:
        gone = self._look()
        numbers, records = list[int](), list[Event]()
        for part, first in self.position.items():
            self.at_end.pop(part, None)
            if part in self.log.away:
                continue
            events = self.log.partitions[part]
            end = min(len(events), first + self.pace, first + limit - len(numbers))
            numbers += [part << SHIFT | at for at in range(first, end)]
            records += events[first:end]
            self.open_[part] |= {*range(first, end)}
            self.position[part] = end
            if end == len(events):
                self.at_end[part] = self.clock.now()
        if not numbers:
            self.commit()
        done = self.log.ended and all(
            at == len(events)
            for at, events in zip(self.log.committed, self.log.partitions, strict=True)
        )
        return Polled(np.array(numbers, np.int64), records, gone=gone, ended=done)

    def acked(self, numbers: NDArray[np.int64]) -> None:
        for number in numbers.tolist():
            self.open_.get(number >> SHIFT, set()).discard(number & ((1 << SHIFT) - 1))

    def commit(self) -> None:
        for part, opened in self.open_.items():
            if part not in self.log.away:
                at = min(opened, default=self.position[part])
                self.log.committed[part] = max(at, self.log.committed[part])

    def partitions_read(self) -> list[int] | None:
        settled = self.clock.now() - self.moved_s >= SETTLES_S
        return [*self.position] if self.position or settled else None

    def partitions_at_end(self) -> Mapping[int, float]:
        return self.at_end

    def partitions_of(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        return numbers >> SHIFT

    def _look(self) -> list[tuple[int, int]]:
        if self.moves != self.log.moves:
            self.moves, self.moved_s = self.log.moves, self.clock.now()
        mine = {part for part, owner in enumerate(self.log.owners) if owner == self.index}
        lost = self.position.keys() - mine
        if lost:
            self.commit()
        for part in lost:
            del self.position[part], self.open_[part]
            self.at_end.pop(part, None)
        for part in sorted(mine - self.position.keys()):
            self.position[part], self.open_[part] = self.log.committed[part], set()
        return [(part << SHIFT, (part + 1) << SHIFT) for part in sorted(lost)]


class NoteNumbers(Bolt[Any, None]):
    """Writes the numbers of its windows to the event log."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def prepare(self, context: Context) -> None:
        self.context = context

    def process(self, record: Any) -> None:
        self.context.wrote(self.kind, tuple(record[2]))


def relay(event: Event) -> tuple[int, int, float]:
    return event.number % 3, event.number, event.at


CHANGES = ("silent", "delay", "away", "back", "move", "add", "old", "future", "end")
DISTURBANCES = {*CHANGES, *_FAULTS, "catch up"}


class EventProgram:
    """One random program. Its fields tell what was written: `on_time` and `too_old` numbers."""

    faults: Mapping[str, Any] = _FAULTS

    def __init__(self, seed: int) -> None:
        self.seed, draw = seed, Random(seed)
        self.draw = draw
        self.tasks = [draw.randint(1, 2) for _ in range(draw.choice((1, 2, 2)))]
        self.logs = [EventLog(draw.randint(1, 3), tasks) for tasks in self.tasks]
        self.density = {
            (source, part): draw.choice((0.1, 0.4, 1.2))
            for source, log in enumerate(self.logs)
            for part in range(len(log.partitions))
        }
        self.silent_until: dict[tuple[int, int], float] = {}
        self.on_time, self.too_old = set[int](), set[int]()
        self.numbers = 0
        self.happened = Counter[str]()  # disturbance → how often

    def topology(self) -> Topology:
        topology = Topology("events", spout_pending=64, **SETTINGS)
        spouts = [
            topology.spout(
                f"in-{n}", LogReader(log, self.draw.choice((1, 4, 50))), parallelism=tasks
            )
            for n, (log, tasks) in enumerate(zip(self.logs, self.tasks, strict=True))
        ]
        rows = [spout.map(relay, fields=("key", "number", "at")) for spout in spouts]
        merged = rows[0].merge(*rows[1:])
        windows = merged.group_by("key").window(
            WINDOW,
            collect("number"),
            fields=("key", "window", "numbers"),
            state=MemoryState(),
            parallelism=self.draw.randint(1, 2),
        )
        windows.shuffle().bolt("note", NoteNumbers("window"))
        windows.late.shuffle().bolt("note-late", NoteNumbers("late"))
        return topology

    def produce(self, step: int) -> None:
        """Write the records of one step. Their times are at most LATE before those of others."""
        for log in self.logs:
            for part in [part for part, until in log.delayed_until.items() if until <= step]:
                del log.delayed_until[part]
            log.flush()
        for (source, part), density in self.density.items():
            log = self.logs[source]
            if log.ended or self.silent_until.get((source, part), 0.0) > step:
                continue
            for _ in range(int(density + self.draw.random())):
                self._write(log, part, SPEED * step - self._disorder())

    def _disorder(self) -> float:
        return LATE * self.draw.choice((0.0, self.draw.random(), 1.0))

    def change(self, step: int, change: str) -> None:
        """Change one thing about the sources, if that is possible now: one of CHANGES."""
        draw = self.draw
        source = draw.randrange(len(self.logs))
        log, tasks = self.logs[source], self.tasks[source]
        part = draw.randrange(len(log.partitions))
        match change:
            case "silent":
                self.silent_until[source, part] = step + draw.choice((7, 14, 24))
            case "delay" if not (log.ended or log.buffered[part]) and part not in log.away:
                self._write(log, part, SPEED * step)
                log.delayed_until[part] = step + DELAY_S
                self._write(log, part, SPEED * step - LATE)
            case "away" if part not in log.away:
                log.away.add(part)
            case "back" if log.away:
                log.come_back()
            case "move" if tasks > 1:
                log.owners = [draw.randrange(tasks) for _ in log.owners]
                log.moves += 1
            case "add" if len(log.partitions) < 5:
                self.density[source, len(log.partitions)] = draw.choice((0.1, 0.4, 1.2))
                log.add_partition(draw.randrange(tasks))
                log.moves += 1
            case "old" if not log.ended:
                self._write(log, part, SPEED * step - 1_000.0, self.too_old)
            case "future" if not log.ended:
                self._write(log, part, SPEED * step + FAR)
            case "end" if sum(not log.ended for log in self.logs) > 1:
                log.come_back()
                log.ended = True
            case _:
                return
        self.happened[change] += 1

    def end(self) -> None:
        for log in self.logs:
            log.come_back()
            log.ended = True

    def _write(self, log: EventLog, part: int, at: float, kind: set[int] | None = None) -> None:
        self.numbers += 1
        (self.on_time if kind is None else kind).add(self.numbers)
        log.write(part, Event(self.numbers, at))


def run_program(program: EventProgram) -> SimRun:
    """Run a program to its end. Some of them catch up with a third of their records first."""
    draw, seed = Random(-program.seed - 1), program.seed
    behind = STEPS // 3 if draw.random() < 0.5 else 0
    program.happened["catch up"] += behind > 0
    for step in range(behind):
        program.produce(step)
    cluster = SimCluster(seed, nodes=1 + seed % 2, check=seed % 20 == 0)
    with _short_times():
        run = cluster.submit(program.topology().graph(), list(Layout)[seed % 8 > 0], sample=1)
        for step in range(behind, STEPS):
            run.wait(1.0)
            program.produce(step)
            is_chosen = step == 2 * STEPS // 3  # so that a few programs have each disturbance
            if is_chosen or draw.random() < 0.35:
                program.change(step, CHANGES[seed % 9] if is_chosen else draw.choice(CHANGES))
            if is_chosen or draw.random() < 0.1:
                faults = [*program.faults]
                fault = faults[seed % len(faults)] if is_chosen else draw.choice(faults)
                with suppress(ClusterError):
                    program.faults[fault](run, draw)
                    program.happened[fault] += 1
        heal(run)
        program.end()
        assert run.wait(600.0), f"seed {seed}: the run does not end\n{run._describe()}"
        world = run._env.world
        world.run_until(world.now_s + 2 * STATS_S)  # the last statistics of all workers
    return run


@contextmanager
def _short_times() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for module, name, seconds in _TIMES:
            patch.setattr(module, name, seconds)
        yield


def numbers_of(run: SimRun, kind: str) -> set[int]:
    """The numbers of the records in windows, or in late rows."""
    written = (entry.detail for entry in run.history() if entry.what is What.WROTE)
    return {number for place, numbers in written if place == kind for number in numbers}


def late_counts(program: EventProgram, run: SimRun) -> tuple[int, bool]:
    """How many records the run has counted as late, and whether none of these counts was lost with
    its process."""
    snapshot = run.snapshot()
    counted = sum(snapshot.component(id).late for id in run.plan.graph.components)
    lost = any(
        fault in program.happened for fault in _FAULTS if fault.startswith(("kill", "pause"))
    )
    return counted, not lost
