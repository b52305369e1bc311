"""Callers of requests keep their time."""

from __future__ import annotations

import pytest

from sunshower.clock import ManualClock
from sunshower.errors import ClusterError, RequestTimeout
from sunshower.runtime.request_calls import Caller, send_until_answered
from sunshower.topologies.requests import Reply


def test_a_master_that_does_not_answer_is_asked_until_the_callers_time_is_over() -> None:
    clock, left = ManualClock(), list[float]()

    def ask_whom(left_s: float) -> int:
        left.append(left_s)
        clock.advance(left_s if len(left) > 1 else 1.0)
        raise ClusterError("away")

    caller = Caller("asks", 1, 3.0, "id", clock.now())
    with pytest.raises(RequestTimeout, match="within 3 s: away"):
        send_until_answered(caller, ask_whom, lambda *_: Reply(), clock)
    assert left == [3.0, pytest.approx(2.0, abs=0.01)]
