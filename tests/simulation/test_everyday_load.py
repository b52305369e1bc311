"""Tests of everyday load: a slow bolt, dead letters or an outage cost time, and no tuple.

The long runs take 15 minutes of virtual time, which is thirty message timeouts.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from sunshower import Bolt, Context, Counter, DeadLetter, Number, Retry, Topology
from sunshower.runtime.events.health import WaitKind
from sunshower.runtime.events.metrics import Snapshot
from sunshower.runtime.plan import Layout
from sunshower.simulation.cluster import SimCluster, SimRun
from tests.simulation.probes import Shared

QUARTER_S = 900.0
SLOW_S = 0.02
TABLE = 32_768  # the most trees that may be pending
CALL_S = 1e-6  # the virtual time of a call, without the user code in it
every_layout = pytest.mark.parametrize("layout", Layout)


class Slow(Bolt[Number, None]):
    """Takes `seconds` for each number, and raises for the last of each `raises` numbers."""

    def __init__(self, seconds: float, raises: int | None = None) -> None:
        self.seconds, self.raises = seconds, raises

    def prepare(self, context: Context) -> None:
        self.clock = context.clock

    def process(self, record: Number) -> None:
        self.clock.sleep(self.seconds)
        if self.raises and record.value % self.raises == self.raises - 1:
            raise ValueError("one of many")


def parse(record: Number) -> Iterator[Number]:
    yield record


# ---- a slow bolt behind a fast one ---------------------------------------------------------------


def slow_chain(cost_s: float, **settings: Any) -> Topology:
    topology = Topology("slow-chain", **settings)
    numbers = topology.spout("numbers", Counter())
    parsed = numbers.shuffle().bolt("parse", parse)
    parsed.shuffle().bolt("slow", Slow(cost_s))
    return topology


def assert_at_full_speed(run: SimRun, cost_s: float, queued: int) -> None:
    """Check that the chain ran at 0.9 of the speed of its slow bolt or faster, and that no tree
    was pending for more than 3 s, or than the slow bolt takes for `queued` + 5 records."""
    snapshot = run.snapshot()
    numbers = snapshot.component("numbers")
    assert (numbers.failed, numbers.causes) == (0, {})
    assert numbers.acked >= 0.9 * run.now() / cost_s
    longest_s = snapshot.latencies("numbers").percentile(100)
    assert longest_s is not None
    assert longest_s < max(3.0, (queued + 5) * cost_s)


@every_layout
@pytest.mark.parametrize(
    ("cost_s", "seconds"),
    [
        (0.001, 20.0),
        pytest.param(SLOW_S, QUARTER_S, marks=pytest.mark.long),
        pytest.param(1.0, QUARTER_S, marks=pytest.mark.long),
        (5.0, 1_800.0),
    ],
)
def test_chain_runs_at_the_speed_of_its_slow_bolt_and_nothing_times_out(
    layout: Layout, cost_s: float, seconds: float
) -> None:
    with SimCluster(1, drift=0.0, call_s=CALL_S) as cluster:
        run = cluster.submit(slow_chain(cost_s).graph(), layout)
        run.wait(seconds)
        assert_at_full_speed(run, cost_s, 7)


@every_layout
@pytest.mark.parametrize(
    ("cost_s", "seconds"),
    [(0.001, 30.0), pytest.param(SLOW_S, 100.0, marks=pytest.mark.long), (1.0, 100.0)],
)
def test_credits_slow_down_a_spout_whose_pending_limit_is_high(
    layout: Layout, cost_s: float, seconds: float
) -> None:
    with SimCluster(1, drift=0.0, call_s=CALL_S) as cluster:
        run = cluster.submit(slow_chain(cost_s, spout_pending=TABLE).graph(), layout)
        run.wait(seconds)
        assert_at_full_speed(run, cost_s, 12)


# ---- dead letters beside a busy bolt -------------------------------------------------------------


class Letters(Shared):
    """When each dead letter was written."""

    def __init__(self) -> None:
        self.written: dict[int, float] = {}


class Write(Bolt[DeadLetter, None]):
    def __init__(self, letters: Letters) -> None:
        self.letters = letters

    def prepare(self, context: Context) -> None:
        self.clock = context.clock

    def process(self, record: DeadLetter) -> None:
        self.letters.written.setdefault(record.record["value"], self.clock.now())


def with_letters(letters: Letters, cost_s: float, parallelism: int) -> Topology:
    topology = Topology("letters")
    retry = Retry(attempts=2, dead_letters=True)
    numbers = topology.spout("numbers", Counter(), retry=retry)
    numbers.shuffle().bolt("slow", Slow(cost_s, raises=50), parallelism=parallelism)
    numbers.stream("dead_letters").shuffle().bolt("letters", Write(letters))
    return topology


@every_layout
@pytest.mark.parametrize(
    ("seconds", "parallelism"), [(45.0, 1), pytest.param(QUARTER_S, 3, marks=pytest.mark.long)]
)
def test_dead_letters_are_written_while_a_bolt_beside_their_reader_is_busy(
    layout: Layout, seconds: float, parallelism: int
) -> None:
    letters = Letters()
    with SimCluster(1, drift=0.0, call_s=CALL_S) as cluster:
        run = cluster.submit(with_letters(letters, SLOW_S, parallelism).graph(), layout)
        for _ in range(int(seconds / 5)):
            before = run.snapshot().component("numbers")
            run.wait(5.0)
            written = len(letters.written)
            # Two failures make a dead letter; the latest failures may wait for their replay.
            assert written >= before.failed // 2 - 5 * parallelism
        snapshot = run.snapshot()
        numbers = snapshot.component("numbers")
        assert set(numbers.causes) == {"exception"}, "nothing timed out"
        assert numbers.dead == pytest.approx(numbers.acked / 50, rel=0.05, abs=3)
        processed = numbers.acked - numbers.dead + numbers.failed
        assert processed >= 0.95 * seconds / SLOW_S


# ---- a dependency that is unavailable ------------------------------------------------------------


class Database(Shared):
    """An external server, which is unavailable for `away_s` from its first call."""

    def __init__(self, away_s: float) -> None:
        self.away_s = away_s
        self.from_s: float | None = None
        self.rows: list[int] = []

    def call(self, now: float) -> None:
        if self.from_s is None:
            self.from_s = now
        if now < self.from_s + self.away_s:
            raise ConnectionError("the database fails over")


class Sink(Bolt[Number, None]):
    """Calls its database for each number, and in `prepare` too if `prepares`."""

    def __init__(self, database: Database, *, prepares: bool) -> None:
        self.database, self.prepares = database, prepares

    def prepare(self, context: Context) -> None:
        self.clock = context.clock
        if self.prepares:
            self.database.call(context.clock.now())

    def process(self, record: Number) -> None:
        self.database.call(self.clock.now())
        self.database.rows.append(record.value)


def all_written(run: SimRun, database: Database, total: int) -> Snapshot:
    """Wait for the end, and check that each number is a row and no attempt was charged."""
    assert run.wait(database.away_s + 60.0)
    snapshot = run.snapshot()
    numbers = snapshot.component("numbers")
    assert sorted(set(database.rows)) == list(range(total))
    assert (numbers.acked, numbers.dead) == (total, 0)
    assert set(numbers.causes) <= {"unavailable"}
    assert not snapshot.waiting()
    return snapshot


@pytest.mark.parametrize(
    ("layout", "away_s", "prepares", "letters"),
    [
        (Layout.PACK, 2.0, False, False),
        (Layout.ISOLATE, 600.0, False, True),
        (Layout.PACK, 600.0, True, True),
        (Layout.ISOLATE, 2.0, True, False),
    ],
)
def test_sink_gets_every_record_after_an_outage_and_no_attempt_is_charged(
    layout: Layout, away_s: float, prepares: bool, letters: bool
) -> None:
    database = Database(away_s)
    topology = Topology("outage")
    retry = Retry(attempts=2, dead_letters=letters)
    numbers = topology.spout("numbers", Counter(2_000), retry=retry)
    numbers.shuffle().bolt("sink", Sink(database, prepares=prepares))
    if letters:
        numbers.stream("dead_letters").shuffle().bolt("letters", Write(Letters()))
    with SimCluster(1) as cluster:
        run = cluster.submit(topology.graph(), layout)
        all_written(run, database, 2_000)
        assert run.now() < (database.from_s or 0.0) + away_s + 30.0, "30 s after the outage"


@every_layout
def test_status_shows_the_outage_since_when_and_how_often_it_was_tried(
    layout: Layout,
) -> None:
    database = Database(120.0)
    topology = Topology("outage")
    topology.spout("numbers", Counter(200)).shuffle().bolt("sink", Sink(database, prepares=False))
    with SimCluster(1) as cluster:
        run = cluster.submit(topology.graph(), layout)
        run.wait(60.0)
        (task,) = run.snapshot().waiting()
        wait = task.health.wait
        assert wait is not None
        assert (task.component, wait.kind, wait.reached) == ("sink", WaitKind.UNAVAILABLE, False)
        assert 50.0 < wait.for_s < 61.0
        assert wait.tries >= 8
        assert "ConnectionError: the database fails over" in wait.error.text
        all_written(run, database, 200)
