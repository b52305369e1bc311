"""Tests of the time series, on small histories."""

from __future__ import annotations

import numpy as np
import pytest

from sunshower.experiments.event_history import History
from sunshower.experiments.report.drawing import bins, make_series
from sunshower.runtime.events.event_log import Entry, What
from sunshower.runtime.tracking.ids import make_roots
from tests.experiments.scripts import Script


def test_a_run_without_events_has_empty_series() -> None:
    series = make_series(Script().history())
    assert len(series.pending) == len(series.edges_s) - 1
    assert not series.completed_per_s.any()
    assert np.isnan(series.p50_s).all()
    assert series.failures == {}


def test_rates_count_every_event_once() -> None:
    script = Script()
    for number in range(10):
        script.wait(0.1).whole(number)
    series = make_series(script.history())
    widths_s = np.diff(series.edges_s)
    assert (series.emitted_per_s * widths_s).sum() == pytest.approx(10)
    assert (series.completed_per_s * widths_s).sum() == pytest.approx(10)
    assert not series.replays_per_s.any()


def test_pending_is_the_maximum_in_each_interval() -> None:
    script = Script().emitted(1).emitted(2).emitted(3).wait(4).completed(1).completed(2)
    series = make_series(script.wait(4).completed(3).wait(4).history(), seconds=12.0)
    assert series.pending[0] == 3
    assert series.pending[len(series.pending) // 2] == 1
    assert series.pending[-1] == 0


def test_latency_counts_from_the_first_emit() -> None:
    script = Script().emitted(1).wait(2).failed(1).emitted(1, attempt=2).wait(3)
    series = make_series(script.completed(1, attempt=2).history())
    known = series.p50_s[~np.isnan(series.p50_s)]
    assert known == pytest.approx([5.0], abs=0.01)


def test_replays_and_failures_are_where_they_happened() -> None:
    script = Script().emitted(1).emitted(2).wait(5).failed(1).failed(2, cause="timeout")
    script.emitted(1, attempt=2).wait(5).completed(1, attempt=2)
    series = make_series(script.history())
    widths_s = np.diff(series.edges_s)
    assert (series.replays_per_s * widths_s).sum() == pytest.approx(1)
    assert set(series.failures) == {"actor died", "timeout"}
    assert np.flatnonzero(series.replays_per_s) == np.flatnonzero(series.failures["timeout"])


def test_the_most_frequent_cause_comes_first() -> None:
    script = Script()
    for number in range(3):
        script.emitted(number).failed(number, cause="timeout" if number else "bad frame")
    assert list(make_series(script.history()).failures) == ["timeout", "bad frame"]


def test_messages_of_a_dead_spout_do_not_stay_pending() -> None:
    script = Script().emitted(1).emitted(2).wait(5)
    script.emitted(1, incarnation=2).wait(1).completed(1, incarnation=2).wait(5).fault()
    assert make_series(script.history()).pending[-1] == 0


def test_each_bin_has_its_own_percentiles() -> None:
    count = 1000
    roots = make_roots(1, np.ones(count, np.uint32), np.arange(count))
    numbers, attempts = np.arange(count), np.ones(count, np.int64)
    entries = [Entry(0.0, What.EMITTED, 1, roots, numbers, attempts)]
    entries += [
        Entry((n + 1) / count, What.COMPLETED, 1, roots[n : n + 1], numbers[n : n + 1])
        for n in range(count)
    ]
    series = make_series(History(entries, {}))
    assert len(series.p50_s) == 240  # so the first bin has the first four completions
    assert series.p50_s[0] == 0.002
    assert series.p99_s[0] == 0.004
    assert series.p99_s[-1] == pytest.approx(1.0, rel=0.01)
    assert (series.p99_s >= series.p50_s).all()


def test_an_event_in_the_last_moment_is_in_the_last_bin() -> None:
    series = make_series(Script().emitted(1).wait(7).completed(1).history())
    assert series.completed_per_s[-1] > 0
    assert series.seconds == pytest.approx(7.002)


def test_a_completion_of_unknown_origin_has_no_latency() -> None:
    series = make_series(Script().completed(1).history())
    assert series.completed_per_s.any()
    assert np.isnan(series.p50_s).all()


@pytest.mark.parametrize(("events", "count"), [(3, 12), (400, 100), (1_000_000, 240)])
def test_more_events_have_narrower_bins(events: int, count: int) -> None:
    edges_s = bins(60.0, events)
    assert len(edges_s) == count + 1
    assert edges_s[-1] == 60.0
