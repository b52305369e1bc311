"""Random programs over event time in exactly-once batches, with the logs of those over streams."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from math import ceil
from random import Random
from typing import Any, NamedTuple

from benchmarks.simulated.stage_chains import FIELDS, Part, Row, StageChain, alone
from sunshower import Context, KeyState, Topology, collect, sessions, tumbling
from sunshower.errors import Unavailable
from sunshower.runtime.events.injected_faults import InjectedFaults, Raise
from sunshower.simulation.cluster import SimRun
from sunshower.state import MemoryState
from sunshower.topologies.operators.states import MapState
from sunshower.trident import (
    InMemory,
    OpaquePartitionedSpout,
    PartitionedSpout,
    Skip,
    StateKind,
    batches,
)
from sunshower.trident.spouts.bounds import Room
from sunshower.trident.states.factories import KeptState
from tests.topologies.operators.windows.event_time_swarm import (
    DELAY_S,
    LATE,
    SETTINGS,
    SPEED,
    WINDOW,
    Event,
    EventLog,
    EventProgram,
    relay,
)
from tests.topologies.operators.windows.stage_swarm import StageProgram, kinds_of
from tests.topologies.operators.windows.stage_swarm import numbers_in as numbers_in_row
from tests.topologies.operators.windows.stage_swarm import relay as numbered_event
from tests.trident.rigs.batch_swarm import UnreliableStore
from tests.trident.rigs.unsure import Troubles, UnsureState


class _LogBatches:
    """Reads the partitions of a log, at most `pace` records of each for a batch."""

    emits = Event

    def __init__(self, log: EventLog, pace: int, draw: Random | None) -> None:
        """`draw`: by which the size of each attempt differs."""
        self.log, self.pace, self.draw = log, pace, draw

    def __deepcopy__(self, memo: object) -> Any:
        return type(self)(self.log, self.pace, self.draw)

    def open(self, context: Context) -> None:
        self.clock = context.clock
        self.at_end: dict[str, float] = {}

    def partitions(self) -> Sequence[str]:
        return [str(part) for part in range(len(self.log.partitions))]

    def emit_all_new(self, last: Mapping[str, Any], room: Room) -> dict[str, Any]:
        self.at_end, positions = {}, {}
        for name, before in last.items():
            part, first = int(name), before["end"] if before else 0
            self.log.found.add(part)
            if part in self.log.away:
                continue
            begun_s, events = self.clock.now(), self.log.partitions[part]
            pace = self.pace if self.draw is None else self.draw.randint(1, 2 * self.pace)
            end = min(len(events), first + pace)
            room.partition = name
            room.emit(events[first:end])
            positions[name] = {"first": first, "end": end}
            if end == len(events):
                self.at_end[name] = begun_s
        return positions

    def emit_all_again(self, metadata: Mapping[str, Any], room: Room) -> None:
        if any(int(name) in self.log.away for name in metadata):
            raise Unavailable("a partition is away")
        for name, extent in metadata.items():
            room.emit(self.log.partitions[int(name)][extent["first"] : extent["end"]])

    def partitions_at_end(self) -> Mapping[str, float]:
        return self.at_end

    def is_end(self, partition: str, metadata: Any) -> bool:
        return self.log.ended and metadata["end"] >= len(self.log.partitions[int(partition)])


class Transactional(_LogBatches, PartitionedSpout):
    pass


class Opaque(_LogBatches, OpaquePartitionedSpout):
    pass


VISITS = sessions(gap=3, field="at", late=LATE, unit="s")
UPDATED = tumbling(seconds=4, field="at", allowed=LATE, unit="s")
BEHIND = (  # windows of the results of others
    None,
    tumbling(seconds=8, field="window", unit="s"),
    sessions(gap=5, field="window", unit="s"),
)


class Numbered(NamedTuple):
    number: int


def numbered(event: Any, state: KeyState[float]) -> Iterator[Numbered]:
    """The number of each event; twice if an event with a higher time came before."""
    _, number, at = event
    yield from [Numbered(number)] * (1 + (state.value is not None and at < state.value))
    state.value = at


class _BatchLogs(EventProgram):
    """Before a batch has an added partition, it gets no records."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.first = dict.fromkeys(self.density)  # partitions that were not added

    def produce(self, step: int) -> None:
        density = self.density
        self.density = {
            (source, part): rate
            for (source, part), rate in density.items()
            if (source, part) in self.first or part in self.logs[source].found
        }
        super().produce(step)
        self.density = density


