"""Tests of latency histograms: single durations, differences since a copy, and pickling."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sunshower.runtime.events.metrics import Latencies

durations = st.lists(st.floats(1e-5, 1e4), min_size=1, max_size=50)


def counted(seconds: list[float]) -> Latencies:
    latencies = Latencies()
    latencies.add(np.array(seconds))
    return latencies


def same(left: Latencies, right: Latencies) -> bool:
    sums = left.sum_s == pytest.approx(right.sum_s) and left.max_s == right.max_s
    return bool((left.counts == right.counts).all()) and sums


@given(durations, st.integers(1, 5))
def test_add_one_counts_a_duration_the_given_number_of_times(
    seconds: list[float], times: int
) -> None:
    latencies = Latencies()
    for duration in seconds:
        latencies.add_one(duration, times)
    assert same(latencies, counted(seconds * times))


@pytest.mark.parametrize("seconds", [0.0, -1.0, 1e-9, 1e9])
def test_one_duration_off_the_scale_counts_at_its_end(seconds: float) -> None:
    latencies = Latencies()
    latencies.add_one(seconds)
    assert latencies.total == 1
    assert latencies.sum_s == max(seconds, 0.0)


def test_a_duration_that_is_added_zero_times_is_not_counted() -> None:
    latencies = Latencies()
    latencies.add_one(7.0, 0)
    assert (latencies.total, latencies.max_s) == (0, 0.0)


@given(durations, durations)
def test_since_has_the_durations_added_after_the_copy(
    before: list[float], after: list[float]
) -> None:
    latencies = counted(before)
    copy = latencies.copy()
    latencies.add(np.array(after))
    since = latencies.since(copy)
    assert (since.counts == counted(after).counts).all()
    assert since.sum_s == pytest.approx(sum(after), abs=1e-6)
    assert max(after) * 0.999 <= since.max_s <= max(after) * 1.0906
    assert (copy.counts == counted(before).counts).all()


def test_nothing_since_a_copy_has_no_percentile() -> None:
    latencies = counted([1.0])
    since = latencies.since(latencies.copy())
    assert (since.total, since.max_s, since.percentile(99)) == (0, 0.0, None)


@given(st.lists(st.floats(0.0, 1e6), max_size=20))
def test_a_pickled_histogram_is_the_same(seconds: list[float]) -> None:
    restored = pickle.loads(pickle.dumps(counted(seconds)))
    assert same(restored, counted(seconds))
    restored.add_one(1.0)  # it can still count


def test_a_histogram_is_pickled_without_its_empty_ends() -> None:
    assert len(pickle.dumps(counted([0.01, 0.02, 0.03]))) < 300
