"""Programs whose states the files beside this one have, as an earlier release has stored them.

`python -m tests.state.stored.programs` writes the files again, with the code as it is: each change
of them is a change of what is stored. In a file of `stored` are all texts that a store is given;
SQLite is given the same, and so are Redis, PostgreSQL and ZooKeeper.
"""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from sunshower import (
    Bolt,
    Context,
    KeyState,
    KeyValueState,
    Spout,
    Topology,
    collect,
    count,
    max_,
    reduce,
    sessions,
    sliding,
    sum_,
    tumbling,
)
from sunshower.config import Internals
from sunshower.runtime.control.savepoint import Savepoint
from sunshower.simulation.cluster import SimCluster
from sunshower.state import MemoryState, SqliteState
from sunshower.state.backing import Home, Mark, MemoryShelf
from sunshower.trident import FixedBatchSpout, InSqlite, StateKind, batches

FOLDER = Path(__file__).parent
IN_MEMORY, KEPT = FOLDER / "in_memory.savepoint", FOLDER / "kept.savepoint"
STORED = FOLDER / "stored.json"
KINDS = (StateKind.TRANSACTIONAL, StateKind.OPAQUE)  # those that are exactly once
BATCHES = {kind: FOLDER / f"batches_{kind.value}.sql" for kind in KINDS}
JOINED = ("key", "number", "at", "other", "then")
TOTAL, SECONDS, STOP_S = 120, 3.0, 1.5
FACTS = "facts.db"  # a SQLite file of the states of batches
PROGRESS = "progress.db"  # and of which of them are committed


class Color(Enum):
    RED = 1
    BLUE = 2


class Point(NamedTuple):
    x: int
    y: float


class Fact(NamedTuple):
    key: str
    number: int
    at: float


@dataclass
class Memory:
    """A state with a value of each kind."""

    numbers: set[int]
    colors: dict[Color, list[Point]]
    first: datetime
    price: Decimal = Decimal("1.50")
    seen: Counter[str] | None = None
    raw: bytes = b"\0\xff"


FACTS_MADE = [Fact("abcde"[n * n % 5], n, n * 0.5) for n in range(TOTAL)]
NUMBERS = {key: {fact.number for fact in FACTS_MADE if fact.key == key} for key in "abe"}
KEYS = sorted(NUMBERS)


class Facts(Spout[Fact]):
    """All facts over `SECONDS`, every second or third of them from each of two sources."""

    def __init__(self, step: int) -> None:
        self.step = step

    def open(self, context: Context) -> None:
        self.clock = context.clock

    def records(self) -> Iterator[Fact | None]:
        begun_s = self.clock.now()
        for fact in FACTS_MADE[:: self.step]:
            while self.clock.now() < begun_s + fact.number * SECONDS / TOTAL:
                yield None
            yield fact


def remember(fact: Fact, state: KeyState[Memory]) -> list[Fact]:
    """Changes a state of all kinds of values in place."""
    value = state.value or Memory(set(), {}, datetime(2026, 1, 1, tzinfo=UTC), seen=Counter())
    value.numbers.add(fact.number)
    value.colors.setdefault(Color(1 + fact.number % 2), []).append(Point(fact.number, fact.at))
    if value.seen is not None:
        value.seen[str(fact.number % 3)] += 1
    state.value = value
    return [fact]


def later(fact: Fact, state: KeyState[list[int]]) -> None:
    """Collects numbers until ten units of time have passed without one."""
    state.value = [*(state.value or []), fact.number]
    state.timer = state.time + 10


def due(key: str, state: KeyState[list[int]]) -> list[Fact]:
    """Emits the numbers of a key, one record for each."""
    numbers, state.value = state.value or [], None
    return [Fact(key, number, state.time) for number in numbers]


class Highest(Bolt[Fact, Fact]):
    """Keeps the highest number, and all, of each key."""

    state: KeyValueState[str, tuple[int, list[int]]]

    def process(self, fact: Fact) -> Iterator[Fact]:
        highest, numbers = self.state.get(fact.key, (0, []))
        self.state[fact.key] = max(highest, fact.number), [*numbers, fact.number]
        yield fact


class Seen(Bolt[Any, None]):
    """Keeps the records that it gets, by their texts; its state moves with its task."""

    def prepare(self, context: Context) -> None:
        self.seen: Counter[str] = Counter()

    def process(self, record: Any) -> None:
        self.seen[repr(tuple(record))] += 1

    def snapshot(self) -> Any:
        return self.seen

    def restore(self, state: Any) -> None:
        self.seen = state

    def result(self) -> Any:
        return self.seen


