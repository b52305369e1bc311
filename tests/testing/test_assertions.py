"""Tests of `assert_counts`."""

from __future__ import annotations

import pytest

from sunshower.testing import assert_counts


def test_records_may_come_in_any_order() -> None:
    assert_counts(["b", "a", "b"], {"a": 1, "b": 2})
    assert_counts(["b", "a", "b"], ["a", "b", "b"])
    assert_counts([([1],), ([1],)], [([1],), ([1],)])  # unhashable


def test_too_few_too_many_and_unexpected_records_are_listed() -> None:
    with pytest.raises(AssertionError) as caught:
        assert_counts(["a", "b", "b", "x"], {"a": 2, "b": 1, "c": 1})
    assert str(caught.value).splitlines() == [
        "'a': 1 instead of 2",
        "'b': 2 instead of 1",
        "'c': 0 instead of 1",
        "not expected: 'x'",
    ]


def test_replays_may_repeat_a_record_but_not_lose_or_invent_one() -> None:
    assert_counts(["a", "a", "b"], ["a", "b"], at_least=True)
    with pytest.raises(AssertionError, match="'b': 0 instead of 1"):
        assert_counts(["a", "a"], ["a", "b"], at_least=True)
    with pytest.raises(AssertionError, match="not expected: 'c'"):
        assert_counts(["a", "b", "c"], ["a", "b"], at_least=True)


def test_a_long_list_is_cut() -> None:
    with pytest.raises(AssertionError, match="… and 95 more"):
        assert_counts([], [str(n) for n in range(100)])
