"""Tests of the outage checker on small histories."""

from __future__ import annotations

from sunshower.experiments.checkers.failures import NothingCharged
from tests.experiments.checkers.test_checkers import BROKEN, HALTED, HOLDS, UNKNOWN, ask, hurt


def test_outages_charge_nothing() -> None:
    script = hurt().emitted(1).failed(1, cause="unavailable").emitted(1, 2)
    script.failed(1, cause="actor died").whole(1, 3)
    assert ask(NothingCharged(), script).verdict is HOLDS
    script.emitted(2).failed(2, cause="exception").whole(2, 2)
    finding = ask(NothingCharged(), script)
    assert finding.verdict is BROKEN
    assert finding.reasons == ("1 failures with the cause 'exception'",)
    assert finding.evidence[0] == "numbers[0], message 2"
    assert ask(NothingCharged(poison=frozenset({2})), script).verdict is HOLDS
    assert ask(NothingCharged(), script, HALTED).verdict is BROKEN
    assert ask(NothingCharged(), script.hurt("errors in relay for 1 s")).verdict is UNKNOWN