class BatchProgram(_BatchLogs):
    """One random program; what it has written is in its states: the numbers of the records in
    windows, those that came too late, and those that came too late for a second window."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        kind = self.draw.choice((StateKind.OPAQUE, StateKind.TRANSACTIONAL))
        self.kinds = [self.draw.choice((Transactional, Opaque)) for _ in self.logs]
        has_opaque = Opaque in self.kinds
        self.open = MemoryState(StateKind.OPAQUE if has_opaque else kind)
        self.windows, self.late, self.too_late = MemoryState(), MemoryState(), MemoryState()
        draw = Random(seed + 1)
        self.window, self.behind = draw.choice((WINDOW, VISITS, UPDATED)), draw.choice(BEHIND)
        self.opened = MemoryState(self.open.kind)  # of the second window
        self.waiting, self.ordered, self.unordered = MemoryState(), MemoryState(), MemoryState()

    def topology(self) -> Topology:
        topology, draw = Topology("events", **SETTINGS), self.draw
        streams = [
            stream.map(relay, fields=("key", "number", "at"))
            for stream in streams_of(self, topology, self.kinds, draw, InMemory())
        ]
        by_key = streams[0].merge(*streams[1:]).group_by("key")
        numbers = collect("number", name="numbers")
        windows = by_key.window(
            self.window, numbers, state=self.open, parallelism=draw.randint(1, 2)
        )
        ordered = by_key.in_order("at", late=LATE, unit="s").process(
            numbered, state=self.waiting, name="waiting", parallelism=draw.randint(1, 2)
        )
        ordered.aggregate(collect("number"), state=self.ordered, name="ordered")
        ordered.late.aggregate(collect("number"), state=self.unordered, name="unordered")
        windows.late.aggregate(collect("numbers"), state=self.late, name="too-late")
        ended: Any = windows
        if self.behind is not None and self.window is not UPDATED:
            ended = windows.group_by("key").window(
                self.behind,
                collect("numbers", name="numbers"),
                fields=("key", "end", "numbers"),
                name="second",
                state=self.opened,
                parallelism=2,
            )
            ended.late.aggregate(collect("numbers"), state=self.too_late, name="too-late-again")
        ended.aggregate(collect("numbers"), state=self.windows, name="ended")
        return topology


def other_numbers(run: SimRun, draw: Random) -> None:
    """Give a stage that can have it another number of tasks."""
    tasks = draw.randint(1, 3)
    stages = [
        id
        for id, component in run.plan.graph.components.items()
        if getattr(component.implementation, "refuses", str)(tasks) is None
    ]
    run.rebalance(tasks={draw.choice(stages): tasks}, wait_s=draw.choice((0.0, 5.0)))


def errors(run: SimRun, draw: Random) -> None:
    """A stage fails some batches, which are repeated."""
    stages = [id for id in run.plan.graph.components if not id.startswith("$")]
    fault = Raise(component=draw.choice(stages), probability=draw.random() / 10)
    run.disturb(InjectedFaults(raises=(fault,)))


class Unopened:
    """Code that a task cannot open."""

    def prepare(self, context: Context) -> None:
        raise ValueError("on purpose: it does not open")

    def __call__(self, row: Any) -> tuple[int, Any, tuple[int, ...]]:
        return alone(row)


def skewed(event: Event) -> tuple[int, int, tuple[int, ...]]:
    key, at, ids = numbered_event(event)
    return key if event.number % 2 else 0, at, ids


SILENT_S = 4.0  # after which a worker is replaced; sources are idle later


class BatchStageProgram(_BatchLogs, StageProgram):
    """A random chain of stages in batches. Its rows and the late ones are in states, like those of
    the stages: their store may lose answers, and write late or twice."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.kinds = kinds_of(seed, in_batches=True)
        self.faults = {
            **StageProgram.faults,
            "other numbers": other_numbers,
            "errors": errors,
            "new code": self._upgrade,
            "a silent worker": self._suspend,
            "an unsure store": self._be_unsure,
            "a store away": self._be_away,
        }
        # Of every second program one key has most of the records.
        self._row_of = skewed if seed % 2 else numbered_event
        self.batches = UnreliableStore(Random(seed + 2))
        self.troubles = Troubles(Random(seed + 3), (0.0, 0.0, 0.2)[seed % 3])
        self.states = dict[str, UnsureState]()
        self._silent, self._step = dict[int, tuple[SimRun, int]](), 0
        self._back = 0  # when the store is there again

    def topology(self) -> Topology:
        self._begun = self.draw.getstate()
        return self._declared(self.draw)

    def _declared(self, draw: Random, tasks: Any = int, code: Any = None) -> Topology:
        """`tasks`: see StageChain; `code`: a function of the rows of the sources that changes
        nothing."""
        topology = Topology("stages", worker_timeout_s=SILENT_S, **SETTINGS)
        states = (f"state {number}" for number in count())
        chain = StageChain(
            draw,
            LATE,
            LATE + SPEED * DELAY_S,
            self._keep_late,
            lambda: self._state(next(states)),
            in_batches=True,
            tasks=tasks,
        )
        kinds = [draw.choice((Transactional, Opaque)) for _ in self.logs]
        parts = []
        streams = streams_of(self, topology, kinds, draw, self.batches)
        for stream, log in zip(streams, self.logs, strict=True):
            rows = stream.map(self._row_of, fields=FIELDS)
            rows = rows if code is None else rows.map(code, fields=FIELDS)
            parts.append(Part(rows, self._on_time(log), "source", is_source=True))
        last = parts[0]
        for number, kind in enumerate(self.kinds):
            last = chain.stage(f"s{number}", kind, last, parts)
            parts.append(last)
        _keep(last.stream, self._state("rows"), "rows")
        self.last = last
        return topology

    def _state(self, name: str) -> UnsureState:
        """The state of a name: new code has the same ones."""
        return self.states.setdefault(name, UnsureState(MemoryState(), self.troubles))

    def _upgrade(self, run: SimRun, draw: Random) -> None:
        """New code, with other numbers of tasks. A third of it does not open: then the former code
        continues."""
        begun = Random()
        begun.setstate(self._begun)
        code = draw.choice((alone, alone, Unopened()))
        new = self._declared(begun, lambda _: draw.randint(1, 3), code)
        run.upgrade(new.graph(), wait_s=draw.choice((0.0, 5.0)), waits=False)

    def _suspend(self, run: SimRun, draw: Random) -> None:
        """A worker is silent until another process has replaced it, and then continues."""
        worker = draw.choice(run.plan.workers)
        run.pause_worker(worker)
        self._silent[worker] = run, self._step + ceil(SILENT_S) + draw.randint(1, 5)

    def _be_unsure(self, run: SimRun, draw: Random) -> None:
        self.troubles.ratio = self.batches.share = draw.choice((0.1, 0.3))

    def _be_away(self, run: SimRun, draw: Random) -> None:
        self.troubles.is_away, self._back = True, self._step + draw.randint(2, 12)

    def produce(self, step: int) -> None:
        self._step = step
        self.troubles.is_away &= step < self._back
        for worker, (run, until) in [*self._silent.items()]:
            if until <= step:
                del self._silent[worker]
                run.resume_worker(worker)
        super().produce(step)

    def end(self) -> None:
        self.troubles.ratio = self.batches.share = 0.0
        self.troubles.is_away = False
        super().end()

    def written(self) -> list[Row]:
        """The rows of the last stage, without the ids of records that came too late."""
        self.troubles.calm()
        return [
            Row(row.key, row.at, ids)
            for row in _kept(self.states["rows"])
            if (ids := tuple(sorted({*row.ids} - self.too_old)))
        ]

    def late(self) -> dict[str, set[int]]:
        """The records that came too late for a stage, by its name."""
        return {
            name: ids
            for name, state in self.states.items()
            if name.endswith("late")
            and (ids := {id for row in _kept(state) for id in row.ids} - self.too_old)
        }

    def _keep_late(self, name: str, stream: Any) -> None:
        _keep(stream, self._state(name), name)

    def _on_time(self, log: EventLog) -> Any:
        return lambda: [
            Row(*self._row_of(event))
            for part in log.partitions
            for event in part
            if event.number in self.on_time
        ]


