"""How far partitions are in event time: the same in each attempt, idle ones, moves, old entries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from functools import reduce
from math import inf
from typing import Any

import pytest

from sunshower.clock import ManualClock
from sunshower.errors import BatchError
from sunshower.records import Schema
from sunshower.topologies.operators.port import Attempt
from sunshower.topologies.operators.windows.event_times import TimeField
from sunshower.topologies.operators.windows.watermarks import GAP_S, IDLE_S
from sunshower.trident.coordination.attempts import SourceTime
from sunshower.trident.spouts.bounds import Bounds, Room
from sunshower.trident.spouts.fixed import FixedBatchSpout
from sunshower.trident.spouts.partition_emitters import OnePartition, PartitionLog
from sunshower.trident.spouts.port import OpaquePartitionedSpout, PartitionedSpout
from sunshower.trident.spouts.reached_times import PartitionAt, ReachedTimes
from tests.trident.rigs.emitting import PATH, Drive

ROW = ("partition", "at")


class Source:
    """Partitions that grow. `taken`: how many rows an attempt takes of each, at most."""

    def __init__(self, **partitions: Sequence[Any]) -> None:
        self.rows = {name: [*times] for name, times in partitions.items()}
        self.away: set[str] = set()
        self.taken = 100

    def __deepcopy__(self, memo: object) -> Source:
        return self


class _Reader:
    emits = ROW
    bounds = Bounds()

    def __init__(self, source: Source) -> None:
        self.source = source

    def partitions(self) -> Sequence[str]:
        return [*self.source.rows]

    def emit_all_new(self, last: Mapping[str, Any], room: Room) -> dict[str, Any]:
        positions = {}
        for name, before in last.items():
            if name not in self.source.away:
                first = before["end"] if before else 0
                times = self.source.rows[name][first : first + self.source.taken]
                room.partition = name
                room.emit([(name, time) for time in times])
                positions[name] = {"end": first + len(times)}
        return positions

    def emit_all_again(self, metadata: Mapping[str, Any], room: Room) -> None:
        """What is emitted again does not matter here."""


class Transactional(_Reader, PartitionedSpout):
    pass


class Opaque(_Reader, OpaquePartitionedSpout):
    pass


BOTH = pytest.mark.parametrize("kind", [Transactional, Opaque])


class TimedDrive(Drive):
    """Drives a spout whose rows windows read."""

    def __init__(self, spout: Any, tasks: int = 1, **more: Any) -> None:
        self.times: dict[int, ReachedTimes] = {}
        super().__init__(spout, tasks, clock=ManualClock(), **more)

    def emitter(self, index: int) -> Any:
        emitter = super().emitter(index)
        reader = TimeField("at", None).reader(Schema(ROW))
        self.times[index] = times = ReachedTimes(reader, self.clock, 0.0)
        if not hasattr(emitter, "watch"):
            context = self.context("s", index, self.tasks)
            place = (self.tree, f"{PATH.rpartition('/')[0]}/times", context)
            emitter = OnePartition(emitter, self.spout.kind, *place)
        emitter.watch(times)
        return emitter

    def time(self, txid: int, attempt: int = 0, current: int | None = None) -> SourceTime:
        """Emit a batch. Return how far the source is; `current`: the batch to be committed next."""
        for times in self.times.values():
            times.begin(txid if current is None else current)
        try:
            self.emit(txid, attempt)
        except BaseException:
            for times in self.times.values():
                times.failed()
            raise
        total = reduce(SourceTime.merged, [times.total for times in self.times.values()])
        return total._replace(newest=inf)

    def done(self, txid: int, attempt: int = 0) -> SourceTime:
        """Run a batch from beginning to end."""
        source_time = self.time(txid, attempt)
        self.commit(txid, attempt)
        self.tree_says(txid + 1)
        self.success(txid, attempt)
        return source_time

    def wait(self, seconds: float) -> None:
        assert isinstance(self.clock, ManualClock)
        self.clock.advance(seconds)


def reached(time: Any, earlier: Any = -inf, *, idle: bool = False) -> SourceTime:
    return SourceTime(time, earlier, idle=idle, ended=False)


@BOTH
@pytest.mark.parametrize("tasks", [1, 2])
def test_the_slowest_partition_decides_and_keeps_its_time_without_rows(
    kind: Any, tasks: int
) -> None:
    source = Source(a=[1, 2, 9], b=[4], c=[7, 5])
    drive = TimedDrive(kind(source), tasks)
    assert drive.done(1) == reached(4)
    source.rows["a"] += [20]
    source.rows["c"] += [30]
    assert drive.done(2) == reached(4, 4)
    source.rows["b"] += [11, 12]
    assert drive.done(3) == reached(12, 4)
    for index in range(tasks):
        drive.restart(index)
    assert drive.done(4) == reached(12, 12), "a new life reads the times from the store"


@BOTH
def test_a_partition_without_a_row_yet_holds_windows_back(kind: Any) -> None:
    drive = TimedDrive(kind(Source(a=[1], b=[])))
    assert drive.done(1) == reached(-inf)
    assert drive.done(2) == reached(-inf)


def test_a_transactional_batch_has_the_same_time_in_each_attempt() -> None:
    source = Source(a=[1, 2], b=[3], c=[2])
    drive = TimedDrive(Transactional(source), 2)
    drive.done(1)
    source.rows["a"] += [40]
    source.rows["b"] += [50]
    first = drive.time(2)
    for attempt in (1, 2, 3):
        source.rows["a"] += [60]
        source.away = {"c"} if attempt == 2 else set()
        drive.wait(2 * IDLE_S)
        if attempt != 1:
            for index in range(2):
                drive.restart(index)
        assert drive.time(2, attempt) == first == reached(2, 2)


def test_the_decision_that_a_partition_is_idle_is_the_same_in_each_attempt() -> None:
    source = Source(a=[1], b=[1])
    drive = TimedDrive(Transactional(source))
    drive.done(1)
    for txid in range(2, 9):
        drive.wait(6.0)
        source.rows["a"] += [txid]
        last = drive.done(txid)
    assert last == reached(8, 7, idle=True)
    drive.wait(6.0)
    idle = drive.time(9)
    assert idle.idle
    source.rows["b"] += [9]
    drive.restart()
    assert drive.time(9, 1) == idle
    source.rows["b"] += [10]
    assert not drive.time(10, 0, current=9).idle


def test_an_opaque_batch_has_the_time_of_its_own_rows() -> None:
    source = Source(a=[1, 10, 20, 30, 40])
    drive = TimedDrive(Opaque(source))
    source.taken = 1
    assert drive.done(1) == reached(1)
    source.taken = 3
    assert drive.time(2) == reached(30, 1)
    drive.commit(2)  # of this task; another one fails, so the batch is repeated
    source.taken = 1
    drive.restart()
    drive.tree_says(2)
    assert drive.time(2, 1) == reached(10, 1), "not that of rows which an earlier attempt had"
    drive.commit(2, 1)
    drive.tree_says(3)
    drive.restart()
    assert drive.time(3) == reached(20, 10)


@BOTH
def test_windows_pass_over_a_silent_partition_up_to_what_the_others_had_reached_before(
    kind: Any,
) -> None:
    source = Source(a=[1], b=[1])
    drive = TimedDrive(kind(source))
    drive.done(1)
    source_times = []
    for txid in range(2, 40):
        drive.wait(1.0)
        source.rows["a"] += [txid]
        source_times.append(drive.done(txid))
    is_idle = [time.idle for time in source_times]
    assert is_idle == sorted(is_idle)
    assert is_idle.index(True) == IDLE_S
    assert [*source_times[0]] == [*reached(1, 1)]
    assert [*source_times[-1]] == [*reached(39, 38, idle=True)]
    source.rows["b"] += [37]
    assert drive.done(40) == reached(37, 1), "it holds windows back again"


@BOTH
def test_a_partition_that_is_away_is_not_idle_and_begins_again_afterwards(kind: Any) -> None:
    source = Source(a=[1], b=[1])
    drive = TimedDrive(kind(source))
    source.away = {"b"}
    for txid in range(1, 80):
        source.rows["a"] += [txid]
        source.away = {"b"} if txid < 40 else set()
        time = drive.done(txid)
        drive.wait(1.0)
        assert not (time.idle and txid < 40 + IDLE_S)
    assert time.idle


@BOTH
def test_a_failed_fetch_and_a_long_pause_begin_the_time_of_silence_again(kind: Any) -> None:
    for has_failed in (True, False):
        source = Source(a=[1], b=[])
        drive = TimedDrive(kind(source))
        for txid in range(1, 30):
            drive.done(txid)
            drive.wait(1.0)
        if has_failed:
            drive.times[0].failed()
        else:
            drive.wait(GAP_S)
        for txid in range(30, 55):
            assert not drive.done(txid).idle
            drive.wait(1.0)


@BOTH
def test_the_time_of_a_partition_moves_with_it_to_another_task(kind: Any) -> None:
    source = Source(a=[1], b=[9])
    drive = TimedDrive(kind(source), tasks=2)
    drive.done(1)
    source.rows = {"b": [9], "c": [5]}  # "b" stays in its place, "c" takes that of "a"
    assert drive.done(2) == reached(5, -inf)
    drive.metadata[2]["partitions"] = ["b", "c"]  # both tasks change places
    assert drive.done(3) == reached(5, 5)


@BOTH
def test_entries_that_an_earlier_release_has_stored_have_an_unknown_time(kind: Any) -> None:
    source = Source(a=[1, 2, 3], b=[4])
    drive = TimedDrive(kind(source))
    for name, end in (("a", 2), ("b", 1)):
        PartitionLog(drive.tree, f"{PATH}/user", name).keep(Attempt(1, 0, 1), {"end": end})
    drive.order(1)
    drive.tree_says(2)
    assert drive.done(2) == reached(-inf), "no time is known of b"
    source.rows["b"] += [6]
    assert drive.done(3) == reached(3, -inf)
    assert drive.done(4) == reached(3, 3)


@pytest.mark.parametrize(
    "times",
    [
        [Decimal("1.10"), Decimal("2.123456789012345678901")],
        [10**40, 10**40 + 1],
        [0.1, 0.30000000000000004],
        [datetime(2026, 11, 28, tzinfo=UTC)],
    ],
    ids=["Decimal", "int", "float", "datetime"],
)
@BOTH
def test_times_of_any_type_are_stored_exactly(kind: Any, times: list[Any]) -> None:
    drive = TimedDrive(kind(Source(a=times)))
    first = drive.done(1)
    drive.restart()
    assert drive.done(2) == reached(first.reached, first.reached)
    assert PartitionAt.of(PartitionAt(first.reached).stored()) == PartitionAt(first.reached)


def test_a_row_without_a_time_does_not_count_and_does_not_fail_the_emitter() -> None:
    """Its window fails it, as any row that cannot be processed."""
    drive = TimedDrive(Opaque(Source(a=[5, None, "x", float("nan")])))
    assert drive.done(1) == reached(5)


class Anonymous(Transactional):
    """Does not say which partition its rows are of."""

    def emit_all_new(self, last: Mapping[str, Any], room: Room) -> dict[str, Any]:
        room.emit([(name, 1) for name in last])
        return {name: {"end": 1} for name in last}


def test_rows_of_an_unknown_partition_are_refused_unless_there_is_one_alone() -> None:
    assert TimedDrive(Anonymous(Source(a=[]))).done(1) == reached(1)
    with pytest.raises(BatchError, match=r"emit_all_new does not say .* set room\.partition"):
        TimedDrive(Anonymous(Source(a=[], b=[]))).time(1)


@pytest.mark.parametrize("again", [False, True])
def test_a_spout_without_partitions_is_one(again: bool) -> None:
    rows = [("p", time) for time in (1, 5, 3, 9, 7, 20)]
    drive = TimedDrive(FixedBatchSpout(rows, 2, fields=ROW))
    expected = [reached(5), reached(9, 5), reached(20, 9), reached(20, 20)]
    for txid, time in enumerate(expected, 1):
        assert drive.time(txid) == time
        if again:
            drive.restart()
            drive.wait(IDLE_S)
            assert drive.time(txid, 1) == time
        drive.commit(txid, int(again))
        drive.success(txid, int(again))


def test_with_several_batches_in_progress_the_time_before_is_that_of_committed_ones() -> None:
    """A task may fetch a batch before another one has emitted the batch before it."""
    for kind in (Transactional, Opaque):
        source = Source(a=[1, 2, 3, 4, 5])
        source.taken = 1
        drive = TimedDrive(kind(source))
        drive.done(1)
        assert drive.time(2) == reached(2, 1)
        assert drive.time(3, current=2) == reached(3, 1)
        assert drive.time(4, current=2) == reached(4, 1)


@BOTH
def test_what_could_not_be_read_completely_holds_windows_back(kind: Any) -> None:
    """A skipped batch is committed although its source has raised IncompleteBatch."""
    drive = TimedDrive(kind(Source(a=[1])))
    drive.done(1)
    drive.times[0].begin(2)
    drive.times[0].failed()
    assert drive.times[0].total.reached == -inf
