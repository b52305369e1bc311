"""Tests of rate-limited logs: five lines for each place in ten seconds, the others counted."""

from __future__ import annotations

from math import inf

from sunshower.runtime.events.log_lines import RateLimitedLog


def report(notices: RateLimitedLog, place: str, now: float, count: int = 1) -> None:
    for number in range(count):
        if notices.admits(place, now):
            notices.say(f"{place} {number} at {now:g}")


def test_five_lines_of_a_place_are_logged_and_the_others_counted() -> None:
    notices = RateLimitedLog("failures of spout 'lines'")
    report(notices, "split", 0.0, 7)
    assert len(notices.take(0.0)) == 5
    assert notices.take(9.9) == []
    assert notices.take(10.0) == ["2 more failures of spout 'lines' in split within 10 s"]
    assert notices.take(99.0) == [], "reported once"


def test_many_lines_of_one_place_do_not_suppress_those_of_another() -> None:
    notices = RateLimitedLog("failures")
    report(notices, "split", 0.0, 1_000)
    report(notices, "count", 0.0)
    assert "count 0 at 0" in notices.take(0.0)


def test_next_interval_begins_with_the_number_of_lines_left_out() -> None:
    notices = RateLimitedLog("failures")
    report(notices, "split", 0.0, 6)
    notices.take(0.0)
    report(notices, "split", 12.0)
    assert notices.take(12.0) == ["1 more failures in split within 10 s", "split 0 at 12"]


def test_few_lines_leave_nothing_out() -> None:
    notices = RateLimitedLog("failures")
    report(notices, "split", 0.0, 5)
    assert len(notices.take(inf)) == 5


def test_lines_without_a_place_are_counted_too() -> None:
    notices = RateLimitedLog("failures")
    report(notices, "", 0.0, 6)
    assert notices.take(inf)[-1] == "1 more failures within 10 s"
