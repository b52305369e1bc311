"""Tests of the poll back-off of spouts that have no records."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from sunshower import Context, Number, Spout, Topology, run_inline
from sunshower.clock import ManualClock
from sunshower.runtime.tasks.spouts.spout_task import PollBackoff


def test_the_next_poll_is_after_a_share_of_the_time_without_records() -> None:
    backoff = PollBackoff(0.1)
    for now, next_s in ((5.0, 5.001), (5.016, 5.017), (5.8, 5.85), (60.0, 60.1)):
        backoff.begin(now)
        assert backoff.until_s == pytest.approx(next_s), now
    backoff.end()
    backoff.begin(61.0)
    assert backoff.until_s == pytest.approx(61.001)


def test_many_spouts_of_a_worker_together_are_polled_as_often_as_one() -> None:
    backoff = PollBackoff(0.1)
    backoff.share_worker(20)
    backoff.begin(5.0)
    assert backoff.until_s == pytest.approx(5.02)


def test_a_wake_ends_the_wait_and_that_of_the_worker() -> None:
    backoff, woken = PollBackoff(0.1), list[int]()
    backoff.wake_worker = lambda: woken.append(1)
    backoff.begin(5.0)
    backoff.wake()
    assert (backoff.until_s, woken) == (0.0, [1])


def test_a_wake_during_a_poll_is_not_lost_and_counts_once() -> None:
    backoff = PollBackoff(0.1)
    backoff.wake()  # of another thread: the source has looked already, and returns nothing
    backoff.begin(5.0)
    assert backoff.until_s == 0.0
    backoff.is_woken = False  # the next poll begins
    backoff.begin(5.016)
    assert backoff.until_s == pytest.approx(5.017)


def test_a_source_is_asked_when_it_has_said_and_not_later_than_otherwise() -> None:
    backoff = PollBackoff(0.1)
    backoff.begin(0.0)
    for at_s, next_s in ((60.02, 60.02), (61.0, 60.1)):
        backoff.wake(at_s)
        backoff.begin(60.0)
        assert backoff.until_s == pytest.approx(next_s)
    backoff.begin(60.0)
    assert backoff.until_s == pytest.approx(60.1)


def sink(number: Number) -> None: ...


class Timed(Spout[Number]):
    """Emits a number each second; notes when, and how often it was asked before."""

    def open(self, context: Context) -> None:
        self.context = context
        self.emitted_s: list[float] = []
        self.asked = [0]

    def records(self) -> Iterator[Number | None]:
        for number in range(3):
            while (left_s := 10.0 * (number + 1) - self.context.clock.now()) > 0:
                self.asked[-1] += 1
                self.context.wake(left_s)
                yield None
            self.emitted_s.append(self.context.clock.now())
            self.asked.append(0)
            yield Number(number)

    def result(self) -> Any:
        return self.emitted_s, self.asked


def test_a_spout_that_knows_when_its_next_record_is_due_emits_it_then() -> None:
    topology = Topology("timed")
    topology.spout("numbers", Timed()).shuffle().bolt("sink", sink, fields=())
    done = run_inline(topology.graph(), clock=ManualClock())
    ((emitted_s, asked),) = done.results["numbers"]
    assert emitted_s == pytest.approx([10.0, 20.0, 30.0], abs=0.001)
    assert min(asked[1:3]) > 0.95 * asked[0], "after a record, it is asked as often as at first"


def test_a_source_that_wakes_its_task_again_and_again_wakes_the_worker_once_for_each_poll() -> None:
    backoff, woken = PollBackoff(0.1), list[int]()
    backoff.wake_worker = lambda: woken.append(1)
    for polls in range(1, 4):
        backoff.is_woken = False  # a poll begins
        for _ in range(1000):  # emits, as next_tuple() does
            backoff.wake()
        backoff.end()
        assert len(woken) == polls
    backoff.begin(1.0)
    assert backoff.until_s == 0.0
    backoff.is_woken = False
    backoff.begin(1.0)
    backoff.wake()
    assert (backoff.until_s, len(woken)) == (0.0, 4)
