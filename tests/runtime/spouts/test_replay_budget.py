"""Tests of the replay budget: the share of replays while there are fresh records, and without."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sunshower.runtime.tasks.spouts.replays import ReplayBudget

BURST = 64
shares = st.floats(0.01, 0.99)
limits = st.lists(st.integers(1, 500), min_size=1, max_size=100)


@given(shares, limits)
def test_replays_stay_within_their_share_of_any_stretch_of_emits(
    share: float, limits: list[int]
) -> None:
    """However many replays are due, and wherever the stretch begins."""
    budget = ReplayBudget(share)
    emitted = []
    for limit in limits:
        replays = budget.replays(10_000, limit, room=10_000)
        budget.spend(replays, limit - replays)
        emitted.append((replays, limit))
    for start in range(len(emitted)):
        replays, total = map(sum, zip(*emitted[start:], strict=True))
        assert replays <= share * total + BURST + 1e-6


@given(shares, st.lists(st.tuples(st.integers(1, 50), st.integers(1, 5)), min_size=1, max_size=100))
def test_replays_keep_their_share_if_fresh_records_have_little_room(
    share: float, calls: list[tuple[int, int]]
) -> None:
    budget, replays, fresh = ReplayBudget(share), 0, 0
    for limit, room in calls:
        now = budget.replays(10_000, limit, room)
        taken = min(limit - now, room)
        budget.spend(now, taken)
        replays, fresh = replays + now, fresh + taken
    assert replays <= share * (replays + fresh) + 1e-6


@given(shares)
def test_single_emits_keep_the_share(share: float) -> None:
    budget = ReplayBudget(share)
    replays = 0
    for _ in range(1_000):
        replay = budget.replays(1, 1, room=1)
        budget.spend(replay, 1 - replay)
        replays += replay
    assert replays == pytest.approx(1_000 * share, abs=2)


def test_few_replays_are_emitted_at_once() -> None:
    assert ReplayBudget(0.5).replays(due=10, limit=100, room=100) == 10


def test_replays_use_all_the_room_if_failed_messages_hold_every_place() -> None:
    assert ReplayBudget(0.1).replays(due=1_000, limit=100, room=0) == 100


def test_share_of_one_is_no_limit() -> None:
    budget = ReplayBudget(1.0)
    assert budget.replays(due=1_000, limit=100, room=100) == 100
    budget.spend(100, 0)
    assert budget.replays(due=1_000, limit=100, room=100) == 100


def test_replays_while_the_source_has_nothing_do_not_reduce_the_later_share() -> None:
    budget = ReplayBudget(0.5)
    budget.spend(replays=1_000, fresh=0)
    assert budget.replays(due=1_000, limit=100, room=100) == 50


def test_an_unused_share_allows_only_a_small_burst() -> None:
    budget = ReplayBudget(0.5)
    budget.spend(replays=0, fresh=1_000_000)
    assert budget.replays(due=1_000, limit=100, room=100) == (100 + BURST) // 2
