"""The number of rows in a batch is adapted to the time that batches take."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import NamedTuple

import pytest

from sunshower import Context, Records, Spout, SpoutCollector, Topology
from sunshower.clock import ManualClock
from sunshower.simulation.cluster import SimCluster
from sunshower.state import MemoryState
from sunshower.topologies.sources import Counter as Numbers
from sunshower.trident import Bounds, Skip, batches, count
from sunshower.trident.declaration.declare import as_trident_spout
from sunshower.trident.spouts.bounds import ShareSize
from sunshower.trident.spouts.ordinary_spouts import PlainSpout, PolledSpout
from tests.trident.rigs.emitting import CollectedRows, Drive
from tests.trident.rigs.numbers import OpaqueRowBatches, RowBatches

TIMEOUT_S = 30.0  # so a batch should take 5 s, and 10 s are too long


class Row(NamedTuple):
    key: int


class Slow:
    """A filter that accepts every row, after 0.1 s."""

    def prepare(self, context: Context) -> None:
        self._clock = context.clock

    def __call__(self, row: Row) -> bool:
        self._clock.sleep(0.1)
        return True


class EndlessSpout(Spout[Row]):
    """An endless source that emits one row per call."""

    emits = Row

    def next_tuple(self, out: SpoutCollector[Row]) -> None:
        out.emit(Row(0))


def committed(size: ShareSize, clock: ManualClock, txid: int, records: int, took_s: float) -> int:
    """Commit a batch that has taken `took_s`, and return the limit after it."""
    size.read(txid, records)
    clock.advance(took_s)
    size.committed(txid)
    return size.records_max


def test_a_slow_function_receives_by_default_only_as_many_rows_as_it_processes_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All rows in one batch would take 100 s, more than the limits of a call and of a tree."""
    monkeypatch.chdir(tmp_path)  # the default store is a file there
    topology, state = Topology("slow"), MemoryState()
    source = Records([Row(n % 7) for n in range(1_000)], type=Row)
    rows = batches(topology, "rows", PlainSpout(source, repeats=True))
    rows.filter(Slow()).group_by("key").aggregate(count(), state=state)
    run = SimCluster(1).submit(topology.graph())
    assert run.wait(200.0), run._describe()
    assert dict(state.items()) == Counter(n % 7 for n in range(1_000))
    master = run.snapshot().component("$mastercoord-rows")
    assert (master.failed, run.snapshot().restarts) == (0, 0)


class Poisoned(Slow):
    """Raises for one row."""

    def __call__(self, row: Row) -> bool:
        if row.key == 50:
            raise ValueError("no fifties")
        return super().__call__(row)


def test_a_skipped_batch_is_not_used_to_estimate_the_time_of_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    topology, state = Topology("skipped"), MemoryState()
    source = Records([Row(n) for n in range(500)], type=Row)
    skip = Skip(dead_letters="letters.jsonl")
    rows = batches(topology, "rows", PlainSpout(source, repeats=True), skip=skip)
    rows.filter(Poisoned()).group_by("key").aggregate(count(), state=state)
    run = SimCluster(1).submit(topology.graph())
    assert run.wait(600.0), run._describe()
    assert run.snapshot().restarts == 0
    run.kill(0.0)
    with Path("letters.jsonl").open() as letters:
        assert len(dict(state.items())) + len([*letters]) == 500


# The rows of each batch, the seconds that it took, and the limit of the next one; the first is 100.
SHARES = {
    "it grows to what is committed in five seconds": [(100, 1.0, 500), (500, 4.9, 510)],
    "it grows twentyfold at most from one batch to the next": [(100, 0.0, 2_000)],
    "it shrinks to half at most": [(100, 0.1, 2_000), (2_000, 10.1, 1_000), (1_000, 60.0, 500)],
    # The time is not due to the rows, but to a slow store, for example.
    "it never shrinks below the first one": [(100, 60.0, 100)],
    # Ten rows in five seconds; then the source has few records.
    "one that is not full grows by the time of its rows": [(1, 0.5, 100), (2, 0.02, 499)],
    "one with more rows than its limit grows from the limit": [(5_000, 2.5, 200)],
    "it is doubled while most of the time does not depend on the rows": [
        *((100, 6.0, 200), (200, 6.1, 400), (400, 9.5, 400), (400, 9.5, 400))
    ],
    "it is not doubled again after doubling was too much": [
        *((100, 6.0, 200), (200, 12.0, 100), (100, 6.0, 100))
    ],
}


@pytest.mark.parametrize("batches", SHARES.values(), ids=SHARES.keys())
def test_a_share_follows_from_the_batches_before(batches: list[tuple[int, float, int]]) -> None:
    clock = ManualClock()
    size = ShareSize(clock, TIMEOUT_S)
    for txid, (rows, took_s, limit) in enumerate(batches, start=1):
        assert committed(size, clock, txid, rows, took_s) == limit


def test_the_first_share_is_smaller_where_a_batch_has_less_time() -> None:
    assert ShareSize(ManualClock(), 5.0).records_max == 16


def test_each_further_attempt_reads_half() -> None:
    clock = ManualClock()
    size = ShareSize(clock, TIMEOUT_S)
    assert [size.begin(attempt) for attempt in range(8)] == [100, 50, 25, 12, 6, 3, 1, 1]
    assert committed(size, clock, 1, 1, 0.1) == 20


def test_the_time_of_a_batch_is_measured_from_its_last_emit() -> None:
    clock = ManualClock()
    size = ShareSize(clock, TIMEOUT_S)
    size.read(1, 100)
    clock.advance(60.0)
    assert committed(size, clock, 1, 100, 2.5) == 200


@pytest.mark.parametrize(
    "spout",
    [
        PlainSpout(Numbers(1_000)),
        PolledSpout(EndlessSpout()),
        RowBatches([Row(0)] * 1_000, 1_000, partitions=1),
        OpaqueRowBatches([Row(0)] * 1_000, 1_000, partitions=1),
    ],
    ids=["plain", "polled", "transactional", "opaque"],
)
def test_each_spout_with_bounds_respects_the_limit_of_its_share(
    spout: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CollectedRows, "records_max", 100)
    drive = Drive(as_trident_spout(spout))
    assert len(drive.emit(1)) == 100


def test_declared_bounds_are_never_exceeded() -> None:
    drive = Drive(PlainSpout(Numbers(1_000), bounds=Bounds(records=30)))
    assert [len(drive.batch(txid)) for txid in (1, 2)] == [30, 30]
