"""Tests of the demo's checks: each has a run that passes and one that fails."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from sunshower.experiments.demo.verdict import (
    acked_in_excess,
    judge,
    lost,
    under_counts,
    unexplained,
    words_in_replays,
)
from sunshower.experiments.evidence.outcome import Finding, Verdict

EXPECTED = Counter({"to": 4, "be": 2})


# ---- lines --------------------------------------------------------------------------------------


def test_a_line_that_was_never_acked_is_lost() -> None:
    assert lost([bytes([1, 0, 1])], [3]) == 1


def test_lines_beyond_the_records_are_lost() -> None:
    assert lost([bytes([1]), b""], [3, 2]) == 4


def test_no_line_is_lost_when_each_was_acked() -> None:
    assert lost([bytes([1, 1]), bytes([1])], [2, 1]) == 0


def test_an_ack_of_a_line_that_does_not_exist_cannot_hide_a_lost_one() -> None:
    acks, sizes = [bytes([1, 0, 1, 1])], [3]
    assert lost(acks, sizes) == 1
    assert acked_in_excess(acks, sizes) == 1


def test_a_line_that_was_acked_twice_is_found() -> None:
    assert acked_in_excess([bytes([1, 2, 1])], [3]) == 1
    assert acked_in_excess([bytes([1, 1, 0])], [3]) == 0


# ---- words --------------------------------------------------------------------------------------


def test_an_under_count_is_found() -> None:
    assert under_counts(EXPECTED, Counter({"to": 3, "be": 2})) == {"to": 1}


def test_a_missing_word_is_an_under_count() -> None:
    assert under_counts(EXPECTED, Counter({"to": 4})) == {"be": 2}


def test_an_over_count_of_one_word_does_not_make_up_for_another() -> None:
    assert under_counts(EXPECTED, Counter({"to": 9, "be": 1})) == {"be": 1}


def test_an_over_count_within_replayed_attempts_is_explained() -> None:
    assert unexplained(EXPECTED, Counter({"to": 6, "be": 2}), Counter({"to": 2})) == {}


def test_an_over_count_beyond_replayed_attempts_is_not() -> None:
    assert unexplained(EXPECTED, Counter({"to": 7, "be": 2}), Counter({"to": 2})) == {"to": 1}


def test_a_word_that_is_not_in_the_text_is_not_explained() -> None:
    assert unexplained(EXPECTED, Counter({"or": 1}), Counter({"to": 5})) == {"or": 1}


def test_words_of_replayed_attempts_count_once_for_each_attempt() -> None:
    lines = [(3, "to be or\n"), (5, "be\n")]
    assert words_in_replays(lines, {3: 2, 5: 1}) == {"to": 2, "be": 3, "or": 2}


# ---- the verdict --------------------------------------------------------------------------------


def judgement(**found: Any) -> Finding:
    usual: dict[str, Any] = {
        "lost": 0, "in_excess": 0, "under": {}, "unexplained": {}, "replayed": 9,
        "fault_wanted": True, "killed": True,
    }  # fmt: skip
    return judge(**(usual | found))


def test_the_promise_held() -> None:
    assert judgement().verdict is Verdict.HOLDS


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        ({"lost": 3}, "3 lines were never acked"),
        ({"in_excess": 2}, "2 lines were acked twice, or do not exist"),
        ({"under": {"be": 1, "to": 4}}, "2 words are under-counted, such as 'to' by 4"),
        ({"unexplained": {"to": 1}}, "more often than replays explain, such as 'to' by 1"),
    ],
)
def test_the_promise_is_broken(found: dict[str, Any], reason: str) -> None:
    finding = judgement(**found)
    assert finding.verdict is Verdict.BROKEN
    assert reason in finding.reasons[0]


def test_a_kill_without_replays_is_unknown() -> None:
    assert judgement(replayed=0).verdict is Verdict.UNKNOWN


def test_a_run_that_was_over_before_the_kill_proves_nothing() -> None:
    assert judgement(killed=False, replayed=0).verdict is Verdict.UNKNOWN


def test_without_a_fault_no_replay_is_needed() -> None:
    assert judgement(fault_wanted=False, killed=False, replayed=0).verdict is Verdict.HOLDS


def test_broken_is_graver_than_unknown() -> None:
    assert judgement(killed=False, replayed=0, lost=1).verdict is Verdict.BROKEN
