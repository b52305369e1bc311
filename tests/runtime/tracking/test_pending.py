"""The pending table against a simple model: a dict of open roots and a queue of free slots."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from sunshower.runtime.tracking.ids import GENERATION_MASK, is_traced, traced_of
from sunshower.runtime.tracking.pending import Pending

INCARNATION, SLOTS = 7, 5


@dataclass(frozen=True)
class Open:
    """What the model knows of a pending root."""

    payload: object
    number: int
    attempt: int
    emitted_s: float
    deadline_s: float


class PendingAgainstModel(RuleBasedStateMachine):
    """A spout emits, and receives verdicts: right, late, repeated and foreign ones."""

    def __init__(self) -> None:
        super().__init__()
        self.table = Pending(INCARNATION, SLOTS)
        self.free = deque(range(SLOTS))
        self.generations = [0] * SLOTS
        self.open: dict[int, Open] = {}
        self.ever: list[int] = [INCARNATION << 48 | 1]  # never pending: generation 0
        self.now = 0.0

    @initialize(first=st.sampled_from([0, GENERATION_MASK - 1]))
    def start_near_the_last_generation(self, first: int) -> None:
        self.generations = [first] * SLOTS
        self.table._generation[:] = first

    @rule(
        count=st.integers(0, SLOTS),
        attempt=st.integers(1, 3),
        timeout_s=st.integers(1, 4),
        marks=st.sets(st.integers(0, SLOTS - 1)),
    )
    def take(self, count: int, attempt: int, timeout_s: int, marks: set[int]) -> None:
        count = min(count, len(self.free))
        payloads = [object() for _ in range(count)]
        numbers = list(range(100, 100 + count))
        traced = [at for at in sorted(marks) if at < count]
        taken = self.table.take(payloads, numbers, attempt, self.now, timeout_s, traced)
        roots = taken.tolist()
        assert len(roots) == count
        assert (
            traced_of(taken) == traced == [at for at, tree in enumerate(roots) if is_traced(tree)]
        )
        for root, payload, number in zip(roots, payloads, numbers, strict=True):
            slot = self.free.popleft()  # the oldest free one
            before, now = self.generations[slot], root >> 24 & GENERATION_MASK
            assert 0 < (now - before) % (GENERATION_MASK + 1) <= 16, "it is later than the last"
            self.generations[slot] = now
            assert root == INCARNATION << 48 | self.generations[slot] << 24 | slot
            deadline_s = self.now + timeout_s
            self.open[root] = Open(payload, number, attempt, self.now, deadline_s)
        self.ever = [*self.ever, *roots][-30:]

    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        foreign = (INCARNATION + 1) << 48
        named = data.draw(st.lists(st.sampled_from([*self.ever, *self.open, foreign]), max_size=8))
        released = self.table.release(np.array(named, np.uint64))
        assert sorted(released.roots.tolist()) == sorted(set(named) & self.open.keys())
        for index, root in enumerate(released.roots.tolist()):
            known = self.open.pop(root)
            assert released.payloads[index] is known.payload
            assert (
                released.numbers[index],
                released.attempts[index],
                released.emitted_s[index],
            ) == (known.number, known.attempt, known.emitted_s)
            self.free.append(root & 0xFFFFFF)

    @rule(data=st.data(), later_s=st.integers(1, 6))
    def postpone(self, data: st.DataObject, later_s: int) -> None:
        named = data.draw(st.lists(st.sampled_from([*self.ever, *self.open]), max_size=4))
        self.table.postpone(np.array(named, np.uint64), self.now + later_s)
        for root in set(named) & self.open.keys():
            old = self.open[root]
            self.open[root] = Open(
                old.payload, old.number, old.attempt, old.emitted_s, self.now + later_s
            )

    @rule(seconds=st.sampled_from([0.5, 1.0, 2.5]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        due = {root for root, known in self.open.items() if known.deadline_s <= self.now}
        expired = self.table.expired(self.now)
        assert sorted(expired.tolist()) == sorted(due)
        assert sorted(self.table.release(expired).roots.tolist()) == sorted(due)
        for root in expired.tolist():
            del self.open[root]
            self.free.append(root & 0xFFFFFF)

    @invariant()
    def table_is_the_model(self) -> None:
        self.table.check_invariants()
        assert len(self.table) == len(self.open) == SLOTS - self.table.room
        assert set(self.table.all_roots().tolist()) == set(self.open)
        soonest = min((known.deadline_s for known in self.open.values()), default=np.inf)
        assert self.table.next_deadline_s <= soonest, "too early is allowed, too late is not"


TestPendingAgainstModel = PendingAgainstModel.TestCase
TestPendingAgainstModel.settings = settings(stateful_step_count=40)


# ---- the rules one by one, as examples ----------------------------------------------------------


def table(slots: int = 3) -> Pending:
    return Pending(INCARNATION, slots)


def take(pending: Pending, count: int, now: float = 0.0, timeout_s: float = 10.0) -> np.ndarray:
    return pending.take(list(range(count)), range(count), 1, now, timeout_s)


def test_attempts_are_counted_beyond_16_bits() -> None:
    pending = table()
    roots = pending.take(["a"], [0], [70_000], 0.0, 1.0)
    assert pending.release(roots).attempts.tolist() == [70_000]


def test_next_deadline_is_infinite_once_all_due_roots_were_returned() -> None:
    pending = table()
    take(pending, 1)
    assert pending.next_deadline_s == 10.0
    pending.expired(10.0)
    assert pending.next_deadline_s == np.inf, (
        "all that is due was returned, and nothing else is pending"
    )


def test_released_record_is_not_kept_alive() -> None:
    pending = table()
    pending.release(take(pending, 3))
    assert not any(payload is not None for payload in pending._payload)


def test_taking_more_roots_than_are_free_fails_an_assertion() -> None:
    with pytest.raises(AssertionError, match="4 roots taken, but 3 are free"):
        take(table(), 4)


def test_corrupt_table_is_reported_with_the_evidence() -> None:
    pending = table()
    take(pending, 1)
    pending._free[1] = pending._free[2]
    with pytest.raises(AssertionError, match="a slot is free twice"):
        pending.check_invariants()
