"""A contract of all states of ordinary streams, whatever number of tasks and process follows.

A state continues in the next run and in another process, and no record is lost when workers die.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from random import Random
from typing import Any, NamedTuple

import pytest

from sunshower import (
    Bolt,
    Context,
    KeyState,
    KeyValueState,
    Spout,
    SpoutCollector,
    Topology,
    collect,
    count,
    sessions,
    sliding,
    sum_,
    tumbling,
)
from sunshower.config import Internals
from sunshower.errors import ClusterError
from sunshower.simulation.cluster import SimCluster, SimRun
from sunshower.state import MemoryState
from tests.seeds import seeds
from tests.trident.rigs.unsure import Troubles, UnsureState

TOTAL, SECONDS, DISORDER, USERS, WITHIN, GAP = 40, 1.5, 8, "abcdefg", 6, 7
Noted = Counter[tuple[Any, ...]]


class Click(NamedTuple):
    user: str
    at: int


def clicks_of(seed: int) -> list[Click]:
    draw = Random(seed)
    times = [n * 2 + draw.randrange(DISORDER) for n in range(TOTAL)]
    return [Click(draw.choice(USERS), time) for time in times]


class Source:
    """The records of a source, and those that are acked, over all runs."""

    def __init__(self, clicks: list[Click]) -> None:
        self.clicks, self.acked, self.bound = clicks, set[int](), 0

    def __deepcopy__(self, memo: Any) -> Source:
        return self

    @property
    def is_done(self) -> bool:
        """Return whether all records up to the bound are acked."""
        return self.acked >= {*range(self.bound)}


class Resumed(Spout[Click]):
    """Emits the records that are not acked, up to the bound of this run."""

    emits = Click

    def __init__(self, source: Source) -> None:
        self.source = source

    def open(self, context: Context) -> None:
        self.clock, source = context.clock, self.source
        self.left = [n for n in range(source.bound) if n not in source.acked]
        self.next_s = self.clock.now()

    def next_tuple(self, out: SpoutCollector[Any]) -> None:
        if self.left and self.clock.now() >= self.next_s:
            number = self.left.pop(0)
            out.emit(self.source.clicks[number], number)
            self.next_s += SECONDS / TOTAL
        elif not self.left and self.source.bound == TOTAL:
            out.finish()

    def ack(self, message_id: Any) -> None:
        self.source.acked.add(message_id)

    def event_time(self, record: Any) -> float:
        return float(record.at)


class Note(Bolt[Any, None]):
    """Counts its records, over all runs."""

    def __init__(self, rows: Noted) -> None:
        self.rows = rows

    def __deepcopy__(self, memo: Any) -> Note:
        return Note(self.rows)

    def process(self, record: Any) -> None:
        self.rows[tuple(record)] += 1


# ---- programs -----------------------------------------------------------------------------------


class Program:
    """A topology of clicks, and a check of its results. `settings`: its state and parallelism."""

    def __init__(self, seed: int) -> None:
        self.left, self.right = Source(clicks_of(seed)), Source(clicks_of(-seed - 1))
        self.rows: Noted = Counter()

    @property
    def sources(self) -> list[Source]:
        return [self.left]

    def topology(self, **settings: Any) -> Topology:
        topology = Topology(
            "clicks", workers=3, attempts_max=1_000, internals=Internals(peer_link_retry_s=0.5)
        )
        left = topology.spout("left", Resumed(self.left))
        outputs = self.declare(topology, left, settings)
        if outputs is not None:
            outputs.shuffle().bolt("note", Note(self.rows))
        return topology

    def declare(self, topology: Topology, left: Any, settings: dict[str, Any]) -> Any:
        raise NotImplementedError

    def check(self, rows: Noted, state: Any, *, is_exact: bool) -> None:
        raise NotImplementedError


class Windowed(Program):
    window: Any

    def declare(self, topology: Topology, left: Any, settings: dict[str, Any]) -> Any:
        return left.group_by("user").window(self.window, count(), **settings)

    def expected(self) -> Counter[tuple[Any, ...]]:
        """Return (user, end of the window) → number of clicks."""
        counts: Counter[tuple[Any, ...]] = Counter()
        for click in self.left.clicks:
            first = click.at - click.at % self.window.every + self.window.every
            counts.update(
                (click.user, first + n * self.window.every) for n in range(self.window.panes)
            )
        return counts

    def check(self, rows: Noted, state: Any, *, is_exact: bool) -> None:
        counts = defaultdict[tuple[Any, ...], set[int]](set)
        for user, end, times in rows:
            counts[user, end].add(times)
        expected = self.expected()
        assert counts.keys() == expected.keys()
        for place, times in expected.items():
            if is_exact:  # a window may be emitted again, with the same count
                assert counts[place] == {times}, place
            else:
                assert max(counts[place]) >= times, place


class Tumbling(Windowed):
    window = tumbling(seconds=30, field="at", late=DISORDER)


class Sliding(Windowed):
    window = sliding(seconds=30, every=10, field="at", late=DISORDER)


class BySession(Windowed):
    window = sessions(gap=5, field="at", late=DISORDER)

    def expected(self) -> Counter[tuple[Any, ...]]:
        counts: Counter[tuple[Any, ...]] = Counter()
        for user in USERS:
            times = sorted(click.at for click in self.left.clicks if click.user == user)
            session: list[int] = []
            for time in [*times, 10**9]:
                if session and time - session[-1] >= self.window.gap:
                    counts[user, session[-1] + self.window.gap] = len(session)
                    session = []
                session.append(time)
        return counts


class ByCount(Windowed):
    """Windows of three clicks. Their content depends on the order of the clicks."""

    window = tumbling(count=3)

    def check(self, rows: Noted, state: Any, *, is_exact: bool) -> None:
        clicks = Counter(click.user for click in self.left.clicks)
        full = {(user, n, 3) for user, number in clicks.items() for n in range(number // 3)}
        assert rows.keys() == full if is_exact else rows.keys() >= full


def is_even(click: Click) -> bool:
    return click.at % 2 == 0


class Totals(Program):
    def declare(self, topology: Topology, left: Any, settings: dict[str, Any]) -> Any:
        counted = (count(), sum_("at"), count(name="even", where=is_even))
        left.group_by("user").aggregate(*counted, name="totals", **settings)

    def check(self, rows: Noted, state: Any, *, is_exact: bool) -> None:
        totals = dict(state.items("totals"))
        times = defaultdict[str, list[int]](list)
        for click in self.left.clicks:
            times[click.user].append(click.at)
        expected = {
            user: [len(seconds), sum(seconds), sum(at % 2 == 0 for at in seconds)]
            for user, seconds in times.items()
        }
        assert totals.keys() == expected.keys()
        for user, numbers in expected.items():
            clicks, times_of_all, even = totals[user]
            even = sum(even) if isinstance(even, list) else even  # stores have [] for no click
            found_numbers = [clicks, times_of_all, even]
            if is_exact:
                assert found_numbers == numbers
            else:
                assert all(a >= b for a, b in zip(found_numbers, numbers, strict=True))


def gathers(click: Click, state: KeyState[list[int]]) -> None:
    state.value = [*(state.value or ()), click.at]


class Processed(Program):
    def declare(self, topology: Topology, left: Any, settings: dict[str, Any]) -> Any:
        left.group_by("user").process(gathers, name="own", **settings)

    def check(self, rows: Noted, state: Any, *, is_exact: bool) -> None:
        values = dict(state.items("own"))
        for user in USERS:
            times = Counter(click.at for click in self.left.clicks if click.user == user)
            stored = Counter(values.get(user, ()))
            assert stored == times if is_exact else not times - stored, user


class Gathers(Bolt[Click, None]):
    state: KeyValueState[str, list[int]]

    def process(self, click: Click) -> None:
        self.state[click.user] = [*self.state.get(click.user, ()), click.at]


class Bolts(Processed):
    def declare(self, topology: Topology, left: Any, settings: dict[str, Any]) -> Any:
        left.fields("user").bolt("own", Gathers, settings["parallelism"], state=settings["state"])


def flat(row: Any) -> tuple[str, int, tuple[int, ...]]:
    """With the numbers in lists, or in lists of lists, once each, in their order."""
    user, end, values = row
    numbers = {
        number for value in values for number in (value if isinstance(value, tuple) else [value])
    }
    return user, end, tuple(sorted(numbers))


class Stages(Program):
    """Windows of windows: those of 30 have the clicks of those of 10."""

    def declare(self, topology: Topology, left: Any, settings: dict[str, Any]) -> Any:
        fields, rows = ("user", "window", "clicks"), left
        for length, field, late in ((10, "at", DISORDER), (30, "window", 0)):
            window = tumbling(seconds=length, field=field, late=late)
            value = "at" if field == "at" else "clicks"
            grouped = rows.group_by("user")
            results = grouped.window(
                window, collect(value), fields=fields, name=f"of-{length}", **settings
            )
            rows = results.map(flat, fields=fields)
        return rows

    def check(self, rows: Noted, state: Any, *, is_exact: bool) -> None:
        clicks = {(user, end, at) for user, end, values in rows for at in values}
        assert clicks == {(c.user, c.at // 30 * 30 + 30, c.at) for c in self.left.clicks}


def waits(click: Click, state: KeyState[set[int]]) -> None:
    state.value = {*(state.value or ()), click.at}
    if state.timer is None:
        state.timer = state.time + GAP


def fires(key: Any, state: KeyState[set[int]]) -> Iterator[tuple[str, str]]:
    yield key, " ".join(map(str, state.value or ()))
    state.value = None


class Timed(Program):
    def declare(self, topology: Topology, left: Any, settings: dict[str, Any]) -> Any:
        times = {"event_time": "at", "late": DISORDER, "fields": ("user", "clicks")}
        return left.group_by("user").process(waits, on_timer=fires, **times, **settings)

    def check(self, rows: Noted, state: Any, *, is_exact: bool) -> None:
        clicks = {(user, int(second)) for user, text in rows for second in text.split()}
        assert clicks == {(click.user, click.at) for click in self.left.clicks}


class Joined(Program):
    how: str = "inner"

    @property
    def sources(self) -> list[Source]:
        return [self.left, self.right]

    def declare(self, topology: Topology, left: Any, settings: dict[str, Any]) -> Any:
        right = topology.spout("right", Resumed(self.right))
        place = {"field": "at", "late": DISORDER, "fields": ("user", "at", "other_at")}
        return left.join(right, "user", within=WITHIN, how=self.how, **place, **settings)

    def check(self, rows: Noted, state: Any, *, is_exact: bool) -> None:
        left, right = self.left.clicks, self.right.clicks
        both = [(a, b) for a in left for b in right if a.user == b.user]
        pairs = [(a, b) for a, b in both if abs(a.at - b.at) <= WITHIN]
        expected: Noted = Counter((a.user, a.at, b.at) for a, b in pairs)
        if is_exact:
            assert {place: n for place, n in rows.items() if None not in place} == expected
        matched = {id(click) for pair in pairs for click in pair}
        if self.how == "outer":
            expected.update((a.user, a.at, None) for a in left if id(a) not in matched)
            expected.update((b.user, None, b.at) for b in right if id(b) not in matched)
        assert not expected - rows
        assert rows.keys() == expected.keys()


class Outer(Joined):
    how = "outer"


class Until(Joined):
    """Partners come in an interval of the left record, and a watermark brings what had none."""

    how, bounds = "left", {"within": lambda click: (click.at, click.at + click.at % 9)}

    def declare(self, topology: Topology, left: Any, settings: dict[str, Any]) -> Any:
        right = topology.spout("right", Resumed(self.right))
        place = {"field": "at", "late": DISORDER, "fields": ("user", "at", "other_at")}
        return left.join(right, "user", how=self.how, **self.bounds, **place, **settings)

    def check(self, rows: Noted, state: Any, *, is_exact: bool) -> None:
        left, right = self.left.clicks, self.right.clicks
        both = [(a, b) for a in left for b in right if a.user == b.user]
        pairs = [(a, b) for a, b in both if a.at <= b.at <= a.at + a.at % 9]
        matched = {id(a) for a, _ in pairs}
        expected: Noted = Counter((a.user, a.at, b.at) for a, b in pairs)
        expected.update((a.user, a.at, None) for a in left if id(a) not in matched)
        assert not expected - rows
        assert rows.keys() == expected.keys()


class Semi(Joined):
    how = "semi"

    def declare(self, topology: Topology, left: Any, settings: dict[str, Any]) -> Any:
        right = topology.spout("right", Resumed(self.right))
        place = {"field": "at", "late": DISORDER, "within": (0, WITHIN)}
        return left.join(right, "user", how=self.how, **place, **settings)

    def check(self, rows: Noted, state: Any, *, is_exact: bool) -> None:
        times = [(click.user, click.at) for click in self.right.clicks]
        expected: Noted = Counter()
        for user, at in self.left.clicks:
            is_matched = any((user, at + n) in times for n in range(WITHIN + 1))
            expected[user, at] += is_matched == (self.how == "semi")
        expected = +expected
        assert not expected - rows
        assert rows.keys() == expected.keys()


class Anti(Semi):
    how = "anti"


class AsOf(Joined):
    """The right side is a table, whose versions move, too."""

    def declare(self, topology: Topology, left: Any, settings: dict[str, Any]) -> Any:
        right = topology.spout("right", Resumed(self.right))
        changes = right.map(changed, fields=("user", "at", "name"))
        table = changes.group_by("user").table(field="at", wait=False, **settings)
        names = ("user", "at", "last", "name")
        return left.join(table, as_of="at", late=DISORDER, how="left", fields=names)

    def check(self, rows: Noted, state: Any, *, is_exact: bool) -> None:
        expected: Noted = Counter()
        for user, at in self.left.clicks:
            times = [click.at for click in self.right.clicks if click.user == user]
            last = max((time for time in times if time <= at), default=None)
            expected[user, at, last, None if last is None else user * 2] += 1
        assert not expected - rows
        assert rows.keys() == expected.keys()


def changed(click: Click) -> tuple[str, int, str]:
    return click.user, click.at, click.user * 2


class Tables(Program):
    """The right side is a table, whose final content is checked."""

    is_broadcast = False

    @property
    def sources(self) -> list[Source]:
        return [self.left, self.right]

    def declare(self, topology: Topology, left: Any, settings: dict[str, Any]) -> Any:
        right = topology.spout("right", Resumed(self.right))
        changes = right.map(changed, fields=("user", "at", "name"))
        table = changes.group_by("user").table(field="at", broadcast=self.is_broadcast, **settings)
        return left.join(table, how="left", fields=("user", "at", "last", "name"))

    def check(self, rows: Noted, state: Any, *, is_exact: bool) -> None:
        latest = dict[str, int]()
        for user, at in self.right.clicks:
            latest[user] = max(at, latest.get(user, 0))
        items = [*state.items("table")]
        assert {user: change[1] for user, change in items} == latest
        assert len(items) == len(latest)  # no user twice
        clicks = Counter((user, at) for user, at in self.left.clicks)
        joined = Counter[tuple[str, int]]()
        for (user, at, *_), times in rows.items():
            joined[user, at] += times
        assert joined == clicks if is_exact else not clicks - joined


class Broadcast(Tables):
    is_broadcast = True


PROGRAMS: list[Callable[[int], Program]] = [
    *(Tumbling, Sliding, BySession, ByCount, Totals, Processed, Bolts, Timed, Stages),
    *(Joined, Outer, Until, Semi, Anti, AsOf, Tables, Broadcast),
]


# ---- runs ---------------------------------------------------------------------------------------

# `make test` runs each program once: the first with kills, those from `JOINS` on without.
JOINS = PROGRAMS.index(Joined)


@seeds(300, kinds=JOINS)
def test_nothing_is_lost_when_the_number_of_tasks_changes_and_workers_die(seed: int) -> None:
    """Even seeds use a store whose calls fail, or take effect late or twice."""
    draw = Random(seed)
    program = PROGRAMS[seed % len(PROGRAMS)](seed)
    inner, troubles = MemoryState(), Troubles(draw, 0.05)
    state = inner if seed % 2 else UnsureState(inner, troubles)
    for source in program.sources:
        source.bound = TOTAL
    for number in range(runs := draw.randrange(2, 5)):
        topology = program.topology(state=state, parallelism=draw.randrange(1, 5))
        with SimCluster(seed + number, latency_s=0.005) as cluster:
            run = cluster.submit(topology.graph())
            for _ in range(draw.randrange(3)):
                if not run.wait(draw.uniform(0.05, 1.0)):
                    with suppress(ClusterError):  # the worker has just died
                        run.kill_worker(draw.randrange(3))
            is_last = number == runs - 1
            assert run.wait(600 if is_last else draw.uniform(0.0, 1.0)) or not is_last
            run.stop()
    troubles.calm()
    program.check(program.rows, inner, is_exact=False)


@seeds(300, first=JOINS, kinds=len(PROGRAMS) - JOINS)
def test_without_kills_the_result_is_that_of_a_plain_program(seed: int) -> None:
    draw = Random(seed)
    program = PROGRAMS[seed % len(PROGRAMS)](seed)
    state = MemoryState()
    bounds = sorted(draw.randrange(TOTAL) for _ in range(draw.randrange(1, 4)))
    for number, bound in enumerate([*bounds, TOTAL]):
        for source in program.sources:
            source.bound = bound
        topology = program.topology(state=state, parallelism=draw.randrange(1, 5))
        with SimCluster(seed + number, latency_s=0.005) as cluster:
            run = cluster.submit(topology.graph())
            while not all(source.is_done for source in program.sources):
                run.wait(0.1)
            run.wait(600 if bound == TOTAL else draw.uniform(0.0, 0.5))
            run.stop()
    program.check(program.rows, state, is_exact=True)


class Results:
    """The states in the memory of the tasks of a run, to be read like a MemoryState."""

    def __init__(self, run: SimRun) -> None:
        self.run = run

    def items(self, name: str) -> list[tuple[Any, Any]]:
        """Return all keys of a bolt, with their values."""
        return [pair for values in self.run.results(name) for pair in values.items()]


USUAL = (Totals, Sliding, Timed, Outer)
OTHERS = [kind for kind in PROGRAMS if kind not in (*USUAL, Tables, Broadcast)]


@pytest.mark.parametrize(
    "kind", [*USUAL, *(pytest.param(k, marks=pytest.mark.long) for k in OTHERS)]
)
def test_a_state_in_memory_moves_with_its_task(kind: Callable[[int], Program]) -> None:
    """Tables in memory are filled again: test_refills.py."""
    program = kind(1)
    for source in program.sources:
        source.bound = TOTAL
    with SimCluster(1, latency_s=0.005) as cluster:
        run = cluster.submit(program.topology(state=None, parallelism=2).graph())
        assert not run.wait(0.8)
        assert any(source.acked for source in program.sources)
        run.rebalance(workers=1)
        assert run.wait(600)
        program.check(program.rows, Results(run), is_exact=False)