def _keep(stream: Any, state: KeptState, name: str) -> None:
    stream.global_().partition_persist(state, _keep_rows, name=name)


def _keep_rows(state: MapState, rows: Sequence[Any]) -> Iterator[Any]:
    new = [[row[0], row[1], sorted(numbers_in_row(row[2:]))] for row in rows]
    state.multi_put(["rows"], [[*(state.multi_get(["rows"])[0] or ()), *map(_as_lists, new)]])
    yield from ()


def _as_lists(row: list[Any]) -> list[Any]:
    key, at, ids = row
    return [key, at if isinstance(at, int | float) else str(at), ids]


def _kept(state: KeptState) -> list[Row]:
    return [Row(key, at, tuple(ids)) for key, at, ids in dict(state.items()).get("rows", ())]


def streams_of(
    program: EventProgram, topology: Topology, kinds: Sequence[Any], draw: Random, store: Any
) -> list[Any]:
    """The batches of the sources of a program."""
    streams = list[Any]()
    about: Any = {
        "store": store,
        "max_batches": draw.choice((1, 1, 3)),
        "interval_s": draw.choice((1.0, 2.0)),
        "skip": Skip(attempts=10_000),
    }
    for number, (log, tasks, kind) in enumerate(
        zip(program.logs, program.tasks, kinds, strict=True)
    ):
        chance = Random(program.seed) if kind is Opaque else None
        spout = kind(log, draw.choice((2, 4, 50)), chance)
        options = {"parallelism": tasks, "group": "g", **(about if not number else {})}
        stream: Any = batches(topology, f"in-{number}", spout, **options)
        if not number or draw.random() < 0.5:
            name = "relay" if not number else f"relay-{number}"
            stream = stream.partition_by("number", parallelism=2).named(name)
        streams.append(stream)
    return streams


def numbers_in(state: MemoryState) -> Counter[int]:
    """How often the number of each record is in the rows that a program has kept."""
    value = dict(state.items()).get("$GLOBAL$", [])
    return Counter(_numbers(value))


def _numbers(value: Any) -> Iterator[int]:
    if isinstance(value, int):
        yield value
    else:
        for item in value:
            yield from _numbers(item)
