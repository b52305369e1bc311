"""Event times in the future in batches: they do not move the watermark, and are counted."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from sunshower import Records, Topology, run_inline
from sunshower.clock import ManualClock
from sunshower.errors import TopologyError, TopologyFailed
from sunshower.runtime.events.metrics import Snapshot
from sunshower.state import MemoryState
from sunshower.topologies.operators.aggregators import count
from sunshower.topologies.operators.windows.event_times import ClockLimit, TimeField
from sunshower.topologies.operators.windows.window_kinds import Window, tumbling
from sunshower.trident import FixedBatchSpout, InMemory, InSqlite, PlainSpout, batches
from sunshower.trident.states.factories import SqliteState
from tests.trident.rigs.numbers import OpaqueRowBatches, RowBatches
from tests.trident.rigs.one_process import collected
from tests.trident.spouts.test_reached_times import Opaque, Source, TimedDrive, Transactional

NOW = datetime(2026, 11, 28, 12, tzinfo=UTC)
HOUR = tumbling(seconds=60, field="at")
ROWS, FUTURE = 20, 5


class Event(NamedTuple):
    key: str
    at: Any


def events(ahead: timedelta = timedelta(hours=2), begin: datetime = NOW) -> list[Event]:
    rows = [Event("a", begin - timedelta(minutes=ROWS - n)) for n in range(ROWS)]
    rows[FUTURE] = Event("a", begin + ahead)
    return rows


SPOUTS: dict[str, Any] = {
    "transactional": lambda rows: RowBatches(rows, 1, type=Event),
    "opaque": lambda rows: OpaqueRowBatches(rows, 1, type=Event),
    "without partitions": lambda rows: FixedBatchSpout(rows, 1, type=Event),
    "ordinary": lambda rows: PlainSpout(Records(rows, type=Event), repeats=True),
}


def run(
    spout: Any, window: Window, state: Any = None, now: datetime = NOW, store: Any = None
) -> tuple[int, int, Snapshot]:
    """How many rows are in windows, and in late ones; and the end of the run."""
    topology = Topology("t")
    stream = batches(topology, "in", spout, store=store or InMemory(), max_batches=1)
    windows = stream.group_by("key").window(window, count(), state=state or MemoryState())
    rows, late = collected(windows), collected(windows.late)
    done = run_inline(topology.graph(), clock=ManualClock(date=now), steps_max=200_000)
    return sum(row[2] for row in rows), sum(row[2] for row in late), done.snapshot


def totals(snapshot: Snapshot) -> tuple[int, int]:
    """How many rows are late, and how many were too far ahead of the clock."""
    counts = [snapshot.component(task.component) for task in snapshot.tasks()]
    return sum(component.late for component in counts), sum(component.ahead for component in counts)


@pytest.mark.parametrize("spout", SPOUTS)
def test_a_time_in_the_future_makes_no_row_late(spout: str) -> None:
    rows, late, snapshot = run(SPOUTS[spout](events()), HOUR)
    assert (rows, late, *totals(snapshot)) == (ROWS, 0, 0, 1)


def test_rows_are_late_and_counted_without_it() -> None:
    window = tumbling(seconds=60, field="at", ahead=None)
    rows, late, snapshot = run(SPOUTS["transactional"](events()), window)
    assert late == ROWS - FUTURE - 1
    assert (rows, *totals(snapshot)) == (FUTURE + 1, late, 0)


def test_numbers_with_a_unit_are_compared_with_the_clock() -> None:
    rows = [Event("a", int(event.at.timestamp() * 1_000)) for event in events()]
    for more, is_ahead in (({}, 0), ({"unit": "ms"}, 1), ({"unit": "ms", "ahead": 8e6}, 0)):
        window = tumbling(seconds=60_000, field="at", **more)  # type: ignore[arg-type]
        assert totals(run(SPOUTS["transactional"](rows), window)[2])[1] == is_ahead
    with pytest.raises(TopologyFailed, match="field 'at' of spout 'in' is a number"):
        run(SPOUTS["transactional"](rows), tumbling(seconds=60, field="at", ahead=60))


def test_a_future_time_does_not_make_the_next_run_late(tmp_path: Path) -> None:
    state, store = SqliteState(str(tmp_path / "state.db")), InSqlite(str(tmp_path / "store.db"))
    later = NOW + timedelta(hours=1)
    rows = events(timedelta(days=300))
    assert run(SPOUTS["transactional"](rows), HOUR, state, store=store)[1] == 0
    more = events(timedelta(minutes=FUTURE - ROWS), later)
    second = run(SPOUTS["transactional"]([*rows, *more]), HOUR, state, later, store)
    assert second[:2] == (ROWS, 0)
    third = run(SPOUTS["transactional"]([*rows, *more, *more]), HOUR, state, later, store)
    assert third[:2] == (0, ROWS)
    late = [task.component for task in third[2].tasks() if task.counts.late]
    (note,) = third[2].event_time_notes(late[0])
    assert note.startswith("everything was late: the state says that windows up to ")


def test_two_windows_of_one_source_have_the_same_distance() -> None:
    topology = Topology("t")
    stream = batches(topology, "in", SPOUTS["transactional"](events()), store=InMemory())
    stream.window(HOUR, count(), state=MemoryState(), name="a")
    other = tumbling(seconds=60, field="at", ahead=None)
    with pytest.raises(TopologyError, match="give both the same ahead="):
        stream.window(other, count(), state=MemoryState(), name="b")


def drive(kind: Any, source: Source) -> TimedDrive:
    timed_drive = TimedDrive(kind(source))
    timed_drive.times[0]._limit = ClockLimit("at", TimeField("at"))
    return timed_drive


@pytest.mark.parametrize("kind", [Transactional, Opaque])
def test_a_partition_with_only_future_times_is_passed_over_after_30_s(kind: Any) -> None:
    date = ManualClock().wall()
    source = Source(a=[], b=[])
    rig = drive(kind, source)
    for txid in range(1, 40):
        source.rows["a"].append(datetime.fromtimestamp(date + txid, UTC))
        source.rows["b"].append(datetime.fromtimestamp(date + 86_400 + txid, UTC))
        source_time = rig.done(txid)
        time = source_time.earlier if source_time.idle else source_time.reached
        assert (time > date) == (txid >= 31), f"batch {txid}"
        rig.wait(1.0)
    times = rig.times[0]
    assert times.ahead == 39
    assert "all times of partition b have been more than 1 h ahead for" in times.event_time.ahead
    source.rows["b"].append(datetime.fromtimestamp(date + 30, UTC))
    assert rig.done(40).reached == date + 30
    assert not times.event_time.ahead


def test_status_says_that_windows_wait_if_all_times_are_in_the_future() -> None:
    source = Source(a=[])
    rig = drive(Transactional, source)
    for txid in range(1, 40):
        source.rows["a"].append(datetime(2200, 1, 1, tzinfo=UTC))
        rig.done(txid)
        rig.wait(1.0)
    event_time = rig.times[0].event_time
    assert (
        event_time.holds == "all times are more than 1 h ahead; use `ahead=None` if this is right"
    )
    assert event_time.all_ahead


def test_a_repeated_batch_has_the_decision_of_its_first_attempt() -> None:
    source = Source(a=[datetime(2100, 1, 1, 2, tzinfo=UTC)])
    rig = drive(Transactional, source)
    first = rig.time(1)
    rig.wait(7_200.0)
    assert rig.time(1, 1) == first
    assert rig.times[0].ahead == 1
