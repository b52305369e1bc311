"""Tests of the demo's checks: each has a run that passes and one that fails."""

from __future__ import annotations

from typing import Any

import pytest

from sunshower.experiments.demo import acked_in_excess, demo_finding, lost
from sunshower.experiments.evidence.outcome import Finding, Verdict

# ---- lines --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("acks", "sizes", "missing", "excess"),
    [
        ([bytes([1, 1]), bytes([1])], [2, 1], 0, 0),
        ([bytes([1, 0, 1])], [3], 1, 0),
        ([bytes([1]), b""], [3, 2], 4, 0),  # beyond the records
        ([bytes([1, 0, 1, 1])], [3], 1, 1),  # a line that does not exist hides no lost one
        ([bytes([1, 2, 1])], [3], 0, 1),
    ],
)
def test_lines_that_were_never_acked_or_too_often_are_counted(
    acks: list[bytes], sizes: list[int], missing: int, excess: int
) -> None:
    assert (lost(acks, sizes), acked_in_excess(acks, sizes)) == (missing, excess)


# ---- the verdict --------------------------------------------------------------------------------


def judgement(**found: Any) -> Finding:
    usual: dict[str, Any] = {
        "lost": 0, "in_excess": 0, "under": {}, "unexplained": {}, "replayed": 9,
        "fault_wanted": True, "killed": True,
    }  # fmt: skip
    return demo_finding(**(usual | found))


@pytest.mark.parametrize(
    ("found", "verdict", "reason"),
    [
        ({}, Verdict.HOLDS, "every line was processed"),
        ({"fault_wanted": False, "killed": False, "replayed": 0}, Verdict.HOLDS, "every line was"),
        ({"lost": 3}, Verdict.BROKEN, "3 lines were never acked"),
        ({"in_excess": 2}, Verdict.BROKEN, "2 lines were acked twice, or do not exist"),
        ({"under": {"be": 1, "to": 4}}, Verdict.BROKEN, "under-counted, such as 'to' by 4"),
        ({"unexplained": {"to": 1}}, Verdict.BROKEN, "replays explain, such as 'to' by 1"),
        ({"replayed": 0}, Verdict.UNKNOWN, "the kill had no effect"),
        ({"killed": False, "replayed": 0}, Verdict.UNKNOWN, "before anything could be killed"),
        ({"killed": False, "replayed": 0, "lost": 1}, Verdict.BROKEN, "1 lines were never acked"),
    ],
)
def test_the_verdict_has_its_reason(found: dict[str, Any], verdict: Verdict, reason: str) -> None:
    finding = judgement(**found)
    assert finding.verdict is verdict
    assert reason in finding.reasons[0]
