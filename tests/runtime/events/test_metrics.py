"""Tests of metrics: sums of counts and figures, percentiles to a tenth, and watermarks."""

from __future__ import annotations

import pickle
from collections import Counter
from dataclasses import fields
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sunshower.runtime.events.metrics import (
    Counts,
    EventTime,
    FailurePlace,
    InputStream,
    Latencies,
    Snapshot,
    TaskStats,
    Totals,
    WorkerStats,
)

durations = st.lists(st.floats(1e-5, 1e4), min_size=1, max_size=50)


@given(durations, st.integers(1, 100))
def test_percentile_is_right_to_a_tenth_and_never_too_low(
    seconds: list[float], percent: int
) -> None:
    latencies = Latencies()
    latencies.add(np.array(seconds))
    exact = sorted(seconds)[int(np.ceil(len(seconds) * percent / 100)) - 1]
    estimate = latencies.percentile(percent)
    assert estimate is not None
    assert exact * 0.999 <= estimate <= exact * 1.1


def test_no_duration_has_no_percentile() -> None:
    assert Latencies().percentile(50) is None


@pytest.mark.parametrize("seconds", [0.0, -1.0, 1e-9, 1e9])
def test_duration_off_the_scale_counts_at_its_end(seconds: float) -> None:
    latencies = Latencies()
    latencies.add(np.array([seconds]))
    assert latencies.counts.sum() == 1


@given(durations, durations)
def test_histograms_of_two_tasks_add_up(left: list[float], right: list[float]) -> None:
    parts = []
    for seconds in (left, right, left + right):
        latencies = Latencies()
        latencies.add(np.array(seconds))
        parts.append(latencies)
    both = parts[0] + parts[1]
    assert (both.counts == parts[2].counts).all()
    assert both.sum_s == pytest.approx(sum(left + right))
    assert both.max_s == both.percentile(100) == max(left + right)


def test_counts_of_a_component_are_those_of_its_running_and_retired_tasks() -> None:
    def worker(number: int, acked: int) -> WorkerStats:
        task = TaskStats(number, "spout", Counts(acked=acked, pending=1))
        other = TaskStats(number + 10, "bolt", Counts(acked=100))
        return WorkerStats(number, 1, (task, other))

    snapshot = Snapshot(
        "t", {1: worker(1, 3), 0: worker(0, 4)}, retired={"spout": Totals(Counts(acked=5))}
    )
    assert snapshot.component("spout") == Counts(acked=12, pending=2)
    assert [task.task for task in snapshot.tasks()] == [0, 10, 1, 11]
    assert snapshot.latencies("spout").counts.sum() == 0
    assert snapshot.component("other") == Counts()


def test_causes_add_up_like_all_other_counts() -> None:
    first = Counts(failed=3, dead=1, causes={"timeout": 1, "exception": 2})
    second = Counts(failed=1, causes={"actor died": 1, "timeout": 1})
    both = Counts(failed=4, dead=1, causes={"timeout": 2, "exception": 2, "actor died": 1})
    assert first.closed() + second == both


def test_dead_task_has_nothing_pending() -> None:
    assert Counts(acked=3, pending=2).closed() == Counts(acked=3)


def test_figures_of_a_component_are_the_sums_of_its_tasks() -> None:
    def task(number: int, lag: float) -> TaskStats:
        figures = {"lag": lag, f"words[{number}]/lag": lag}
        return TaskStats(number, "spout", Counts(), figures=figures)

    snapshot = Snapshot("t", {0: WorkerStats(0, 1, (task(0, 3), task(1, 4)))})
    assert snapshot.figures("spout") == {"lag": 7, "words[0]/lag": 3, "words[1]/lag": 4}
    assert snapshot.figures("other") == {}


HERE, THERE = FailurePlace("exception", "split", 0, 0), FailurePlace("timeout", "", -1, -1)


def test_counts_since_are_never_negative_and_pending_is_that_of_now() -> None:
    before = Counts(acked=5, failed=2, pending=7, busy_s=1.0, places={HERE: 2}, emitted_to={"a": 9})
    now = Counts(acked=9, failed=1, pending=3, busy_s=1.5, places={HERE: 2, THERE: 4})
    since = now.since(before)
    assert since == Counts(acked=4, pending=3)
    assert (since.busy_s, since.places, since.emitted_to) == (0.5, {THERE: 4}, {})


def test_counts_are_read_as_they_were_written() -> None:
    counts = Counts(3, causes={"timeout": 4}, places={HERE: 2, THERE: 4}, emitted_to={"a": 3})
    read = Counts.from_fields({**counts.to_fields(), "later": 1})
    assert vars(read) == vars(counts)
    assert vars(counts + Counts()) == vars(counts)


