"""Programs of batches whose states move between runs that end anywhere."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from random import Random
from typing import Any, NamedTuple

from sunshower import (
    KeyState,
    Topology,
    collect,
    count,
    run_inline,
    sessions,
    sliding,
    sum_,
    tumbling,
)
from sunshower.clock import ManualClock
from sunshower.errors import TopologyFailed
from sunshower.state.backing import Backing, Home, Mark
from sunshower.topologies.operators.states import MapState, StateKind
from sunshower.trident import InMemory, OpaquePartitionedSpout, PartitionedSpout, batches
from sunshower.trident.spouts.bounds import Room
from sunshower.trident.states.factories import KeptState

KEYS = "abcdefg"
SIZE = 60
HOUR_S = 3_600
BEGIN_S = datetime(2026, 3, 28, 8, tzinfo=UTC).timestamp()  # a day that ends, and one of 23 hours


class Event(NamedTuple):
    key: str
    number: int
    at: float


class Total(NamedTuple):
    key: str
    count: int
    sum: int
    odd: int


class Sized(NamedTuple):
    size: int
    sum: int


class ProcessEnded(TopologyFailed):
    """The process ends at this call."""


@dataclass
class Life:
    """Ends the process at its write number `last`, before or after it takes effect."""

    last: int | None = None
    is_after: bool = False
    writes: int = 0

    @property
    def has_ended(self) -> bool:
        return self.last is not None and self.writes >= self.last

    def write(self, function: Callable[[], None]) -> None:
        self.writes += 1
        is_last = self.writes == self.last
        if is_last and not self.is_after:
            raise ProcessEnded
        function()
        if is_last:
            raise ProcessEnded


class MortalBacking:
    """A client of a part whose writes may end the process."""

    def __init__(self, inner: Backing, life: Life) -> None:
        self._inner, self._life = inner, life

    def mark(self) -> Mark | None:
        return self._inner.mark()

    def get(self, keys: Sequence[str]) -> list[str | None]:
        return self._inner.get(keys)

    def put(self, changes: Mapping[str, str | None], mark: Mark, seen: str | None) -> None:
        self._life.write(lambda: self._inner.put(changes, mark, seen))

    def items(self) -> Iterator[tuple[str, str]]:
        return self._inner.items()

    def count(self) -> int | None:
        return self._inner.count()

    def close(self) -> None:
        self._inner.close()


@dataclass(frozen=True)
class MortalState(KeptState):
    """A state of another kind of store whose writes may end the process."""

    inner: KeptState
    life: Life = field(compare=False, repr=False)
    kind: StateKind = StateKind.OPAQUE
    name: str | None = None

    @property
    def where(self) -> str:
        return self.inner.where

    def open(self, home: Home) -> Backing:
        return MortalBacking(self.inner.open(home), self.life)

    def homes(self) -> list[Home]:
        return self.inner.homes()

    def __deepcopy__(self, memo: Any) -> MortalState:
        return self


def stored_name(state: KeptState) -> str:
    """That under which a program has a state: the name of one in a server has a space, and differs
    from those of other programs."""
    return (state.name or "").replace(" ", "-")


def events_of(draw: Random) -> list[list[Event]]:
    """The records of two partitions, each in the order of its times."""
    partitions: list[list[Event]] = [[], []]
    for number in range(SIZE):
        key = draw.choice(KEYS)
        partitions[ord(key) % 2].append(Event(key, number, BEGIN_S + number * HOUR_S))
    return partitions


class _Logs:
    """Two partitions; a batch has some records of each, which need not be equal in each attempt of
    an opaque one."""

    emits = Event

    def __init__(self, logs: Sequence[Sequence[Event]], draw: Random) -> None:
        self.logs, self.draw = logs, draw

    def __deepcopy__(self, memo: object) -> Any:
        return self

    def partitions(self) -> Sequence[str]:
        return ["0", "1"]

    def emit_new(self, partition: str, last: Any, room: Room) -> Any:
        log, first = self.logs[int(partition)], last["end"] if last else 0
        end = min(len(log), first + self.draw.choice((0, 1, 3, 6)))
        room.emit(log[first:end])
        return {"first": first, "end": end}

    def emit_again(self, partition: str, metadata: Any, room: Room) -> None:
        room.emit(self.logs[int(partition)][metadata["first"] : metadata["end"]])

    def is_end(self, partition: str, metadata: Any) -> bool:
        return bool(metadata["end"] == len(self.logs[int(partition)]))


class Transactional(_Logs, PartitionedSpout):
    pass


class Opaque(_Logs, OpaquePartitionedSpout):
    pass


def same(event: Event) -> Iterator[Event]:
    yield event


def odd_ones(event: Event, state: KeyState[list[int]]) -> Iterator[Event]:
    numbers = [*(state.value or ()), event.number]
    state.value = numbers if len(numbers) < 5 else None  # removed, and begun again
    if event.number % 2:
        yield event


def sized(total: Total) -> Sized:
    return Sized(total.count // 3, total.sum)


def is_odd(event: Event) -> bool:
    return event.number % 2 == 1


def half(event: Event) -> tuple[int, int]:
    return event.number, event.number // 2


def keep_rows(state: MapState, rows: Sequence[Any]) -> Iterator[Any]:
    """Store the rows of a batch below its first one, or below the rows that are equal."""
    counts = Counter(tuple(map(str, row)) for row in rows)
    (old,) = state.multi_get(["rows"])
    state.multi_put(["rows"], [sorted([*(map(tuple, old or ())), *counts.elements()])])
    yield from ()


WINDOWS = ("slid", "days", "visits", "spans")
STATES = ("totals", "sizes", "marked", *WINDOWS, "updated", "last", "threes", "joined")


class MovingProgram:
    """A program with a state of every kind, whose numbers of tasks differ from run to run."""

    names: Sequence[str] = (*STATES, *(f"{name}-rows" for name in (*WINDOWS, "threes", "odd")))

    def __init__(
        self, seed: int, is_opaque: bool, kind: StateKind, store: Callable[[str, StateKind], Any]
    ) -> None:
        """`store`: makes a state of a name and a kind."""
        self.draw, self.is_opaque, self.kind = Random(seed), is_opaque, kind
        self.code: Any = same
        self.logs = events_of(Random(seed))
        self.batches, self.max_batches = InMemory(), self.draw.choice((1, 3))
        self.states = {name: store(name, self._kind_of(name)) for name in self.names}

    def _kind_of(self, name: str) -> StateKind:
        may_differ = name in ("marked", "odd-rows") or "rows" in name or name == "threes"
        return StateKind.OPAQUE if may_differ else self.kind

    def topology(
        self, life: Life, tasks: Mapping[str, int], interval_s: float = 0.0, **config: Any
    ) -> Topology:
        def state(name: str) -> Any:
            inner = self.states[name]
            return MortalState(inner, life, inner.kind, name)

        def settings(name: str) -> Any:
            return {"state": state(name), "name": name, "parallelism": tasks[name]}

        topology, draw = Topology("moving", **config), Random(self.draw.random())
        spout = (Opaque if self.is_opaque else Transactional)(self.logs, draw)
        options: Any = {"store": self.batches, "max_batches": self.max_batches}
        options |= {"parallelism": tasks.get("in", 1)}
        rows = batches(topology, "in", spout, **options, interval_s=interval_s)
        by_key = rows.flat_map(self.code).group_by("key")
        counted = (count(), sum_("number"), count(name="odd", where=is_odd))
        totals = by_key.aggregate(*counted, fields=Total, **settings("totals"))
        totals.map(sized).group_by("size").aggregate(count(), sum_("sum"), **settings("sizes"))
        odd = by_key.process(odd_ones, **settings("marked"))
        stored = odd.global_().partition_persist(state("odd-rows"), keep_rows, name="odd-rows")
        stored.named("odd-rows")
        at: Any = {"field": "at", "unit": "s", "zone": "Europe/Berlin"}
        slid = sliding(seconds=16 * HOUR_S, every=4 * HOUR_S, **at)
        visits = sessions(gap=6 * HOUR_S, late=HOUR_S, **at)
        spans = tumbling(days=1, **{**at, "field": "window"})
        numbers, rows_of = collect("number", name="numbers"), dict[str, Any]()
        for name, time in {"slid": slid, "days": tumbling(days=1, **at), "visits": visits}.items():
            rows_of[name] = by_key.window(time, numbers, **settings(name)).named(name)
        behind = rows_of["visits"].group_by("key")
        rows_of["spans"] = behind.window(spans, collect("numbers"), **settings("spans"))
        for name, ended in rows_of.items():
            all_rows = ended.named(name).global_()
            all_rows.partition_persist(state(f"{name}-rows"), keep_rows).named(f"{name}-rows")
        updated = tumbling(seconds=8 * HOUR_S, allowed=4 * HOUR_S, **at)
        last = by_key.window(updated, sum_("number", name="sum"), **settings("updated"))
        last.named("updated")
        last.group_by("key").aggregate(sum_("sum"), **settings("last"))
        threes = by_key.window(tumbling(count=3), count(), sum_("number"), **settings("threes"))
        threes.named("threes")
        threes.global_().partition_persist(state("threes-rows"), keep_rows, name="threes-rows")
        halves = rows.filter(is_odd).map(half, fields=("number", "half"))
        both = rows.join(halves, "number", how="left", parallelism=tasks["joined"])
        pairs = both.named("pairs").group_by("key")
        pairs.aggregate(count(), count("half"), sum_("at"), **settings("joined"))
        return topology

    def run(self, life: Life, tasks: Mapping[str, int]) -> bool:
        """Run until the end, or until the process ends. Returns whether it is the end."""
        try:
            run_inline(self.topology(life, tasks).graph(), clock=ManualClock(), steps_max=50_000)
        except ProcessEnded:
            return False
        return True

    def outcome(self) -> dict[str, dict[Any, Any]]:
        """All that is in the states in the end; what windows note beside their panes is not."""
        return {
            name: {
                key: value
                for key, value in state.items(name)
                if not (type(key) is tuple and str(key[0]).startswith("__sunshower"))
                and not str(key).startswith("$windows")
                and "$windows" not in str(key)
                and not (type(key) is tuple and key[0] == "result")
            }
            for name, state in self.states.items()
        }
