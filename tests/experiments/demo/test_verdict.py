"""Tests of the demo's checks: each has a run that passes and one that fails."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from sunshower.experiments.demo.verdict import (
    acked_in_excess,
    demo_finding,
    lost,
    under_counts,
    unexplained,
    words_in_replays,
)
from sunshower.experiments.evidence.outcome import Finding, Verdict

EXPECTED = Counter({"to": 4, "be": 2})


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


# ---- words --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("counted", "under"),
    [
        ({"to": 3, "be": 2}, {"to": 1}),
        ({"to": 4}, {"be": 2}),
        ({"to": 9, "be": 1}, {"be": 1}),  # one word too many does not make up for another
    ],
)
def test_an_under_count_is_found(counted: dict[str, int], under: dict[str, int]) -> None:
    assert under_counts(EXPECTED, counted) == under


@pytest.mark.parametrize(
    ("counted", "replayed", "rest"),
    [
        ({"to": 6, "be": 2}, {"to": 2}, {}),
        ({"to": 7, "be": 2}, {"to": 2}, {"to": 1}),
        ({"or": 1}, {"to": 5}, {"or": 1}),
    ],
)
def test_an_over_count_is_explained_by_replays_of_the_word(
    counted: dict[str, int], replayed: dict[str, int], rest: dict[str, int]
) -> None:
    assert unexplained(EXPECTED, counted, replayed) == rest


def test_words_of_replayed_attempts_count_once_for_each_attempt() -> None:
    lines = [(3, "to be or\n"), (5, "be\n")]
    assert words_in_replays(lines, {3: 2, 5: 1}) == {"to": 2, "be": 3, "or": 2}


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
