"""States of batches that expire: a batch decides as in its first attempt, whatever dies."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from sunshower import Context, KeyState, Topology
from sunshower.clock import ManualClock
from sunshower.errors import SunshowerError, TopologyError
from sunshower.runtime.inline import run_inline
from sunshower.runtime.plan import Layout
from sunshower.simulation.cluster import SimCluster
from sunshower.state import MemoryState, SqliteState
from sunshower.topologies.operators.port import Attempt
from sunshower.trident import FixedBatchSpout, InMemory, InSqlite, StateKind, batches, count
from sunshower.trident.coordination.attempts import SourceTime
from sunshower.trident.stages.keyed_operators import KeyedInBatches
from tests.seeds import seeds
from tests.trident.rigs.moving_states import Life, MortalState, ProcessEnded
from tests.trident.rigs.one_process import stub_stream
from tests.trident.rigs.programs import SETTINGS, kill_three, run

pytestmark = pytest.mark.filterwarnings("ignore:.*rows do not count exactly once")
TTL = 40


class Click(NamedTuple):
    id: str
    at: int


CLICKS = [Click("abcdefgh"[n * n * 7 % 8], n * 3 + n * 5 % 11) for n in range(240)]
BATCH = 6


def first(click: Click, state: KeyState[int]) -> Iterator[Click]:
    if state.value is None:
        state.value = 1
        yield click


def expected_first() -> list[Click]:
    """The clicks whose ids are new, or come again after TTL."""
    written: dict[str, float] = {}
    expected, earlier = [], -inf
    for begin in range(0, len(CLICKS), BATCH):
        rows = CLICKS[begin : begin + BATCH]
        for row in rows:
            now = max(row.at, earlier)
            if row.id not in written or written[row.id] + TTL <= now:
                written[row.id] = now
                expected.append(row)
        earlier = max([earlier, *(row.at for row in rows)])
    return expected


def declare(topology: Topology, ids: Any, counts: Any, **options: Any) -> Any:
    spout = FixedBatchSpout(CLICKS, BATCH, type=Click)
    clicks = batches(topology, "clicks", spout, store=options.pop("store", InMemory()), **options)
    new_clicks = clicks.group_by("id").process(first, state=ids, ttl_s=TTL, event_time="at")
    # It keeps what a first attempt has decided: another decision would be seen here.
    new_clicks.group_by("id", "at").aggregate(
        count(), state=counts, name="counts", not_exactly_once=True
    )
    return new_clicks


def test_a_key_that_comes_after_its_time_is_new() -> None:
    topology, ids, counts = Topology("clicks"), MemoryState(), MemoryState(name="counts")
    declare(topology, ids, counts)
    run(topology)
    assert dict(counts.items()) == {tuple(click): 1 for click in expected_first()}
    assert len(expected_first()) < len(CLICKS)


@seeds(40)
def test_a_repeated_batch_decides_as_the_first_attempt_did(seed: int) -> None:
    layout = (Layout.ISOLATE, Layout.PACK)[seed % 2]
    topology = Topology("clicks", **SETTINGS)
    kind = (StateKind.TRANSACTIONAL, StateKind.OPAQUE)[seed % 2]
    ids, counts = MemoryState(), MemoryState(kind, name="counts")
    declare(topology, ids, counts, interval_s=0.2)
    sim = SimCluster(seed, check=True, nodes=1 + seed % 2).submit(topology.graph(), layout)
    kill_three(sim, seed, lambda number: 0.4 + 0.13 * (number % 7))
    assert sim.wait(600.0)
    assert sim.snapshot().restarts
    assert dict(counts.items()) == {tuple(click): 1 for click in expected_first()}


def test_states_that_are_too_old_are_removed_and_counted() -> None:
    rows = [Click(f"k{n}", n) for n in range(200)]
    topology, ids = Topology("clicks"), MemoryState()
    spout = FixedBatchSpout(rows, 10, type=Click)
    clicks = batches(topology, "clicks", spout, store=InMemory())
    clicks.group_by("id").process(first, state=ids, ttl_s=TTL, event_time="at", parallelism=2)
    sim = SimCluster(1, check=True).submit(topology.graph())
    assert sim.wait(600.0)
    left = {key for key, _ in ids.items()}
    assert {f"k{n}" for n in range(160, 200)} <= left
    assert len(left) <= TTL + 3 * 10
    assert sim.snapshot().figures("first")["expired"] == 200 - len(left)


def test_by_the_clock_a_repeated_batch_has_the_time_of_its_first_attempt() -> None:
    """In a simulator, where the clock goes on while workers die."""
    topology, ids = Topology("clicks", **SETTINGS), MemoryState()
    counts = MemoryState(StateKind.TRANSACTIONAL, name="counts")
    spout = FixedBatchSpout([Click("a", n) for n in range(60)], 1, type=Click)
    clicks = batches(topology, "clicks", spout, store=InMemory(), interval_s=0.2)
    new_clicks = clicks.group_by("id").process(first, state=ids, ttl_s=1.0)
    new_clicks.group_by("at").aggregate(count(), state=counts, name="counts", not_exactly_once=True)
    sim = SimCluster(7, check=True).submit(topology.graph(), Layout.ISOLATE)
    kill_three(sim, 7, lambda number: 0.4 + 0.13 * (number % 7))
    assert sim.wait(600.0)
    totals = dict(counts.items())
    assert set(totals.values()) == {1}
    assert 4 <= len(totals) <= 30
    assert 0 in totals


def test_a_later_run_knows_when_states_were_written(tmp_path: Path) -> None:
    store = InSqlite(tmp_path / "batches.db")
    for name in ("one", "two"):
        topology = Topology("clicks")
        ids = SqliteState(tmp_path / "ids.db")
        declare(topology, ids, SqliteState(tmp_path / f"{name}.db"), store=store)
        run(topology)
    assert dict(SqliteState(tmp_path / "one.db").items()) == {
        tuple(click): 1 for click in expected_first()
    }


def test_values_from_before_the_state_expired_begin_with_the_next_batch(tmp_path: Path) -> None:
    ids = SqliteState(tmp_path / "ids.db")
    store = InSqlite(tmp_path / "batches.db")
    for part, settings in enumerate[Any](({}, {"ttl_s": TTL, "event_time": "at"})):
        topology = Topology("clicks")
        rows = [Click(f"k{n}", n) for n in range(100 * (part + 1))]
        clicks = batches(topology, "clicks", FixedBatchSpout(rows, 10, type=Click), store=store)
        clicks.group_by("id").process(first, state=ids, **settings)
        run(topology)
    left = {key for key, _ in ids.items()}
    assert {f"k{n}" for n in range(20)}.isdisjoint(left)
    assert "k199" in left


@pytest.mark.parametrize("tasks", [1, 3])
def test_what_a_batch_has_removed_is_removed_again_when_another_life_repeats_it(
    tasks: int,
) -> None:
    """Also if the state has moved to another number of tasks. An opaque state gives back the values
    from before the batch first."""
    rows = [Click(f"k{n}", n * 10) for n in range(12)]

    def distinct(ids: Any, parallelism: int) -> None:
        topology = Topology("clicks")
        spout = FixedBatchSpout(rows, 1, type=Click)
        clicks = batches(topology, "clicks", spout, store=store, max_batches=1)
        settings: Any = {"name": "ids", "parallelism": parallelism}
        clicks.distinct("id", state=ids, ttl_s=25, event_time="at", **settings)
        run_inline(topology.graph(), clock=ManualClock())

    for last in range(1, 20):
        store, ids = InMemory(), MemoryState(name="ids")
        life = Life(last, is_after=True)
        with suppress(ProcessEnded):
            distinct(MortalState(ids, life, ids.kind, ids.name), tasks)
        if life.writes < last:
            break
        distinct(ids, 1)
        assert {key for key, _ in ids.items()} - {"k8"} == {"k9", "k10", "k11"}
    assert last > 12


def test_what_a_batch_has_removed_expires_again_when_its_repetition_has_no_rows() -> None:
    """As in a task whose rows an opaque source has put into another batch."""
    topology, ids = Topology("clicks"), MemoryState(name="ids")
    spout = FixedBatchSpout([Click("a", 0)], 1, type=Click)
    clicks = batches(topology, "clicks", spout, store=InMemory())
    clicks.distinct("id", state=ids, ttl_s=25, event_time="at", name="ids")
    stages = [component.implementation for component in topology.graph().components.values()]
    operators = [candidate for stage in stages for candidate in getattr(stage, "operators", ())]
    (operator,) = [candidate for candidate in operators if isinstance(candidate, KeyedInBatches)]
    operator.prepare(Context("clicks", "ids", 0, 0, 1))

    def run_batch(txid: int, attempt: int, watermark: int, rows: list[Click]) -> None:
        number = Attempt(txid, attempt, 1)
        batch = operator.start(number)
        operator.process(batch, 0, rows, lambda _: None)
        time = SourceTime(watermark, watermark, idle=False, ended=False)
        times = dict.fromkeys(operator.sources, time)
        operator.note_times(batch, times)
        operator.finish(batch, number, lambda _: None)

    run_batch(1, 0, 0, [Click("a", 0), Click("b", 0)])
    run_batch(2, 0, 30, [Click("b", 40)])
    assert {key for key, _ in ids.items()} == {"b"}
    run_batch(2, 1, 30, [])
    run_batch(3, 0, 30, [Click("c", 40)])
    assert {key for key, _ in ids.items()} == {"c"}, "both were written at 0"


@pytest.mark.parametrize("ttl_s", [None, TTL])
def test_distinct_rows_are_those_of_such_a_function(ttl_s: int | None) -> None:
    topology, ids, counts = Topology("clicks"), MemoryState(), MemoryState(name="counts")
    spout = FixedBatchSpout(CLICKS, BATCH, type=Click)
    clicks = batches(topology, "clicks", spout, store=InMemory())
    expiring: Any = {} if ttl_s is None else {"ttl_s": ttl_s, "event_time": "at"}
    new_clicks = clicks.distinct("id", state=ids, **expiring)
    new_clicks.group_by("id", "at").aggregate(count(), state=counts, name="counts")
    run(topology)
    if ttl_s is not None:
        assert dict(counts.items()) == {tuple(click): 1 for click in expected_first()}
    else:
        firsts = {click.id: click for click in reversed(CLICKS)}
        assert dict(counts.items()) == {tuple(click): 1 for click in firsts.values()}


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"ttl_s": -1}, "ttl_s is -1"),
        ({"event_time": "when"}, "when"),
        ({"event_time": "at", "zone": "nowhere"}, "nowhere"),
        ({"event_time": "at", "late": -1}, "late is -1"),
        ({"event_time": "at", "ahead": "x"}, "ahead is 'x'"),
        ({"late": 5}, "late= needs event_time="),
        ({"vlaue": 1}, "there is no setting 'vlaue'"),
    ],
)
def test_wrong_settings_of_distinct_are_named_as_on_ordinary_streams(
    settings: Any, says: str
) -> None:
    _, clicks = stub_stream(Click)
    with pytest.raises(SunshowerError, match=rf"distinct\(id\).*{says}"):
        clicks.distinct("id", state=MemoryState(), **settings)
    clicks.distinct("id", state=MemoryState(), event_time="at", late=1, zone="UTC", ttl_s=None)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"event_time": "at"}, "event_time= is for ttl_s="),
        ({"ttl_s": 1, "zone": "UTC"}, "zone= is for event_time="),
        ({"ttl_s": 0}, "ttl_s"),
        ({"ttl_s": 1, "event_time": "when"}, "when"),
        ({"version": 2}, "version= is for ordinary streams"),
    ],
)
def test_wrong_declarations(settings: Any, says: str) -> None:
    _, clicks = stub_stream(Click)
    with pytest.raises(TopologyError, match=says):
        clicks.group_by("id").process(first, state=MemoryState(), **settings)
