"""Tests of statistics over the last minutes, against a model that keeps every change."""

from __future__ import annotations

from itertools import accumulate

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sunshower.runtime.control.master_state import MasterState
from sunshower.runtime.events.metrics import (
    WINDOWS_S,
    Activity,
    Counts,
    FailurePlace,
    Latencies,
    LatencyKind,
    TaskStats,
    TimeWindows,
    Totals,
    WorkerStats,
)

steps = st.lists(
    st.tuples(st.floats(0.0, 30.0) | st.floats(0.0, 4_000.0), st.integers(0, 9)), max_size=60
)


def totals(acked: int) -> dict[str, Totals]:
    latencies = Latencies()
    latencies.add_one(0.5, acked)
    counts = Counts(acked=acked, pending=3, causes={"timeout": acked})
    return {"count": Totals(counts, {LatencyKind.COMPLETE: latencies})}


def windows_after(changes: list[tuple[float, int]]) -> TimeWindows:
    """Windows that begin at 0; each change is a time, and how many more messages are acked then."""
    windows, sum_ = TimeWindows(0.0), 0
    for at_s, more in changes:
        windows.change(at_s, lambda sum_=sum_: totals(sum_), is_complete=True)
        sum_ += more
    return windows


@given(steps, st.floats(0.0, 4_000.0))
def test_a_window_counts_exactly_what_happened_in_its_time(
    drawn: list[tuple[float, int]], later_s: float
) -> None:
    times = list(accumulate(seconds for seconds, _ in drawn))
    changes = [(at_s, more) for at_s, (_, more) in zip(times, drawn, strict=True)]
    now = (times or [0.0])[-1] + later_s
    activities = windows_after(changes).at(now, totals(sum(more for _, more in changes)))
    for name, length_s in WINDOWS_S.items():
        activity = activities[name]["count"]
        least_s = min(length_s, now)
        assert least_s - 1e-6 <= activity.for_s <= max(length_s * 13 / 12, least_s) + 1e-6
        begin_s = now - activity.for_s
        later = [more for at_s, more in changes if at_s > begin_s + 1e-6]
        same_time = [more for at_s, more in changes if abs(at_s - begin_s) <= 1e-6]
        assert sum(later) <= activity.counts.acked <= sum(later) + sum(same_time)
        assert activity.latencies[LatencyKind.COMPLETE].total == activity.counts.acked
        assert activity.counts.causes.get("timeout", 0) == activity.counts.acked
        assert activity.counts.pending == 3


def test_a_quiet_minute_has_counted_nothing() -> None:
    windows = windows_after([(10.0, 5)])
    activities = windows.at(100.0, totals(5))
    assert activities["1m"]["count"].counts.acked == 0
    assert activities["1m"]["count"].for_s == 60.0
    assert activities["10m"]["count"].counts.acked == 5


def test_memory_does_not_grow_with_time() -> None:
    windows = windows_after([(0.25 * tick, 1) for tick in range(40_000)])
    assert max(map(len, windows._copies.values())) <= 14


def test_windows_of_a_later_master_begin_when_it_knows_all_tasks() -> None:
    windows = TimeWindows(None)
    windows.change(100.0, lambda: totals(0), is_complete=False)
    assert windows.at(101.0, totals(700)) == {}
    windows.change(102.0, lambda: totals(1_000), is_complete=True)
    activities = windows.at(105.0, totals(1_004))
    assert activities["1h"]["count"].counts.acked == 4
    assert activities["1h"]["count"].for_s == 3.0


def test_totals_include_retired_and_running_tasks() -> None:
    def latencies(*seconds: float) -> Latencies:
        histogram = Latencies()
        histogram.add(np.array(seconds))
        return histogram

    place = FailurePlace("exception", "split", 1, 0)
    complete, execute, queue = LatencyKind
    retired = {"count": Totals(Counts(acked=5, places={place: 2}))}
    bolt = {execute: latencies(1.0), queue: latencies(2.0)}
    tasks = (
        TaskStats(1, "count", Counts(acked=1, places={place: 1}), {complete: latencies(0.5)}),
        TaskStats(2, "split", Counts(executed=3), bolt),
        TaskStats(3, "split", Counts(executed=4), {execute: latencies(1.0, 3.0)}),
    )
    sums = MasterState(retired=retired).totals([WorkerStats(0, 1, tasks)])
    assert sums["count"].counts == Counts(acked=6)
    assert sums["count"].counts.places == {place: 3}
    assert sums["split"].counts.executed == 7
    assert sums["split"].latencies[LatencyKind.EXECUTE].total == 3
    assert sums["split"].latencies[LatencyKind.QUEUE].total == 1
    assert retired["count"].counts.acked == 5


@pytest.mark.parametrize(("busy_s", "share"), [(0.0, 0.0), (30.0, 0.25), (500.0, 1.0)])
def test_capacity_is_the_busy_share_of_all_tasks(busy_s: float, share: float) -> None:
    activity = Activity(60.0, Counts(busy_s=busy_s, blocked_s=busy_s))
    assert activity.capacity(2) == activity.blocked(2) == share
