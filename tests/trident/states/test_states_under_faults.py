"""Exactly once, compared with a naive model: attempts that die, zombies, and an unreliable store.

The model is a dictionary to which each batch is added once, when its last attempt is committed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest

from sunshower.errors import BatchError, StoreUnreachable
from sunshower.topologies.operators.port import Attempt
from sunshower.topologies.operators.states import MapState, Place, StateKind
from sunshower.trident.states import stored_map
from sunshower.trident.states.factories import KeptState, MemoryState, SqliteState
from sunshower.trident.states.stored_map import StoredMap
from tests.trident.rigs.additions import plus
from tests.trident.rigs.unsure import Trouble, Troubles, UnsureState

KEYS = "abcdefgh"
TASKS = 2
BATCHES = 12
Rows = dict[str, int]


class Run:
    """A coordinator that commits batches, tasks that die, and the model."""

    def __init__(self, inner: KeptState, seed: int) -> None:
        self.random = Random(seed)
        self.inner = inner
        self.opaque = inner.kind is StateKind.OPAQUE
        self.factory = UnsureState(inner, Troubles(self.random))
        self.states: dict[int, MapState] = {}
        self.zombies: list[tuple[MapState, Attempt]] = []
        self.epoch = 1
        self.model: dict[str, int] = {}

    def commit_all(self) -> None:
        for txid in range(1, BATCHES + 1):
            rows, attempt = self.rows(), 0
            while not self.attempt(Attempt(txid, attempt, self.epoch), rows):
                attempt += 1
                rows = self.rows() if self.opaque else rows  # other rows under the same txid
                if self.random.random() < 0.2:
                    self.epoch += 1
            self.add(rows)
            self.check(txid)
        self.factory.troubles.calm()
        for zombie in self.zombies:
            self.commit_late(*zombie)

    def rows(self) -> Rows:
        keys = self.random.sample(KEYS, self.random.randrange(5))
        return {key: self.random.randrange(10) for key in keys}  # 0 removes the key

    def attempt(self, attempt: Attempt, rows: Rows) -> bool:
        """Whether all tasks have committed it, and the coordinator survived until it knew that."""
        self.factory.troubles.pass_by()
        if self.zombies and self.random.random() < 0.3:
            self.commit_late(*self.zombies.pop(self.random.randrange(len(self.zombies))))
        done = [self.commit(task, attempt, rows) for task in range(TASKS)]
        return all(done) and self.random.random() < 0.8

    def commit(self, task: int, attempt: Attempt, rows: Rows) -> bool:
        try:
            if task not in self.states:
                self.states[task] = self.factory.make(Place("sums", "sums", task, TASKS))
            state = self.states[task]
            state.begin_commit(attempt)
            mine = {key: number for key, number in rows.items() if KEYS.index(key) % TASKS == task}
            for key, number in mine.items():
                if number:
                    state.multi_update([key], [plus(number)])
                else:
                    state.multi_remove([key])
            if self.random.random() < 0.1:  # it seems dead, and is replaced; it commits later
                self.zombies.append((self.states.pop(task), attempt))
                return False
            state.commit(attempt)
        except (StoreUnreachable, BatchError):
            return False
        if self.random.random() < 0.1:  # dies after its commit
            del self.states[task]
        return True

    def commit_late(self, state: MapState, attempt: Attempt) -> None:
        with suppress(BatchError, StoreUnreachable):
            state.commit(attempt)

    def add(self, rows: Rows) -> None:
        for key, number in rows.items():
            self.model[key] = self.model.get(key, 0) + number if number else 0

    def expected(self) -> Rows:
        return {key: number for key, number in self.model.items() if number}

    def check(self, txid: int) -> None:
        assert dict(self.inner.items()) == self.expected(), f"after batch {txid}"


@pytest.mark.parametrize("kind", [StateKind.TRANSACTIONAL, StateKind.OPAQUE])
def test_each_batch_is_in_the_state_once_whatever_happens(kind: StateKind) -> None:
    for seed in range(60):
        run = Run(MemoryState(kind), seed)
        run.commit_all()
        assert dict(run.inner.items()) == run.expected(), f"seed {seed}"


@pytest.mark.parametrize("kind", [StateKind.TRANSACTIONAL, StateKind.OPAQUE])
def test_each_batch_is_in_a_sqlite_state_once_whatever_happens(
    tmp_path: Path, kind: StateKind
) -> None:
    for seed in range(5):
        run = Run(SqliteState(tmp_path / f"{seed}.db", kind), seed)
        run.commit_all()
        assert dict(run.inner.items()) == run.expected(), f"seed {seed}"


def test_every_write_fault_occurs() -> None:
    count = Counter[Trouble]()
    for seed in range(3):
        run = Run(MemoryState(), seed)
        run.commit_all()
        count.update(run.factory.troubles.count)
    assert all(count[trouble] for trouble in Trouble)


def nothing_undone(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(StoredMap, "_undone", lambda *_: {})


def ignored_value_before(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(stored_map, "found_by", lambda _, stored, __: stored.value)


def unchecked_writes(patch: pytest.MonkeyPatch) -> None:
    from sunshower.state import backing

    patch.setattr(backing, "is_there", lambda *_: False)


def counted_repeats(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(stored_map, "is_done", lambda *_: False)


def no_rows_no_commit(patch: pytest.MonkeyPatch) -> None:
    put = StoredMap._put

    def only_with_rows(self: Any, attempt: Attempt, *, again: bool) -> None:
        if self._written:
            put(self, attempt, again=again)

    patch.setattr(StoredMap, "_put", only_with_rows)


@pytest.mark.parametrize(
    ("kind", "broken"),
    [
        (StateKind.OPAQUE, nothing_undone),
        (StateKind.OPAQUE, ignored_value_before),
        (StateKind.OPAQUE, unchecked_writes),
        (StateKind.OPAQUE, no_rows_no_commit),
        (StateKind.TRANSACTIONAL, counted_repeats),
    ],
)
def test_each_rule_is_needed(
    kind: StateKind, broken: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    broken(monkeypatch)
    with pytest.raises(AssertionError):
        test_each_batch_is_in_the_state_once_whatever_happens(kind)
