"""Tables in memory are filled again from their sources after the deaths of their processes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from random import Random
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest

from sunshower import (
    Bolt,
    Context,
    KeyState,
    LogSpout,
    Polled,
    Records,
    Retry,
    Spout,
    SpoutCollector,
    Topology,
    count,
    tumbling,
)
from sunshower.cli.health import problems
from sunshower.config import Internals
from sunshower.errors import ClusterError, TopologyError
from sunshower.runtime.events.event_log import What
from sunshower.runtime.plan import Layout
from sunshower.simulation.cluster import SimCluster, SimRun
from sunshower.state import MemoryState
from sunshower.testing import Feeder, simulate
from sunshower.topologies.components import Stateless
from sunshower.topologies.streams import Stream
from tests.seeds import seeds
from tests.topologies.operators.kinds import Kept
from tests.topologies.operators.windows.window_swarm import Note, run_with_faults

USERS, VERSIONS = 15, 3


class User(NamedTuple):
    user: int
    version: int
    name: str


class Click(NamedTuple):
    user: int
    at: int
    least: int  # the version of the user that was processed when the click came


CHANGES = [
    User(user, version, f"{version}") for version in range(VERSIONS) for user in range(USERS)
]
EVERY_S = 3.0  # a version comes, and before it nothing


class Processed:
    """Which changes are processed: the newest version of each user. All processes share it."""

    versions: dict[int, int] = {}  # noqa: RUF012
    newest = 0  # the version that the sources have

    @classmethod
    def has_come(cls, version: int, for_s: float) -> bool:
        """Whether a version is in the source, which was opened `for_s` ago, or earlier."""
        if for_s >= version * EVERY_S:
            cls.newest = max(cls.newest, version)
        return version <= cls.newest

    @classmethod
    def note(cls, change: User) -> None:
        cls.versions[change.user] = max(change.version, cls.versions.get(change.user, -1))


class Changes(Spout[User]):
    """The changes as records, with many a None."""

    def open(self, context: Context) -> None:
        self.clock, self.changes = context.clock, CHANGES[context.index :: context.parallelism]

    def records(self) -> Iterator[User | None]:
        begun_s = self.clock.now()
        for change in self.changes:
            yield None
            while not Processed.has_come(change.version, self.clock.now() - begun_s):
                yield None
            yield change

    def ack(self, message_id: int) -> None:
        Processed.note(self.changes[message_id])


class ChangeTables(Changes):
    """The changes as Arrow tables."""

    emits = User
    records = Spout.records

    def tables(self) -> Iterator[pa.Table | None]:
        for change in super().records():
            yield change and pa.table({name: [value] for name, value in change._asdict().items()})


class ChangeLog(LogSpout[User]):
    """The changes as a log, whose position is in a store that all processes share."""

    emits = User
    is_again = False
    done: dict[int, set[int]] = {}  # noqa: RUF012

    def open(self, context: Context) -> None:
        self.clock, self.begun_s = context.clock, context.clock.now()
        self.numbers = range(context.index, len(CHANGES), context.parallelism)
        done = set() if self.is_again else self.done.setdefault(context.index, set())
        self.left = [number for number in self.numbers if number not in done]
        self.settled = done

    def poll(self, limit: int) -> Polled[User]:
        now, numbers = self.clock.now(), list[int]()
        while self.left and len(numbers) < min(limit, 3) and self._has_come(self.left[0], now):
            numbers.append(self.left.pop(0))
        records = [CHANGES[number] for number in numbers]
        return Polled(np.array(numbers, np.int64), records, ended=not self.left)

    def _has_come(self, number: int, now: float) -> bool:
        return Processed.has_come(CHANGES[number].version, now - self.begun_s)

    def has_read_first(self) -> bool:
        return not self.left or not self._has_come(self.left[0], self.clock.now())

    def from_start(self) -> ChangeLog:
        again = type(self)()
        again.is_again = True
        return again

    def acked(self, numbers: Any) -> None:
        self.settled.update(numbers.tolist())
        if not self.is_again:
            for number in numbers.tolist():
                Processed.note(CHANGES[number])


SOURCES: dict[str, Any] = {"records": Changes, "tables": ChangeTables, "a log": ChangeLog}


class Clicks(Spout[Click]):
    """Clicks of users, for as long as there are changes, and longer."""

    def open(self, context: Context) -> None:
        self.clock = context.clock

    def records(self) -> Iterator[Click | None]:
        begun_s = self.clock.now()
        for n in range(120):
            while self.clock.now() < begun_s + n * 0.1:
                yield None
            user = n * 7 % USERS
            yield Click(user, n, Processed.versions.get(user, -1))


class Twice(Bolt[User, User]):
    """A bolt between the source and the table."""

    def process(self, user: User) -> Iterator[User]:
        yield user
        yield user


def same(user: User) -> User:
    return user


def is_user(user: User) -> bool:
    return user.user >= 0


def first_of(user: User, state: KeyState[int]) -> Iterator[User]:
    """A process in memory, which passes on each version once."""
    if state.value is None or state.value < user.version:
        state.value = user.version
        yield user


def between(changes: Stream[User], kind: int) -> Stream[User]:
    """What is between the source and the table."""
    match kind % 4:
        case 0:
            return changes
        case 1:
            return changes.map(same, fields=User).filter(is_user)
        case 2:
            return changes.shuffle().bolt("twice", Twice, parallelism=2)
        case _:
            return changes.group_by("user").process(first_of, fields=User, name="first")


def enriched(
    source: Any, kind: int = 0, *, tasks: int = 2, beside: Any = Kept, **table: Any
) -> Topology:
    Processed.versions, Processed.newest, ChangeLog.done = {}, 0, {}
    topology = Topology(
        "clicks", workers=3, attempts_max=1_000, internals=Internals(peer_link_retry_s=0.5)
    )
    changes = topology.spout("changes", source, parallelism=tasks)
    changes.shuffle().bolt("beside", beside)
    users = between(changes, kind).group_by("user").table(parallelism=tasks, **table)
    clicks = topology.spout("clicks", Clicks)
    to = ("user", "at", "least", "version", "name")
    clicks.join(users, how="left", fields=to).shuffle().bolt("note", Notes)
    return topology


class Notes(Stateless, Note):
    """Writes its records to the event log."""

    def process(self, record: Any) -> None:
        self.context.wrote(record[:2], record[2:4])


def found_by(run: SimRun) -> dict[int, list[tuple[int, int | None]]]:
    """For each click, the least version that it had to find, and the one that it found."""
    by_click: dict[int, list[tuple[int, int | None]]] = {}
    for entry in run.history():
        if entry.what is What.WROTE:
            (_, at), versions = entry.detail
            by_click.setdefault(at, []).append(tuple(versions))
    return by_click


def check(run: SimRun, where: str = "") -> None:
    """Each click found what was processed before, or what came later."""
    by_click = found_by(run)
    assert by_click.keys() == {*range(120)}, where
    bad = {
        at: versions
        for at, versions in by_click.items()
        if any(least >= 0 and (actual is None or actual < least) for least, actual in versions)
    }
    assert not bad, f"{where}: {bad}"


def kill_tables(run: SimRun, component: str = "table") -> None:
    for task in run.plan.tasks_of(component):
        with suppress(ClusterError):  # it has just died
            run.kill_worker(task.worker)


@seeds(120, kinds=3)
def test_a_click_finds_what_was_processed_before_it_whatever_dies(seed: int) -> None:
    draw = Random(seed)
    source = SOURCES[[*SOURCES][seed % 3]]
    topology = enriched(source, seed, broadcast=draw.random() < 0.3, field="version")
    check(run_with_faults(seed, topology), f"seed {seed}")


@pytest.mark.parametrize(
    ("source", "kind"),
    [
        pytest.param(source, kind, marks=[] if number == kind % 3 else pytest.mark.long)
        for number, source in enumerate(SOURCES)
        for kind in range(4)
    ],
)
def test_a_table_in_memory_has_all_again_after_its_processes_have_died(
    source: str, kind: int
) -> None:
    """All changes are processed at 7 s; the clicks at the end come after the second death."""
    with SimCluster(kind) as cluster:
        run = cluster.submit(enriched(SOURCES[source], kind).graph(), Layout.ISOLATE, sample=1)
        for after_s in (2.0, 6.0):
            assert not run.wait(after_s)
            kill_tables(run)
        assert run.wait(60.0)
        check(run)
        by_click = found_by(run)
        assert {actual for at in range(100, 120) for _, actual in by_click[at]} == {VERSIONS - 1}
        beside = Counter(row for row in run.results("beside")[0])
        assert beside == Counter(map(tuple, CHANGES)), "no other bolt gets them again"


# ---- other faults -------------------------------------------------------------------------------


def submitted(cluster: SimCluster, **table: Any) -> SimRun:
    """A run after 4 s, with a table that has been filled, and lost with its processes."""
    run = cluster.submit(enriched(Changes, **table).graph(), Layout.ISOLATE, sample=1)
    assert not run.wait(4.0)
    kill_tables(run)
    return run


@pytest.mark.parametrize(
    "pause_s", [0.7, *(pytest.param(s, marks=pytest.mark.long) for s in (0.4, 1.0))]
)
def test_processes_that_die_again_while_a_table_is_filled_lose_nothing(pause_s: float) -> None:
    with SimCluster(5) as cluster:
        run = submitted(cluster)
        for component in ("table", "changes", "table"):
            assert not run.wait(pause_s)
            kill_tables(run, component)
        run.kill_master()
        assert run.wait(90.0)
        check(run)


@pytest.mark.parametrize("workers", [1, 5])
def test_a_table_that_is_being_filled_moves(workers: int) -> None:
    with SimCluster(6) as cluster:
        run = submitted(cluster)
        while not waits(run):
            assert not run.wait(0.05)
        run.rebalance(workers, Layout.PACK, wait_s=0.0)
        assert run.wait(90.0)
        check(run)


def test_a_drain_ends_when_the_table_is_filled() -> None:
    with SimCluster(7) as cluster:
        run = submitted(cluster)
        while not waits(run):
            assert not run.wait(0.05)
        run.drain()
        assert run.wait(60.0)
        assert all(
            least < 0 or (actual is not None and actual >= least)
            for versions in found_by(run).values()
            for least, actual in versions
        )


def test_a_savepoint_of_a_table_that_is_being_filled_is_continued() -> None:
    graph = enriched(Changes, beside=ignore).graph()
    with SimCluster(10) as cluster:
        run = cluster.submit(graph, Layout.ISOLATE, sample=1)
        assert not run.wait(4.0)
        kill_tables(run)
        while not waits(run):
            assert not run.wait(0.05)
        savepoint = run.keep(0.0)
        run.kill(0.0)
    with SimCluster(11) as cluster:
        run = cluster.submit(graph, Layout.PACK, sample=1, resume=savepoint)
        assert run.wait(90.0)
        by_click = found_by(run)
    assert max(by_click) == 119
    assert all(
        actual is not None and actual >= a
        for versions in by_click.values()
        for a, actual in versions
    )


def ignore(_: User) -> None: ...


def test_a_fed_table_is_filled_again_in_the_test_kit() -> None:
    topology = enriched(Changes, 2, field="version")
    with simulate(topology, {"changes": Feeder(*CHANGES), "clicks": Feeder()}, seed=3) as run:
        run.advance(10.0)
        kill_tables(run.run)
        run.feeder("clicks").feed(*(Click(user, user, 0) for user in range(USERS)))
        run.finish()
        versions = {row[0]: row[3] for row in run.emitted("table")}
    assert versions == dict.fromkeys(range(USERS), VERSIONS - 1)


def waits(run: SimRun) -> list[str]:
    """What is said of the table."""
    return [line for line in problems(run.snapshot()) if "is filled again" in line]


def test_status_says_what_is_filled_again_and_how_far_it_is() -> None:
    reasons = set[str]()
    with SimCluster(8) as cluster:
        run = submitted(cluster, tasks=1)
        for _ in range(60):
            assert not run.wait(0.02)
            reasons.update(line.partition(" s, ")[2] for line in waits(run))
    assert "it waits until it is known how far spout 'changes' is" in reasons


def test_a_table_of_joined_records_and_one_behind_dead_letters_are_filled_again() -> None:
    """The last click of each user, joined with a name; a bolt fails one user always."""
    Processed.versions, Processed.newest = {}, 0
    topology = Topology("chain", workers=3, internals=Internals(peer_link_retry_s=0.5))
    changes = [User(user, 1, "name") for user in range(USERS)]
    users = topology.spout(
        "users", Records(changes, type=User), retry=Retry(attempts=2, dead_letters=True)
    )
    users.stream("dead_letters").shuffle().bolt("dead", Kept)
    names = users.shuffle().bolt("tried", Fails).group_by("user").table(name="names")
    pages = [(user, "/") for user in range(USERS)]
    visits = topology.spout("visits", Records(pages, fields=("user", "page")))
    last = visits.join(names).group_by("user").table(name="last", parallelism=2)
    clicks = topology.spout("clicks", Clicks)
    to = ("user", "at", "least", "page", "version", "name")
    clicks.join(last, how="left", fields=to).shuffle().bolt("note", Notes)
    with SimCluster(9) as cluster:
        run = cluster.submit(topology.graph(), Layout.ISOLATE, sample=1)
        assert not run.wait(8.0)
        kill_tables(run, "last")
        assert not run.wait(0.1)
        kill_tables(run, "names")
        assert run.wait(90.0)
        written = [entry.detail for entry in run.history() if entry.what is What.WROTE]
    pairs = {(user, page) for (user, _), (_, page) in written}
    assert pairs == {(user, None if user == 3 else "/") for user in range(USERS)}


class Fails(Bolt[User, User]):
    """Fails one user."""

    def process(self, user: User) -> Iterator[User]:
        if user.user == 3:
            raise ValueError(user)
        yield user


# ---- declarations -------------------------------------------------------------------------------


class Pushed(Spout[User]):
    """A spout that Storm would have."""

    def next_tuple(self, out: SpoutCollector[Any]) -> None:
        out.emit(CHANGES[0], message_id=1)


class OnceOnly(ChangeLog):
    """A log that cannot be read again from its start."""

    from_start = LogSpout.from_start


def windowed(changes: Stream[User]) -> Stream[Any]:
    rows = changes.group_by("user").window(tumbling(seconds=9, field="version"), count())
    return rows.map(lambda row: User(row[0], row[1], ""), fields=User)


def totals_of(changes: Stream[User]) -> Stream[Any]:
    return changes.group_by("user").aggregate(count())


def stored(changes: Stream[User]) -> Stream[User]:
    return changes.group_by("user").process(first_of, fields=User, state=MemoryState())


def as_it_is(changes: Stream[User]) -> Stream[User]:
    return changes


REFUSED: list[tuple[Any, Any, str]] = [
    (Pushed, as_it_is, "spout 'changes' cannot be read again from its start"),
    (OnceOnly, as_it_is, "spout 'changes' cannot be read again from its start"),
    (Changes, windowed, "its changes pass the window, join of streams or timer 'windows'"),
    (Changes, totals_of, "its changes are running totals"),
    (Changes, stored, "its changes pass 'first_of', whose state is stored"),
]


@pytest.mark.parametrize(("source", "way", "problem"), REFUSED)
@pytest.mark.filterwarnings("ignore:topology 'clicks', table 'table'")
def test_a_table_in_memory_that_could_not_be_filled_again_is_refused(
    source: Any, way: Any, problem: str
) -> None:
    def declared(**settings: Any) -> Any:
        topology = Topology("clicks")
        users = way(topology.spout("changes", source, fields=User)).group_by("user")
        clicks = topology.spout("clicks", Clicks).project("user", "at")
        clicks.join(users.table(**settings)).shuffle().bolt("kept", Kept)
        return topology.graph()

    with pytest.raises(TopologyError, match=f"it is in memory.*{problem}.*Give it a state"):
        declared()
    assert not declared(state=MemoryState()).refilled
    assert not declared(wait=False).refilled