def test_watermark_lag_is_behind_the_newest_record_of_the_spouts_it_follows() -> None:
    def task(number: int, component: str, time: EventTime) -> TaskStats:
        return TaskStats(number, component, Counts(), event_time=time)

    tasks = (
        task(1, "fast", EventTime(90.0, 100.0)),
        task(2, "fast", EventTime(80.0, 99.0)),
        task(3, "other", EventTime(1.0, 1e9)),
        task(4, "hourly", EventTime(60.0, sources=(1, 2))),
        task(5, "hourly", EventTime(70.0, sources=(1, 2))),
        task(6, "by the clock", EventTime(5e5)),
        task(7, "ended", EventTime(float("inf"), 8.0)),
        TaskStats(8, "plain", Counts()),
    )
    snapshot = Snapshot("t", {0: WorkerStats(0, 1, tasks)})
    assert snapshot.watermark("hourly") == (60.0, 40.0)
    assert snapshot.watermark("fast") == (80.0, 20.0)
    assert snapshot.watermark("by the clock") is None
    assert snapshot.watermark("ended") == (float("inf"), None)
    assert snapshot.watermark("plain") is None


def test_what_holds_a_stage_is_the_first_task_upstream_that_says_something() -> None:
    def task(number: int, component: str, sources: tuple[int, ...] = (), **more: Any) -> TaskStats:
        time = EventTime(60.0, 90.0, sources, sources[0] if sources else None, **more)
        return TaskStats(number, component, Counts(), event_time=time)

    def holds(why_minutes: str, *gone: int) -> dict[str, list[str]]:
        tasks = [
            task(1, "clicks", holds="the task waits for a dependency"),
            task(2, "minutes", (1,), holds=why_minutes),
            task(3, "hours", (2,)),
            task(4, "days", (3,)),
        ]
        stats = WorkerStats(0, 1, tuple(live for live in tasks if live.task not in gone))
        snapshot = Snapshot("t", {0: stats})
        return {id: list(snapshot.watermark_holds(id)) for id in ("minutes", "hours", "days")}

    of_clicks = ["task 1 of clicks: the task waits for a dependency"]
    assert holds("") == {"minutes": of_clicks, "hours": of_clicks, "days": of_clicks}
    of_minutes = ["task 2 of minutes: idle"]
    assert holds("idle") == {"minutes": of_clicks, "hours": of_minutes, "days": of_minutes}
    of_gone = ["task 2 upstream is not running: its worker is being replaced"]
    assert holds("", 2) == {"minutes": [], "hours": of_gone, "days": of_gone}


_FIELDS = [field.name for field in fields(TaskStats)]
amounts = st.integers(0, 9)
seconds = st.floats(0, 9)
by_stream = st.dictionaries(st.sampled_from("ab"), amounts, max_size=2)
inputs = st.builds(InputStream, st.sampled_from("ab"), st.just("default"))
counters = st.builds(
    Counts,
    **dict.fromkeys(("emitted", "executed", "acked", "pending", "late"), amounts),
    **dict.fromkeys(("late_by", "busy_s"), seconds),
    **dict.fromkeys(("causes", "emitted_to"), by_stream),
    executed_from=st.dictionaries(inputs, amounts, max_size=2),
)


@given(st.lists(counters, max_size=4), amounts, seconds)
def test_counters_are_the_same_after_a_journey(
    each: list[Counts], queued: int, queue_s: float
) -> None:
    tasks = [TaskStats(1, "c", count, queued=queued, queue_s=queue_s) for count in each]
    arrived = pickle.loads(pickle.dumps(tasks))
    for task, other in zip(tasks, arrived, strict=True):
        assert [getattr(other, name) for name in _FIELDS] == [getattr(task, n) for n in _FIELDS]
        assert other.counts.to_fields() == task.counts.to_fields()
        assert Counts.from_fields(other.counts.to_fields()) == task.counts
    whole = Counts.sum_of(task.counts for task in arrived)
    assert whole.to_fields() == Counts.sum_of(each).to_fields()
    for name in ("emitted", "late", "busy_s"):
        assert getattr(whole, name) == sum(getattr(count, name) for count in each)
    assert whole.late_by == max((count.late_by for count in each), default=0)
    for name in ("causes", "emitted_to", "executed_from", "places"):
        sums = Counter[Any]()
        for count in each:
            sums.update(getattr(count, name))
        assert getattr(whole, name) == sums
