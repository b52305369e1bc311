"""Tests of which trees of a spout are traced: an even share, and replays within a budget."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sunshower.runtime.events.instrument import TraceChoice
from sunshower.runtime.events.trace_recorder import TREES_AT_ONCE

sizes = st.lists(st.integers(0, 50), max_size=30)


@given(sizes, st.sampled_from([1.0, 0.5, 0.3, 0.01]))
def test_traced_trees_are_evenly_spaced_however_they_are_emitted(
    counts: list[int], share: float
) -> None:
    choice, seen, chosen = TraceChoice(share), 0, []
    for at, count in enumerate(counts):
        positions = choice.positions(count, 1, at * 1000.0)
        assert all(0 <= position < count for position in positions)
        chosen += [seen + position for position in positions]
        seen += count
    assert chosen == sorted(set(chosen))
    assert abs(len(chosen) - seen * share) <= 1
    assert [int(position * share + 1e-9) for position in chosen] == list(range(len(chosen)))


def test_the_first_tree_is_traced_so_that_a_short_run_shows_one() -> None:
    assert list(TraceChoice(1e-9).positions(100, 1, 0.0)) == [0]


def test_a_source_that_alternates_has_both_kinds_traced() -> None:
    positions = TraceChoice(0.1).positions(1000, 1, 0.0)
    odd = sum(position % 2 for position in positions)
    assert 30 <= odd <= 70


@pytest.mark.parametrize("attempts", [[1, 2, 1, 3], np.array([1, 2, 1, 3])])
def test_every_replay_is_traced(attempts: list[int]) -> None:
    choice = TraceChoice(1e-9)
    choice.positions(1, 1, 0.0)
    assert list(choice.positions(4, attempts, 0.0)) == [1, 3]
    assert list(choice.positions(3, 2, 0.0)) == [0, 1, 2]


def test_many_replays_are_traced_within_a_budget_that_refills() -> None:
    choice = TraceChoice(1e-9)
    assert len(choice.positions(5_000, 2, 0.0)) == TREES_AT_ONCE
    assert len(choice.positions(5_000, 2, 0.0)) == 0
    assert len(choice.positions(5_000, 2, 0.5)) == 50
    assert len(choice.positions(5_000, 2, 1e6)) == TREES_AT_ONCE
