"""Tests of the poll back-off of spouts that have no records."""

from __future__ import annotations

import pytest

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
