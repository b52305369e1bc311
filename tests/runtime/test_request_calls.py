"""A request ends at the timeout of its caller, whether the master answers or not."""

from __future__ import annotations

import pytest

from sunshower.clock import ManualClock
from sunshower.errors import ClusterError, RequestTimeout
from sunshower.runtime.queries import Caller, send_until_answered
from sunshower.topologies.requests import Reply


def test_a_master_that_does_not_answer_is_called_until_the_timeout_of_the_caller() -> None:
    clock, left = ManualClock(), list[float]()

    def ask(left_s: float) -> int:
        left.append(left_s)
        clock.advance(left_s if len(left) > 1 else 1.0)
        raise ClusterError("unavailable")

    caller = Caller("asks", 1, 3.0, "id", clock.now())
    with pytest.raises(RequestTimeout, match="within 3 s: unavailable"):
        send_until_answered(caller, ask, lambda *_: Reply(), clock)
    assert left == [3.0, pytest.approx(2.0, abs=0.01)]
