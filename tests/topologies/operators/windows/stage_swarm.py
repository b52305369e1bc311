"""Random chains of up to four stages over event time, behind sources that fail in many ways."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from itertools import pairwise
from math import ceil
from random import Random
from typing import Any

from benchmarks.simulated.stage_chains import (
    FAMILIES,
    FIELDS,
    PAIRS,
    Part,
    Row,
    StageChain,
    by_place,
    followers,
)
from sunshower import Bolt, Context, Topology
from sunshower.runtime.events.event_log import What
from sunshower.simulation.cluster import SimRun
from sunshower.topologies.streams import Stream
from tests.topologies.operators.windows.event_time_swarm import (
    DELAY_S,
    LATE,
    SETTINGS,
    SPEED,
    Event,
    EventLog,
    EventProgram,
    LogReader,
)


def relay(event: Event) -> tuple[int, int, tuple[int, ...]]:
    return event.number % 3, int(event.at), (event.number,)


def numbers_in(values: Any) -> set[int]:
    """The numbers of events in lists, which may be in lists."""
    lists = [value for value in values if isinstance(value, tuple | list)]
    return {
        number
        for items in lists
        for each in items
        for number in (each if isinstance(each, tuple | list) else [each])
    }


class Note(Bolt[Any, None]):
    """Writes its rows to the event log."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def prepare(self, context: Context) -> None:
        self.context = context

    def process(self, record: Any) -> None:
        ids = tuple(sorted(numbers_in(record[2:])))
        at = record[1] if isinstance(record[1], int | float) else str(record[1])
        self.context.wrote(self.kind, (record[0], at, ids))


def note_late(name: str, stream: Stream[Any]) -> None:
    stream.shuffle().bolt(name, Note("late"))


def kinds_of(seed: int, *, in_batches: bool = False) -> list[str]:
    """The kinds of the stages of a program: each pair of families begins as many programs."""
    draw = Random(f"kinds {seed}")
    pairs = [
        (family, other)
        for family, other in PAIRS
        if other in followers([family], in_batches=in_batches)
    ]
    families, stages = [*pairs[seed % len(pairs)]], draw.choice((2, 3, 4, 4))
    while len(families) < stages and (behind := followers(families, in_batches=in_batches)):
        families.append(draw.choice(behind))
    return [draw.choice(FAMILIES[family]) for family in families]


def other_numbers(run: SimRun, draw: Random) -> None:
    """Give a stage another number of tasks."""
    stage = draw.choice([bolt.id for bolt in run.plan.graph.bolts if re.fullmatch(r"s\d", bolt.id)])
    run.rebalance(tasks={stage: draw.randint(1, 3)}, wait_s=draw.choice((0.0, 5.0)))


class StageProgram(EventProgram):
    """Two to four stages, each behind the one before, or behind that and a source or another."""

    faults: Mapping[str, Any] = {"other numbers": other_numbers, **EventProgram.faults}

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.kinds = kinds_of(seed)  # of its stages, in their order
        self.last: Part | None = None

    def _write(self, log: EventLog, part: int, at: float, kind: set[int] | None = None) -> None:
        super()._write(log, part, ceil(at), kind)

    def topology(self) -> Topology:
        draw, topology = self.draw, Topology("stages", spout_pending=64, **SETTINGS)
        # A producer may wait so long before it writes the next change of a table.
        chain = StageChain(draw, LATE, LATE + SPEED * DELAY_S, note_late)
        parts = [
            self._source(topology, n, log, tasks)
            for n, (log, tasks) in enumerate(zip(self.logs, self.tasks, strict=True))
        ]
        last = parts[0]
        for number, kind in enumerate(self.kinds):
            last = chain.stage(f"s{number}", kind, last, parts)
            parts.append(last)
        last.stream.shuffle().bolt("note", Note("row"))
        self.last = last
        return topology

    def expected(self) -> dict[tuple[int, Any], set[int]]:
        """The rows of the last stage: (key, time) → ids."""
        assert self.last is not None
        return by_place(self.last.rows())

    def _source(self, topology: Topology, number: int, log: EventLog, tasks: int) -> Part:
        reader = LogReader(log, self.draw.choice((1, 4, 50)))
        stream = topology.spout(f"in-{number}", reader, parallelism=tasks).map(relay, fields=FIELDS)

        def rows() -> list[Row]:
            events = (event for part in log.partitions for event in part)
            return [Row(*relay(event)) for event in events if event.number in self.on_time]

        return Part(stream, rows, "source", is_source=True)


def neighbours(seeds: range) -> Counter[tuple[str, str]]:
    """How often kinds of stages are next to each other in the programs of these seeds."""
    return Counter(pair for seed in seeds for pair in pairwise(kinds_of(seed)))


def written(run: SimRun, kind: str, old: set[int]) -> dict[tuple[int, Any], set[int]]:
    """The rows of a kind of note: (key, time) → ids, without those of `old` events."""
    details = (entry.detail for entry in run.history() if entry.what is What.WROTE)
    rows = [Row(*row) for place, row in details if place == kind]
    return by_place([Row(row.key, row.at, ids) for row in rows if (ids := _but(row.ids, old))])


def _but(ids: tuple[int, ...], old: set[int]) -> tuple[int, ...]:
    return tuple(id for id in ids if id not in old)
