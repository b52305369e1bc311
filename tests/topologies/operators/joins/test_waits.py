"""Streams that are joined with a table begin when the table has what its sources had at first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest

from sunshower import (
    Bolt,
    Context,
    LogSpout,
    Polled,
    Records,
    Retry,
    Spout,
    SpoutCollector,
    TextFiles,
    Topology,
    count,
    run_inline,
    tumbling,
)
from sunshower.cli.statistics import fill_lines, status_fields
from sunshower.clock import ManualClock
from sunshower.config import Internals
from sunshower.errors import TopologyError
from sunshower.runtime.plan import make_plan
from sunshower.runtime.tasks.spouts.watermark_sender import WATERMARK
from sunshower.runtime.worker import Worker
from sunshower.simulation.cluster import SimCluster
from sunshower.state import MemoryState
from tests.seeds import seeds
from tests.topologies.operators.joins.test_stream_joins import Slow
from tests.topologies.operators.kinds import Kept
from tests.topologies.operators.windows.window_swarm import Note, run_with_faults, written_values

USERS = 500


class User(NamedTuple):
    user: int
    name: str


class Click(NamedTuple):
    user: int
    at: int


class UserTables(Spout[User]):
    """The users as Arrow tables."""

    def tables(self) -> Iterator[pa.Table]:
        for first in range(0, USERS, 30):
            users = [User(n, f"user {n}") for n in range(first, min(first + 30, USERS))]
            columns = zip(*users, strict=True)
            yield pa.table([pa.array(column) for column in columns], names=list(User._fields))


class UserLog(LogSpout[User]):
    """The users as a log, a few in each poll."""

    emits = User
    first = 0  # the number of the first one

    def open(self, context: Context) -> None:
        self.numbers = range(context.index, USERS, context.parallelism)

    def poll(self, limit: int) -> Polled[User]:
        now, self.numbers = self.numbers[: min(limit, 7)], self.numbers[min(limit, 7) :]
        users = [User(n, f"user {n}") for n in now]
        numbers = np.array(now, np.int64) + self.first
        return Polled(numbers, users, ended=not self.numbers)

    def has_read_first(self) -> bool:
        return not self.numbers

    def from_start(self) -> UserLog:
        return type(self)()


class HighUserLog(UserLog):
    """Its numbers are above that of a watermark, as those of half of all Kafka partitions are."""

    first = WATERMARK + 1


def users_then_changes() -> Iterator[User | None]:
    """All users, then None, and then changes without an end to wait for."""
    yield from (User(n, f"user {n}") for n in range(USERS))
    for n in range(5):
        yield None
        yield User(n, f"user {n}")


class SlowUsers(Slow):
    """One user a second."""

    emits = User


SOURCES: dict[str, Any] = {
    "records": Records([User(n, f"user {n}") for n in range(USERS)], type=User),
    "records that go on": Records(users_then_changes, type=User),
    "tables": UserTables(),
    "a log": UserLog,
}
CLICKS = Records([Click(n % USERS, n) for n in range(2 * USERS)], type=Click)


def enriched(users: Any, clicks: Any = CLICKS, *, tasks: int = 2, **table: Any) -> Topology:
    topology = Topology("clicks", workers=tasks)
    changes = topology.spout("users", users, parallelism=tasks)
    names = changes.group_by("user").table(parallelism=tasks, **table)
    stream = topology.spout("clicks", clicks, parallelism=tasks, fields=Click)
    stream.join(names).shuffle().bolt("kept", Kept)
    return topology


@pytest.mark.parametrize("kind", SOURCES)
@pytest.mark.parametrize("tasks", [1, 3])
def test_every_click_finds_its_user(kind: str, tasks: int) -> None:
    topology = enriched(SOURCES[kind], tasks=tasks)
    (rows,) = run_inline(topology.graph(), clock=ManualClock()).results["kept"]
    assert len(rows) == 2 * USERS
    with SimCluster(tasks) as cluster:
        run = cluster.submit(topology.graph())
        assert run.wait(120.0)
        (rows,) = run.results("kept")
        assert len(rows) == 2 * USERS
        assert run.snapshot().figures("table") == {"unmatched": 0.0}


def test_lines_of_files_fill_a_table(tmp_path: Path) -> None:
    (tmp_path / "users.csv").write_text("".join(f"{n},user {n}\n" for n in range(USERS)))
    topology = Topology("clicks", workers=2)
    lines = topology.spout("users", TextFiles(tmp_path / "users.csv"))
    users = lines.map(lambda line: User(int(line.text.split(",")[0]), line.text), fields=User)
    clicks = topology.spout("clicks", CLICKS)
    table = users.shuffle().stage("users-again", parallelism=2).group_by("user").table()
    clicks.join(table).shuffle().bolt("kept", Kept)
    (rows,) = run_inline(topology.graph(), clock=ManualClock()).results["kept"]
    assert len(rows) == 2 * USERS


def test_records_that_find_nothing_are_counted() -> None:
    clicks = Records([Click(n, n) for n in range(USERS + 30)], type=Click)
    with SimCluster(1) as cluster:
        run = cluster.submit(enriched(SOURCES["records"], clicks).graph())
        assert run.wait(60.0)
        assert run.snapshot().figures("table") == {"unmatched": 30.0}


def test_a_table_is_filled_in_slices_of_many_records() -> None:
    """Its task emits nothing meanwhile, so nothing widens the window of its receivers."""
    topology = Topology("clicks")
    users = Records([User(user, f"user {user}") for user in range(4_000)], type=User)
    table = topology.spout("users", users).group_by("user").table()
    clicks = topology.spout("clicks", Records([Click(3, 1)], type=Click))
    clicks.join(table).shuffle().bolt("kept", Kept)
    done = run_inline(topology.graph(), clock=ManualClock(), steps_max=500)
    assert done.results["kept"] == [[(3, 1, "user 3")]]


def test_without_the_wait_the_stream_begins_at_once() -> None:
    users = SlowUsers([User(n, "") for n in range(5)])
    topology = enriched(users, tasks=1, wait=False)
    graph = topology.graph()
    assert not graph.awaited
    (rows,) = run_inline(graph, clock=ManualClock()).results["kept"]
    assert len(rows) < 5


class FailsOnce(Bolt[User, User]):
    """Fails some users at their first attempt, and one of them always."""

    def prepare(self, context: Context) -> None:
        self.seen = set[int]()

    def process(self, user: User) -> Iterator[User]:
        is_first = user.user not in self.seen
        self.seen.add(user.user)
        if (is_first and user.user % 50 == 3) or user.user == 7:
            raise ValueError(user.user)
        yield user


@pytest.mark.parametrize("source", [SOURCES["records"], HighUserLog])
def test_users_that_fail_are_waited_for_until_they_are_done_or_dead_letters(source: Any) -> None:
    topology = Topology("clicks", workers=2)
    retry = Retry(attempts=3, initial_s=5.0, dead_letters=True)  # longer than news travel
    users = topology.spout("users", source, retry=retry)
    users.stream("dead_letters").shuffle().bolt("dead", Kept)
    tried = users.shuffle().bolt("tried", FailsOnce)
    clicks = topology.spout("clicks", CLICKS)
    table = tried.group_by("user").table()
    clicks.join(table).shuffle().bolt("kept", Kept)
    with SimCluster(2) as cluster:
        run = cluster.submit(topology.graph())
        assert run.wait(120.0)
        counts = Counter(row[0] for row in run.results("kept")[0])
    assert counts == {user: 2 for user in range(USERS) if user != 7}


@seeds(60)
def test_no_click_misses_its_user_under_faults(seed: int) -> None:
    topology = Topology(
        "clicks", workers=3, attempts_max=1_000, internals=Internals(peer_link_retry_s=0.5)
    )
    users = topology.spout("users", SOURCES["records"], parallelism=2)
    table = (
        users.shuffle()
        .stage("pass", parallelism=2)
        .group_by("user")
        .table(state=MemoryState(), parallelism=2)
    )
    clicks = topology.spout("clicks", Slow([Click(n, n) for n in range(30)]), fields=Click)
    joined = clicks.join(table, how="left", fields=("user", "at", "name"))
    joined.shuffle().bolt("note", Note)
    written = written_values(run_with_faults(seed, topology))
    assert {key: {*names} for key, names in written.items()} == {
        (n, n): {f"user {n}"} for n in range(30)
    }, f"seed {seed}"


# ---- what is shown, and how a wait ends ---------------------------------------------------------


def test_status_shows_what_is_waited_for_and_how_far_it_is() -> None:
    graph = enriched(Stalled(), tasks=1).graph()
    with SimCluster(1) as cluster:
        run = cluster.submit(graph)
        assert not run.wait(30.0)
        (line,) = fill_lines(graph, run.snapshot())
        assert line == (
            "clicks waits until the tables of its joins have the records of users: 0 are processed,"
            " 0 of 1 tasks have all"
        )
        fields = status_fields(run.overview(), 1.0)["components"]
        assert (fields["clicks"]["awaits"], fields["users"]["awaits"]) == (["users"], [])


def test_a_spout_that_has_waited_for_a_minute_says_so() -> None:
    clock, plan = ManualClock(), make_plan(enriched(Stalled(), tasks=1).graph())
    worker = Worker(plan, 0, 1, np.random.default_rng(0), clock)
    notices: list[str] = []
    while clock.now() < 130.0:
        clock.sleep(worker.step() or 0.05)
        notices += worker.notices()
    worker.close()
    (line,) = notices
    assert line.startswith("spout 'clicks' has waited for 60 s until the tables of its joins have")
    assert "wait=False" in line


class Stalled(LogSpout[User]):
    """A log that never returns what it has."""

    emits = User

    end_s = inf  # when it returns one user after all

    @classmethod
    def until(cls, end_s: float) -> Stalled:
        log = cls()
        log.end_s = end_s
        return log

    def open(self, context: Context) -> None:
        self.clock, self.is_read = context.clock, False

    def poll(self, limit: int) -> Polled[User] | None:
        if self.is_read or not limit or self.clock.now() < self.end_s:
            return None
        self.is_read = True
        return Polled(np.array([0], np.int64), [User(1, "user 1")], ended=True)

    def has_read_first(self) -> bool:
        return self.is_read

    def from_start(self) -> Stalled:
        return self


def test_a_drain_ends_the_wait() -> None:
    with SimCluster(1) as cluster:
        run = cluster.submit(enriched(Stalled(), tasks=1).graph())
        assert not run.wait(20.0)
        assert run.snapshot().component("clicks").emitted == 0
        run.drain()
        assert run.wait(60.0)


class ReadOnce(UserLog):
    """A log that the second life of its task cannot read to its first end."""

    lives = 0

    def open(self, context: Context) -> None:
        super().open(context)
        type(self).lives += 1

    def has_read_first(self) -> bool:
        return self.lives == 1 and super().has_read_first()


def test_the_wait_is_once_per_run() -> None:
    """Another master, and new processes of all workers, do not wait again."""
    ReadOnce.lives = 0
    clicks = Slow([Click(n, n) for n in range(20)])
    with SimCluster(3) as cluster:
        run = cluster.submit(enriched(ReadOnce, clicks, tasks=1, state=MemoryState()).graph())
        assert not run.wait(10.0)
        run.kill_master()
        for worker in run.plan.workers:
            run.kill_worker(worker)
        assert run.wait(120.0)
        assert ReadOnce.lives == 2
        last = run.results("kept")[0][-1]
    assert last == (19, 19, "user 19")


def test_a_stream_that_waits_holds_the_windows_back() -> None:
    """Another stream of the same window goes on meanwhile, for longer than an idle source has."""
    topology = Topology("windows")
    users = topology.spout("users", Stalled.until(100.0), fields=User)
    first = topology.spout("first", Records([Click(1, n) for n in range(50)], type=Click))
    named = first.join(users.group_by("user").table()).project("user", "at")
    others = Slow([Click(1, n) for n in range(200)])
    second = topology.spout("second", others, fields=Click).project("user", "at")
    rows = named.merge(second).group_by("user").window(tumbling(seconds=10, field="at"), count())
    rows.shuffle().bolt("kept", Kept)
    (counts,) = run_inline(topology.graph(), clock=ManualClock()).results["kept"]
    assert sum(row[-1] for row in counts) == 250


# ---- declarations -------------------------------------------------------------------------------


def test_a_spout_of_both_sides_does_not_wait() -> None:
    topology = Topology("users")
    users = topology.spout("users", SOURCES["records"])
    clicks = topology.spout("clicks", CLICKS)
    table = users.group_by("user").table()
    users.join(table, fields=("user", "name", "again")).shuffle().bolt("own", Kept)
    clicks.join(table).shuffle().bolt("kept", Kept)
    graph = topology.graph()
    assert {spout.id: spout.awaits for spout in graph.spouts} == {"users": (), "clicks": ("users",)}


def test_a_chain_of_tables_is_waited_for_in_turn() -> None:
    topology = Topology("chain")
    users = topology.spout("users", SOURCES["records"]).group_by("user").table(name="names")
    clicks = topology.spout("clicks", CLICKS)
    last = clicks.join(users).group_by("user").table(name="last")
    visits = topology.spout("visits", Records([Click(n, n) for n in range(USERS)], type=Click))
    visits.join(last, fields=("user", "at", "last", "name")).shuffle().bolt("kept", Kept)
    graph = topology.graph()
    assert {spout.id: spout.awaits for spout in graph.spouts} == {
        "users": (),
        "clicks": ("users",),
        "visits": ("clicks", "users"),
    }
    (rows,) = run_inline(graph, clock=ManualClock()).results["kept"]
    assert len(rows) == USERS


@pytest.mark.parametrize("tasks", [1, 2])
def test_the_spouts_of_two_tables_do_not_wait_for_each_other(tasks: int) -> None:
    """Two streams are joined with both, in either order: no change of a table leaves it."""
    topology = Topology("both")
    users = topology.spout("users", SOURCES["records"], parallelism=tasks)
    names = users.group_by("user").table(name="names")
    visits = topology.spout("visits", Records([Click(n, n) for n in range(USERS)], type=Click))
    last = visits.group_by("user").table(name="last", parallelism=tasks)
    first, second = topology.spout("first", CLICKS), topology.spout("second", CLICKS)
    to = ("user", "at", "name"), ("user", "at", "last")
    first.join(names, fields=to[0]).join(last, fields=(*to[0], "last")).shuffle().bolt("a", Kept)
    second.join(last, fields=to[1]).join(names, fields=(*to[1], "name")).shuffle().bolt("b", Kept)
    graph = topology.graph()
    both = ("users", "visits")
    assert {spout.id: tuple(sorted(spout.awaits)) for spout in graph.spouts} == {
        "users": (),
        "visits": (),
        "first": both,
        "second": both,
    }
    done = run_inline(graph, clock=ManualClock()).results
    assert [len(done[id][0]) for id in "ab"] == [2 * USERS] * 2


def test_spouts_that_would_wait_for_each_other_are_refused() -> None:
    topology = Topology("circle")
    users = topology.spout("users", SOURCES["records"])
    clicks = topology.spout("clicks", CLICKS)
    by_user = clicks.group_by("user").table(name="last-click")
    names = users.group_by("user").table(name="names")
    clicks.join(names).shuffle().bolt("kept", Kept)
    users.join(by_user, fields=("user", "name", "at")).shuffle().bolt("others", Kept)
    message = (
        "topology 'circle': spouts would wait for each other: spout '.*' for table '.*', which '.*'"
        " fills; spout '.*' for table '.*', which '.*' fills. Declare one of these tables with "
        r"table\(wait=False\)"
    )
    with pytest.raises(TopologyError, match=message):
        topology.graph()


class Pushed(Spout[User]):
    """A spout that Storm would have."""

    def next_tuple(self, out: SpoutCollector) -> None:
        out.emit(User(1, "a"), message_id=1)


class OwnLog(UserLog):
    """A log that cannot tell when it is read."""

    has_read_first = LogSpout.has_read_first


@pytest.mark.parametrize("spout", [Pushed, OwnLog])
def test_a_source_without_a_first_end_is_not_waited_for_and_this_is_said(spout: Any) -> None:
    with pytest.warns(UserWarning, match="spout 'users' cannot tell when it has read all"):
        graph = enriched(spout, tasks=1, state=MemoryState()).graph()
    assert not graph.awaited


def test_a_table_behind_a_window_is_not_waited_for_and_this_is_said() -> None:
    topology = Topology("windows")
    clicks = topology.spout("clicks", CLICKS)
    rows = (
        topology.spout("rows", CLICKS)
        .group_by("user")
        .window(tumbling(seconds=60, field="at"), count())
    )
    table = rows.project("user", "count").group_by("user").table(state=MemoryState())
    clicks.join(table).shuffle().bolt("kept", Kept)
    with pytest.warns(UserWarning, match="its changes pass a window, a join of streams or a timer"):
        graph = topology.graph()
    assert not graph.awaited


def test_a_wait_that_is_no_flag_is_refused() -> None:
    with pytest.raises(TopologyError, match="wait is 'no'"):
        enriched(SOURCES["records"], wait="no")
