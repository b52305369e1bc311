"""Timers, order, patterns, joins and tables in batches: the rows of ordinary streams, each once."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest

from sunshower import (
    Context,
    KeyState,
    Match,
    PatternStep,
    Records,
    Topology,
    collect,
    count,
    run_inline,
    tumbling,
)
from sunshower.clock import ManualClock
from sunshower.runtime.plan import Layout
from sunshower.simulation.cluster import SimCluster
from sunshower.state import MemoryState, SqliteState
from sunshower.state.backing import Backing, Home, Mark, MemoryBacking, MemoryShelf
from sunshower.topologies.operators.joins.stream_join import StreamJoin
from sunshower.topologies.operators.port import Attempt
from sunshower.topologies.operators.states import StateKind
from sunshower.trident import FixedBatchSpout, InMemory, InSqlite, batches
from sunshower.trident.coordination.attempts import SourceTime
from sunshower.trident.stages.keyed_operators import KeyedInBatches
from tests.seeds import seeds
from tests.trident.rigs.every_store import state_in, stores
from tests.trident.rigs.keyed_batches import (
    GAP,
    LATE,
    MORE,
    NAMES,
    STEP,
    KeyedProgram,
    Order,
    Price,
    Run,
    declare,
    half_of,
    interval,
    of_ordinary_streams,
    orders_of,
    texts,
)
from tests.trident.rigs.moving_states import Life, keep_rows
from tests.trident.rigs.numbers import OpaqueRowBatches, RowBatches
from tests.trident.rigs.programs import SETTINGS, kill_three


def in_memory(name: str, kind: StateKind) -> Any:
    return MemoryState(kind, name)


def tasks_of(draw: Random) -> dict[str, int]:
    return {name: draw.choice((1, 2, 3)) for name in (*NAMES, "in")}


def check(program: KeyedProgram, seed: int) -> None:
    """Each row that an ordinary stream makes is there once, and nothing else."""
    assert program.rows() == of_ordinary_streams(seed)
    orders = Counter(order.key for log in program.orders for order in log)
    prices = Counter(price.key for log in program.prices for price in log)
    totals = {key: [orders[key], prices[key]] for key in orders | prices}
    assert {key: [*value.values()] for key, value in program.totals().items()} == totals


@pytest.mark.parametrize("is_opaque", [False, True])
@seeds(20)
def test_the_rows_are_those_of_ordinary_streams(seed: int, is_opaque: bool) -> None:
    program = KeyedProgram(seed, is_opaque, in_memory)
    assert program.run(Life(), tasks_of(Random(seed)))
    check(program, seed)


@pytest.mark.parametrize("store", ["memory", "sqlite"])
@pytest.mark.parametrize("is_opaque", [False, True])
@seeds(20)
def test_runs_with_other_numbers_of_tasks_that_end_anywhere_make_each_row_once(
    seed: int, is_opaque: bool, store: str, tmp_path: Path
) -> None:
    def state(name: str, kind: StateKind) -> Any:
        if store == "memory":
            return MemoryState(kind, name)
        return SqliteState(tmp_path / "states.db", kind, name)

    program, draw = KeyedProgram(seed, is_opaque, state), Random(seed)
    ends = 0
    for _ in range(5):
        life = Life(draw.randrange(1, 200), draw.random() < 0.5)
        ends += not program.run(life, tasks_of(draw))
    assert program.run(Life(), tasks_of(draw))
    assert ends
    check(program, seed)


@seeds(20)
def test_each_row_is_made_once_when_workers_are_killed(seed: int) -> None:
    layout = (Layout.ISOLATE, Layout.PACK)[seed % 2]
    program = KeyedProgram(seed, seed % 3 == 0, in_memory)
    topology = program.topology(Life(), tasks_of(Random(seed)), interval_s=0.2, **SETTINGS)
    sim = SimCluster(seed, check=True, nodes=1 + seed % 2).submit(topology.graph(), layout)
    kill_three(sim, seed, lambda number: 0.4 + 0.13 * (number % 7))
    assert sim.wait(600.0)
    assert sim.snapshot().restarts
    check(program, seed)


@pytest.mark.parametrize("store", stores("memory", "sqlite"))
def test_every_store_has_these_states(
    store: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    program = KeyedProgram(1, False, lambda _, kind: state_in(request, store, tmp_path, kind))
    assert program.run(Life(), tasks_of(Random(1)))
    assert program.run(Life(), tasks_of(Random(2)))


class Counted(NamedTuple):
    key: str
    window: int
    orders: int


def is_few(counted: Counted) -> bool:
    return counted.orders == 1


def is_many(counted: Counted) -> bool:
    return counted.orders > 1


def growth(match: Match[Counted]) -> Run:
    few, many = match["few"][0], match["many"][0]
    return Run(few.key, (few.window, many.window, many.orders))


def rising(orders: Any, settings: Mapping[str, Any]) -> Any:
    """A pattern in the results of windows, which are behind another stage."""
    steps = PatternStep("few", is_few), PatternStep("many", is_many)
    window = tumbling(seconds=6 * STEP, field="at", late=LATE)
    about: Any = {"fields": Counted, "name": "counted", **settings}
    rows = orders.group_by("key").window(window, count(name="orders"), **about)
    in_order = rows.group_by("key").in_order("window")
    return in_order.match(*steps, within=1_000, select=growth, name="rising", **settings)


TWO: Any = {"parallelism": 2}


def itself(order: Order) -> Order:
    return order


@seeds(20)
def test_a_pattern_behind_a_window_of_another_stage_has_each_match_once(seed: int) -> None:
    draw, expected, matches = Random(seed), list[Any](), MemoryState(name="found")
    logs = orders_of(draw)
    ordinary, topology = Topology("ordinary"), Topology("rising", **SETTINGS)
    rows = [order for pair in zip(*logs, strict=False) for order in pair]
    spout = Records(rows, type=Order)
    rising(ordinary.spout("orders", spout), {}).peek(expected.append)
    run_inline(ordinary.graph(), clock=ManualClock())
    source = (RowBatches, OpaqueRowBatches)[seed % 2](rows, 3, partitions=2, type=Order)
    about: Any = {"store": InMemory(), "interval_s": 0.2, "max_batches": 1 + seed % 3, **TWO}
    stream: Any = batches(topology, "in", source, **about)
    risen = rising(stream.shuffle(**TWO).map(itself), {"state": MemoryState(), **TWO})
    risen.global_().partition_persist(matches, keep_rows)
    sim = SimCluster(seed, check=True).submit(topology.graph(), Layout.ISOLATE)
    kill_three(sim, seed, lambda number: 0.4 + 0.13 * (number % 7))
    assert sim.wait(600.0)
    assert expected
    assert texts(expected) == Counter(map(tuple, dict(matches.items())["rows"]))


# ---- tables and the clock ------------------------------------------------------------------------


class Click(NamedTuple):
    number: int
    user: str


class User(NamedTuple):
    user: str
    version: int
    name: str | None


CLICKS = [Click(number, "abcd"[number * number % 4]) for number in range(60)]
USERS = [
    User("abcd"[number % 3], number, f"name {number}" if number % 7 else None)
    for number in range(45)
]


def clicks_with_names() -> Counter[tuple[str, ...]]:
    """Of batches of 4 clicks and 3 users: each click finds what the users of its batch changed."""
    counts, names = Counter[tuple[str, ...]](), dict[str, Any]()
    for first in range(0, 60, 4):
        names |= {user.user: user.name for user in USERS[first * 3 // 4 : first * 3 // 4 + 3]}
        for number, user in CLICKS[first : first + 4]:
            counts[user, str(number), str(names.get(user))] += 1
    return counts


@pytest.mark.parametrize("broadcast", [False, True])
@seeds(20)
def test_a_row_is_joined_with_what_the_changes_of_its_batch_have_left(
    seed: int, broadcast: bool
) -> None:
    topology, joined = Topology("clicks", **SETTINGS), MemoryState(name="joined")
    about: Any = {"store": InMemory(), "interval_s": 0.2, "max_batches": 1 + seed % 3}
    spouts = FixedBatchSpout(CLICKS, 4, type=Click), FixedBatchSpout(USERS, 3, type=User)
    clicks = batches(topology, "clicks", spouts[0], group="g", **about)
    users = batches(topology, "users", spouts[1], group="g").group_by("user")
    settings: Any = {"broadcast": broadcast, "parallelism": 3, "field": "version"}
    table = users.table(state=MemoryState(), **settings)
    with_names = clicks.join(table, how="left", fields=("user", "number", "version", "name"))
    named = with_names.map(without_version, fields=("user", "number", "name"))
    named.global_().partition_persist(joined, keep_rows)
    sim = SimCluster(seed, check=True).submit(topology.graph(), Layout.ISOLATE)
    kill_three(sim, seed, lambda number: 0.4 + 0.13 * (number % 7))
    assert sim.wait(600.0)
    assert sim.snapshot().restarts
    assert Counter(map(tuple, dict(joined.items())["rows"])) == clicks_with_names()


def without_version(row: Any) -> tuple[str, int, str | None]:
    return row[0], row[1], row[3]


def test_a_join_as_of_a_time_has_a_state_beside_that_of_the_table(tmp_path: Path) -> None:
    topology, joined = Topology("prices"), list[Any]()
    spouts = FixedBatchSpout(CLICKS, 4, type=Click), FixedBatchSpout(USERS, 3, type=User)
    clicks = batches(topology, "clicks", spouts[0], store=InMemory(), group="g")
    users = batches(topology, "users", spouts[1], group="g").group_by("user")
    versions = users.table(state=SqliteState(tmp_path / "s.db", name="users"), field="version")
    fields = "user", "number", "version", "name"
    clicks.join(versions, as_of="number", how="left", fields=fields).peek(joined.append)
    run_inline(topology.graph())
    assert {row[1]: row[3] for row in joined} == {
        click.number: next(
            (user.name for user in reversed(USERS[: click.number + 1]) if user.user == click.user),
            None,
        )
        for click in CLICKS
    }
    with closing(sqlite3.connect(tmp_path / "s.db")) as database:
        tables = {*database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    assert {("users",), ("users-as-of",)} <= tables


def soon(click: Click, state: KeyState[list[int]]) -> None:
    state.value = [*(state.value or ()), click.number]
    state.timer = state.timer or state.time + 0.7


def due(user: str, state: KeyState[list[int]]) -> Iterator[Click]:
    """All clicks since the last time, and how long the oldest has waited."""
    numbers, state.value = state.value or [], None
    yield from (Click(number, user) for number in numbers)


@seeds(20)
def test_timers_of_the_clock_fire_once(seed: int) -> None:
    topology, fired = Topology("clicks", **SETTINGS), MemoryState(name="fired")
    spout = FixedBatchSpout(CLICKS, 2, type=Click)
    about: Any = {"store": InMemory(), "interval_s": 0.2, "max_batches": 1 + seed % 3}
    clicks = batches(topology, "clicks", spout, **about).group_by("user")
    rows = clicks.process(soon, on_timer=due, state=MemoryState(), parallelism=2)
    rows.global_().partition_persist(fired, keep_rows)
    sim = SimCluster(seed, check=True).submit(topology.graph(), Layout.ISOLATE)
    kill_three(sim, seed, lambda number: 0.4 + 0.13 * (number % 7))
    sim.wait(1.0)
    assert dict(fired.items())["rows"], "before the end"
    assert sim.wait(600.0)
    stored = Counter(map(tuple, dict(fired.items())["rows"]))
    assert stored == Counter((str(number), user) for number, user in CLICKS)


# ---- what is stored ------------------------------------------------------------------------------

STORED = Path(__file__).with_name("stored_keyed_states.sql")
FILES = ("states.db", "progress.db")


def program_in(folder: Path) -> KeyedProgram:
    def state(name: str, kind: StateKind) -> Any:
        return SqliteState(folder / FILES[0], kind, name)

    program = KeyedProgram(5, False, state)
    store: Any = InSqlite(folder / FILES[1])
    program.max_batches, program.batches = 1, store
    return program


def dump(folder: Path) -> str:
    """A run that ended in the middle, as SQL. To write the file again, write this text."""
    assert not program_in(folder).run(Life(120), dict.fromkeys(NAMES, 2))
    parts = []
    for name in FILES:
        with closing(sqlite3.connect(folder / name)) as database:
            parts.append("\n".join(database.iterdump()))
    return "\n\f\n".join(parts) + "\n"


def load(folder: Path) -> None:
    for name, sql in zip(FILES, STORED.read_text().split("\n\f\n"), strict=True):
        with closing(sqlite3.connect(folder / name)) as database:
            database.executescript(sql)


def entries_in(folder: Path) -> dict[str, set[tuple[Any, ...]]]:
    """What the states have, by their names."""
    entries = {}
    with closing(sqlite3.connect(folder / FILES[0])) as database:
        for name in NAMES:
            entries[name] = {*database.execute(f'SELECT key, task, value FROM "{name}"')}
    return entries


def test_states_that_an_earlier_release_has_stored_are_continued(tmp_path: Path) -> None:
    load(tmp_path)
    program = program_in(tmp_path)
    assert program.run(Life(), tasks_of(Random(3)))
    check(program, 5)


def test_what_is_stored_is_what_was_stored(tmp_path: Path) -> None:
    """So the release before can read it."""
    folders = tmp_path / "then", tmp_path / "now"
    for folder in folders:
        folder.mkdir()
    load(folders[0])
    dump(folders[1])
    then, now = map(entries_in, folders)
    assert {name for name in NAMES if then[name]} >= {*NAMES} - {"matched"}
    assert now == then


# ---- sources that end before others --------------------------------------------------------------


class Tick(NamedTuple):
    key: str
    at: int


def passed_on(order: Order, state: KeyState[int]) -> None:
    state.value = order.number
    state.timer = state.time + GAP


def is_over(key: str, state: KeyState[int]) -> Iterator[tuple[str, int, int]]:
    yield "a", state.value or 0, int(state.time)


def order_itself(match: Match[Order]) -> Order:
    return match["any"][0]


def unchanged(order: Order, state: KeyState[int]) -> Iterator[Order]:
    yield order


def is_any(_: Order) -> bool:
    return True


def is_never(_: Order, __: Any) -> bool:
    return False


HELD: Mapping[str, Callable[[Any], Any]] = {
    "nothing": lambda orders: orders,
    "distinct": lambda orders: orders.distinct(["number"], event_time="at", state=MemoryState()),
    "window": lambda orders: (
        orders.group_by("key", "number")
        .window(tumbling(seconds=5, field="at"), count(), state=MemoryState())
        .map(lambda row: (row[0], row[1], int(row[2])), fields=("key", "number", "at"))
    ),
    "timers": lambda orders: orders.group_by("number").process(
        passed_on,
        on_timer=is_over,
        fields=("key", "number", "at"),
        event_time="at",
        state=MemoryState(),
    ),
    "order": lambda orders: (
        orders.group_by("key").in_order("at", late=9).process(unchanged, state=MemoryState())
    ),
    "pattern": lambda orders: (
        orders.group_by("key")
        .in_order("at")
        .match(
            PatternStep("any", is_any),
            PatternStep("none", is_never, absent=True),
            within=20,
            select=order_itself,
            state=MemoryState(),
        )
    ),
}


@pytest.mark.parametrize("tasks", [1, 2])
@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize("held", HELD)
def test_the_last_rows_of_a_source_are_not_late_beside_one_that_is_far_ahead(
    held: str, size: int, tasks: int
) -> None:
    """What ends a source also ends what a stage behind it holds back, with the same batch."""
    topology = Topology("ends")
    orders = [Order("a", number, 10 + number) for number in range(4)]
    ticks = [Tick("a", at) for at in range(50, 1_000, 50)]
    streams = [
        batches(
            topology,
            "orders",
            FixedBatchSpout(orders, size, type=Order),
            group="g",
            store=InMemory(),
        ),
        batches(topology, "ticks", FixedBatchSpout(ticks, 1, type=Tick), group="g"),
    ]
    joined = HELD[held](streams[0]).join(
        streams[1],
        "key",
        how="left",
        within=60,
        field="at",
        fields=("key", "number", "at", "tick_at"),
        state=MemoryState(),
        parallelism=tasks,
    )
    numbers = collect("number", name="numbers")
    windows = joined.group_by("key").window(
        tumbling(seconds=7, field="at"),
        numbers,
        state=MemoryState(),
        parallelism=tasks,
        name="spans",
    )
    outputs = {"late": joined.late, "rows": joined, "later": windows.late, "windows": windows}
    states = {name: MemoryState() for name in outputs}
    for name, rows in outputs.items():
        rows.global_().partition_persist(states[name], keep_rows, name=f"{name}-rows")
    run_inline(topology.graph(), clock=ManualClock(), steps_max=50_000)
    stored = {name: dict(state.items()).get("rows", []) for name, state in states.items()}
    assert not stored["late"]
    assert not stored["later"]
    assert {row[1] for row in stored["rows"]} == {str(number) for number in range(4)}
    assert len(stored["windows"]) == len({row[1] for row in stored["windows"]})


# ---- cost ----------------------------------------------------------------------------------------


class Counts:
    """How many entries a state has read and written."""

    def __init__(self) -> None:
        self.read = self.written = 0


class CountedBacking(MemoryBacking):
    def __init__(self, shelf: MemoryShelf, home: Home, counts: Counts) -> None:
        super().__init__(shelf, home)
        self.counts = counts

    def get(self, keys: Sequence[str]) -> list[str | None]:
        self.counts.read += len(keys)
        return super().get(keys)

    def put(self, changes: Mapping[str, str | None], mark: Mark, seen: str | None) -> None:
        self.counts.written += len(changes)
        super().put(changes, mark, seen)


@dataclass(frozen=True)
class CountedState(MemoryState):
    counts: Counts = field(default_factory=Counts, compare=False)

    def open(self, home: Home) -> Backing:
        return CountedBacking(self.shelf, home, self.counts)


def operator_named(name: str, state: CountedState, store: InMemory) -> KeyedInBatches:
    """The operator of the program that has this state."""
    topology = Topology("costs")
    about: Any = {"group": "g"}
    orders = batches(topology, "in", FixedBatchSpout([], 1, type=Order), store=store, **about)
    prices = batches(topology, "prices", FixedBatchSpout([], 1, type=Price), **about)
    states = {name: state}
    settings = lambda name: {"state": states.get(name, MemoryState()), "name": name}  # noqa: E731
    declare(orders, prices, settings, (*NAMES, *MORE))
    stages = [component.implementation for component in topology.graph().components.values()]
    nodes = [node for stage in stages for node in getattr(stage, "operators", ())]
    (operator,) = (
        node for node in nodes if isinstance(node, KeyedInBatches) and node.slot.name == name
    )
    return operator


KEYED = [name for name in NAMES if name not in ("versions", "both")]


class Task:
    """One task of an operator, which processes attempts of batches."""

    def __init__(self, name: str, state: CountedState, store: InMemory) -> None:
        self.operator: Any = operator_named(name, state, store)
        self.operator.prepare(Context("costs", name, 0, 0, 1))

    def run(
        self, attempt: Attempt, rows: Sequence[Any], time: float = 0.0, *, is_last: bool = False
    ) -> list[str]:
        operator, outputs = self.operator, list[Any]()
        if isinstance(operator.calls, StreamJoin):
            rows = [
                (row[0], isinstance(row, Price), *_apart(row, operator.slot.name)) for row in rows
            ]
        else:
            rows = [row for row in rows if isinstance(row, Order)]
        if operator.slot.name == "distinct":
            rows = [*map(half_of, rows)]
        batch = operator.start(attempt)
        operator.process(batch, 0, rows, lambda _: None)
        reached = SourceTime(time, time, idle=False, ended=is_last, begun_s=1.0 + time)
        operator.note_times(batch, dict.fromkeys(operator.sources, reached))
        operator.finish(batch, attempt, outputs.extend)
        return sorted(map(str, outputs))


def _apart(row: Any, name: str) -> tuple[Any, list[Any]]:
    """The time of a row of a join, and its other values."""
    if isinstance(row, Price):
        return row.at, [*row[1:]]
    return [row.at, *interval(row)] if name == "between" else row.at, [row.number, row.at]


@pytest.mark.parametrize("name", ["timed", "ordered", "matched", "inner", "left", "as-of", "ever"])
def test_a_batch_costs_what_it_touches_however_much_is_open(name: str) -> None:
    costs = []
    for opened in (20, 2_000):
        state = CountedState(name=name)
        task, counts = Task(name, state, InMemory()), state.counts
        orders = [Order(f"k{number}", 2 * number, 10 + number) for number in range(opened)]
        task.run(Attempt(1, 0, 1), orders)
        task.run(Attempt(2, 0, 1), [Order("k7", 0, 50)])
        counts.read = counts.written = 0
        task.run(Attempt(3, 0, 1), [])
        assert (counts.read, counts.written) == (0, 0)
        for attempt in (0, 1):
            task.run(Attempt(4, attempt, 1), [Order("k7", 0, 60)])
            costs.append((counts.read, counts.written))
    assert costs[:2] == costs[2:]
    assert 0 < sum(costs[1]) < 40


@pytest.mark.parametrize("name", [*KEYED, "distinct"])
@seeds(200)
def test_only_the_last_attempt_of_a_batch_counts(seed: int, name: str) -> None:
    """Also if attempts differ, fail, or are of another process."""
    draw = Random(seed)
    about = name, CountedState(name=name), InMemory()
    task, plain = Task(*about), Task(name, CountedState(), InMemory())
    time = 0
    for txid in range(1, 15):
        is_last, later = txid == 14, time + draw.randrange(8)

        def rows(first: int = time) -> list[Any]:
            orders = [Order(draw.choice("ab"), n, first + draw.randrange(20)) for n in range(3)]
            prices = [Price(draw.choice("ab"), first + draw.randrange(20), n) for n in range(2)]
            return draw.sample([*orders, *prices], draw.randrange(6))

        last, attempts = rows(), draw.choice((0, 0, 1, 2))
        for attempt in range(attempts):
            task.run(Attempt(txid, attempt, 1), rows(), time + draw.randrange(9), is_last=False)
            if draw.random() < 0.2:
                task = Task(*about)
        results = task.run(Attempt(txid, attempts, 1), last, later, is_last=is_last)
        assert results == plain.run(Attempt(txid, 0, 1), last, later, is_last=is_last), txid
        time = later