def ordinary(state: Any, facts: Callable[[int], Spout[Fact]] = Facts) -> Topology:
    """Each operator of an ordinary stream that keeps a state. `state` None: in memory."""
    topology = Topology("facts", workers=2, internals=Internals(peer_link_retry_s=0.5))
    first = topology.spout("facts", facts(1), fields=Fact)
    second = topology.spout("others", facts(2), fields=Fact)
    by_key = first.group_by("key")
    streams = {
        "remembered": by_key.process(remember, state=state, parallelism=2),
        "timed": by_key.process(
            later, on_timer=due, event_time="at", state=state, name="timed", fields=Fact
        ),
        "highest": first.fields("key").bolt("highest", Highest, 2, state=state),
        "totals": by_key.aggregate(
            count(), sum_("number"), max_("number"), state=state, name="totals", parallelism=2
        ),
        "panes": by_key.window(
            sliding(seconds=6, every=3, field="at"), count(), sum_("at"), state=state, name="panes"
        ),
        "collected": by_key.window(
            tumbling(seconds=40, field="at"), collect("number"), state=state, name="collected"
        ),
        "counted": by_key.window(tumbling(count=7), sum_("number"), state=state, name="counted"),
        "sessions": by_key.window(sessions(gap=4, field="at"), count(), state=state, name="rests"),
        "inner": first.join(
            second, "key", within=5, field="at", state=state, name="inner", parallelism=2,
            fields=JOINED,
        ),
        "outer": first.join(
            second, "key", how="outer", within=0.1, field="at", state=state, name="outer",
            fields=JOINED,
        ),
        "total": first.aggregate(reduce(_highest, -1), state=state, name="latest"),
    }  # fmt: skip
    of_totals = (
        streams["totals"].group_by("count").aggregate(sum_("number_sum"), state=state, name="sums")
    )
    table = streams["totals"].group_by("key").table(state=state, name="table", wait=False)
    streams["joined"] = second.join(table, "key")
    last = first.group_by("key").table(state=state, name="last", field="at", wait=False)
    streams["last"] = second.join(last, "key", fields=JOINED)
    for name, rows in {**streams, "sums": of_totals}.items():
        rows.shuffle().bolt(f"{name}-rows", Seen)
    return topology


def _highest(number: int, fact: Fact) -> int:
    return max(number, fact.number)


def in_batches(state: Callable[[str], SqliteState], progress: Any) -> Topology:
    """Each operator of a stream of batches that keeps a state; `state`: that of a name."""
    topology = Topology("facts", workers=2, internals=Internals(peer_link_retry_s=0.5))
    spout = FixedBatchSpout(FACTS_MADE, 6, type=Fact)
    facts = batches(topology, "facts", spout, store=progress, interval_s=SECONDS / 20)
    by_key = facts.group_by("key")
    if state("remembered").kind is StateKind.OPAQUE:  # another one is refused
        by_key.process(remember, state=state("remembered"), name="remembered", parallelism=2)
    totals = by_key.aggregate(
        count(), sum_("number"), state=state("totals"), name="totals", parallelism=2
    )
    totals.group_by("count").aggregate(sum_("number_sum"), state=state("sums"), name="sums")
    kinds = {
        "panes": (sliding(seconds=6, every=3, field="at"), count()),
        "collected": (tumbling(seconds=40, field="at"), collect("number")),
        "counted": (tumbling(count=7), sum_("number")),
    }
    for name, (window, aggregator) in kinds.items():
        rows = by_key.window(window, aggregator, state=state(name), name=name)
        rows.group_by("key").aggregate(count(), state=state(f"{name}-rows"), name=f"{name}-rows")
    return topology


# ---- files ---------------------------------------------------------------------------------------


def run_until_stop(topology: Topology) -> Savepoint | None:
    """Run a topology for half of its records. Returns its savepoint; None for one of batches."""
    with SimCluster(1, latency_s=0.005) as cluster:
        run = cluster.submit(topology.graph())
        run.wait(STOP_S)
        is_ordinary = "remembered-rows" in topology.graph().components
        savepoint = run.keep() if is_ordinary else None
        run.kill(0.0)
    return savepoint


def run_to_end(topology: Topology, savepoint: Savepoint | None) -> dict[str, Any]:
    """Run a topology to its end. Returns the results of its components that have some."""
    with SimCluster(2, latency_s=0.005) as cluster:
        run = cluster.submit(topology.graph(), resume=savepoint)
        assert run.wait(600), run._describe()
        names = [name for name in topology.graph().components if name.endswith("-rows")]
        return {name: run.results(name)[0] for name in names}


def to_json(shelf: MemoryShelf) -> list[Any]:
    """All marks and values: [state, task, mark, values]."""
    return [[*home, [*mark], shelf.values.get(home, {})] for home, mark in shelf.marks.items()]


def from_json(homes: Iterable[Any]) -> MemoryShelf:
    """The inverse."""
    shelf = MemoryShelf()
    for state, task, mark, values in homes:
        shelf.marks[Home(state, task)] = Mark(*mark)
        shelf.values[Home(state, task)] = dict(values)
    return shelf


def states_in(folder: Path, kind: StateKind) -> Callable[[str], SqliteState]:
    """States in a file of this folder."""
    return lambda name: SqliteState(folder / FACTS, kind, name)


def dump(folder: Path) -> str:
    """Both SQLite files of a run of batches, as SQL."""
    parts = []
    for name in (FACTS, PROGRESS):
        with closing(sqlite3.connect(folder / name)) as database:
            parts.append("\n".join(database.iterdump()))
    return "\n\f\n".join(parts) + "\n"


def load(folder: Path, text: str) -> None:
    """The inverse."""
    for name, sql in zip((FACTS, PROGRESS), text.split("\n\f\n"), strict=True):
        with closing(sqlite3.connect(folder / name)) as database:
            database.executescript(sql)


def write() -> None:
    """Write all files."""
    for path, state in ((IN_MEMORY, None), (KEPT, MemoryState())):
        savepoint = run_until_stop(ordinary(state))
        assert savepoint is not None
        path.write_bytes(savepoint.to_bytes())
        if state is not None:
            STORED.write_text(json.dumps(to_json(state.shelf), indent=0) + "\n")
    for kind, path in BATCHES.items():
        with TemporaryDirectory() as name:
            folder = Path(name)
            run_until_stop(in_batches(states_in(folder, kind), InSqlite(folder / PROGRESS)))
            path.write_text(dump(folder))


if __name__ == "__main__":  # savepoints name the modules of classes
    import_module("tests.state.stored.programs").write()
