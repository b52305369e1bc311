"""Random programs over event time in exactly-once batches, with the logs of those over streams."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Any, NamedTuple

from sunshower import Context, KeyState, Topology, collect, sessions, tumbling
from sunshower.errors import Unavailable
from sunshower.state import MemoryState
from sunshower.trident import (
    InMemory,
    OpaquePartitionedSpout,
    PartitionedSpout,
    Skip,
    StateKind,
    batches,
)
from sunshower.trident.spouts.bounds import Room
from tests.topologies.operators.windows.event_time_swarm import (
    LATE,
    SETTINGS,
    WINDOW,
    Event,
    EventLog,
    EventProgram,
    relay,
)


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
        self.at_end, found = {}, {}
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
            found[name] = {"first": first, "end": end}
            if end == len(events):
                self.at_end[name] = begun_s
        return found

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


class BatchProgram(EventProgram):
    """One random program; what it has written is in its states: the numbers of the records in
    windows, those that came too late, and those that came too late for a second window."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.first = dict.fromkeys(self.density)  # partitions that were not added
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
        about: Any = {
            "store": InMemory(),
            "max_batches": draw.choice((1, 1, 3)),
            "interval_s": draw.choice((1.0, 2.0)),
            "skip": Skip(attempts=10_000),
        }
        streams = []
        for number, (log, tasks, kind) in enumerate(
            zip(self.logs, self.tasks, self.kinds, strict=True)
        ):
            chance = Random(self.seed) if kind is Opaque else None
            spout = kind(log, draw.choice((2, 4, 50)), chance)
            given = {"parallelism": tasks, "group": "g", **(about if not number else {})}
            stream = batches(topology, f"in-{number}", spout, **given)
            if not number or draw.random() < 0.5:
                name = "relay" if not number else f"relay-{number}"
                stream = stream.partition_by("number", parallelism=2).named(name)
            streams.append(stream.map(relay, fields=("key", "number", "at")))
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

    def produce(self, step: int) -> None:
        """Write the records of one step. Before a batch has an added partition, it gets none."""
        density = self.density
        self.density = {
            (source, part): one
            for (source, part), one in density.items()
            if (source, part) in self.first or part in self.logs[source].found
        }
        super().produce(step)
        self.density = density


def numbers_in(state: MemoryState) -> Counter[int]:
    """How often the number of each record is in the rows that a program has kept."""
    value = dict(state.items()).get("$GLOBAL$", [])
    return Counter(_numbers(value))


def _numbers(value: Any) -> Iterator[int]:
    if isinstance(value, int):
        yield value
    else:
        for one in value:
            yield from _numbers(one)
