"""Storm's rules for states, case by case: the values after batches, repeats and removals."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Sequence
from typing import Any

import pytest

from sunshower.errors import BatchError, ConfigError
from sunshower.state.backing import Home, MemoryBacking
from sunshower.topologies.operators.port import Attempt
from sunshower.topologies.operators.states import Place, StateKind
from sunshower.trident.states.factories import MemoryState
from tests.trident.rigs.additions import (
    NON,
    OPAQUE,
    PLACE,
    TRANSACTIONAL,
    batch,
    every_kind,
    plus,
    stored,
)

# ---- Storm's rules ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "first", "second"),
    [(NON, 3, 8), (TRANSACTIONAL, [1, 3], [2, 8]), (OPAQUE, [1, 3, None], [2, 8, 3])],
)
def test_the_stored_values_are_those_of_storm(kind: StateKind, first: Any, second: Any) -> None:
    factory = MemoryState(kind)
    state = factory.make(PLACE)
    assert batch(state, 1, storm=3) == [3]
    assert stored(factory) == {"storm": first}
    assert batch(state, 2, storm=5) == [8]
    assert stored(factory) == {"storm": second}


def test_a_repeat_of_a_batch_counts_twice_in_a_non_transactional_state() -> None:
    factory = MemoryState(NON)
    state = factory.make(PLACE)
    batch(state, 1, storm=3)
    assert batch(state, 1, attempt=1, storm=3) == [6]


def test_a_repeat_of_a_batch_changes_nothing_in_a_transactional_state() -> None:
    factory = MemoryState(TRANSACTIONAL)
    state = factory.make(PLACE)
    batch(state, 1, storm=3)
    assert batch(state, 1, attempt=1, storm=3) == [3]
    assert stored(factory) == {"storm": [1, 3]}


def test_a_repeat_with_other_rows_begins_at_the_value_before_in_an_opaque_state() -> None:
    factory = MemoryState(OPAQUE)
    state = factory.make(PLACE)
    batch(state, 1, storm=3)
    batch(state, 2, storm=5)
    assert batch(state, 2, attempt=1, storm=7) == [10]
    assert stored(factory) == {"storm": [2, 10, 3]}


def test_keys_that_only_the_earlier_attempt_had_are_restored() -> None:
    """In Storm they keep the new value, and their rows count twice when a later batch has them."""
    factory = MemoryState(OPAQUE)
    state = factory.make(PLACE)
    batch(state, 1, storm=3)
    batch(state, 2, storm=5, ray=1)
    batch(factory.make(PLACE), 2, attempt=1, sun=1)
    assert stored(factory) == {"storm": [2, 3, 3], "sun": [2, 1, None]}
    assert batch(factory.make(PLACE), 3, storm=5, ray=1) == [8, 1]


def test_a_write_that_comes_late_is_undone_after_an_attempt_that_has_failed() -> None:
    """A store writes the second attempt when the third one has begun, which fails then, and writes
    nothing. The fourth one must know what the second has written."""
    factory = MemoryState(OPAQUE)
    batch(factory.make(PLACE), 1, storm=3)
    late = factory.make(PLACE)
    late.begin_commit(Attempt(2, 1, 1))
    late.multi_put(["storm", "ray"], [8, 1])
    state = factory.make(PLACE)
    state.begin_commit(Attempt(2, 2, 1))
    late.commit(Attempt(2, 1, 1))
    assert state.multi_get(["ray"]) == [None]
    assert batch(state, 2, attempt=3, sun=1) == [1]
    assert stored(factory) == {"storm": [2, 3, 3], "sun": [2, 1, None]}


def test_a_repeat_without_rows_undoes_the_earlier_attempt() -> None:
    factory = MemoryState(OPAQUE)
    batch(factory.make(PLACE), 1, storm=3)
    batch(factory.make(PLACE), 1, attempt=1)
    assert stored(factory) == {}
    assert batch(factory.make(PLACE), 2, storm=3) == [3]


def test_a_first_attempt_without_rows_writes_nothing() -> None:
    factory = MemoryState(OPAQUE)
    state = factory.make(PLACE)
    batch(state, 1)
    assert factory.homes() == []
    batch(state, 2, attempt=1)  # writes the mark, since an earlier attempt might still write
    assert factory.homes() == [Home("counts", 0)]


@pytest.mark.parametrize("kind", [TRANSACTIONAL, OPAQUE])
def test_one_batch_may_write_a_key_several_times(kind: StateKind) -> None:
    factory = MemoryState(kind)
    state = factory.make(PLACE)
    batch(state, 1, storm=3)
    for attempt in range(2):
        at = Attempt(2, attempt, 1)
        state.begin_commit(at)
        state.multi_update(["storm", "storm"], [plus(1), plus(1)])
        state.multi_update(["storm"], [plus(1)])
        assert state.multi_get(["storm"]) == [6]
        state.commit(at)
        assert stored(factory)["storm"][:2] == [2, 6]


@every_kind
def test_a_batch_reads_its_own_writes_and_others_the_committed_values(kind: StateKind) -> None:
    state = MemoryState(kind).make(PLACE)
    state.begin_commit(Attempt(1, 0, 1))
    state.multi_put(["storm", "ray"], [1, 2])
    assert state.multi_get(["ray", "storm", "sun"]) == [2, 1, None]
    state.abort()
    assert state.multi_get(["ray", "storm"]) == [None, None]


def test_an_opaque_state_shows_a_repeat_the_values_before_and_others_the_current_ones() -> None:
    state = MemoryState(OPAQUE).make(PLACE)
    batch(state, 1, storm=3)
    batch(state, 2, storm=5)
    assert state.multi_get(["storm"]) == [8]
    state.begin_commit(Attempt(2, 1, 1))
    assert state.multi_get(["storm"]) == [3]


@every_kind
def test_put_replaces_the_value(kind: StateKind) -> None:
    factory = MemoryState(kind)
    state = factory.make(PLACE)
    batch(state, 1, storm=3)
    for attempt in range(2):
        at = Attempt(2, attempt, 1)
        state.begin_commit(at)
        state.multi_put(["storm"], [f"put {attempt}"])
        state.commit(at)
    assert dict(factory.items()) == {"storm": "put 1"}
    if kind is OPAQUE:
        assert stored(factory) == {"storm": [2, "put 1", 3]}


@every_kind
def test_a_removed_key_is_gone_for_the_next_batch(kind: StateKind) -> None:
    factory = MemoryState(kind)
    state = factory.make(PLACE)
    batch(state, 1, storm=3, ray=1)
    at = Attempt(2, 0, 1)
    state.begin_commit(at)
    state.multi_remove(["storm", "none"])
    assert state.multi_get(["storm"]) == [None]
    state.commit(at)
    assert dict(factory.items()) == {"ray": 1}
    batch(state, 3, ray=1)
    assert {*stored(factory)} == {"ray"}
    assert batch(state, 4, storm=1) == [1]


def test_a_repeat_of_a_removal_finds_the_value_before_it() -> None:
    factory = MemoryState(OPAQUE)
    state = factory.make(PLACE)
    batch(state, 1, storm=3)
    for attempt in range(3):
        at = Attempt(2, attempt, 1)
        state.begin_commit(at)
        assert state.multi_get(["storm"]) == [3]
        state.multi_remove(["storm"])
        state.commit(at)
    assert batch(factory.make(PLACE), 2, attempt=3, ray=1) == [1]  # this attempt removes nothing
    assert dict(factory.items()) == {"storm": 3, "ray": 1}


def test_a_key_that_comes_back_in_the_repeat_of_its_removal_stays() -> None:
    factory = MemoryState(TRANSACTIONAL)
    state = factory.make(PLACE)
    batch(state, 1, storm=3)
    for attempt, value in enumerate([None, 7]):
        at = Attempt(2, attempt, 1)
        state.begin_commit(at)
        state.multi_put(["storm"], [value])
        state.commit(at)
    batch(state, 3, ray=1)
    assert dict(factory.items()) == {"storm": 7, "ray": 1}


# ---- use ----------------------------------------------------------------------------------------


@every_kind
def test_values_that_recent_batches_have_written_are_not_read_again(
    kind: StateKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = list[str]()
    read = MemoryBacking.get

    def get(self: MemoryBacking, keys: Sequence[str]) -> list[str | None]:
        reads.extend(keys)
        return read(self, keys)

    monkeypatch.setattr(MemoryBacking, "get", get)
    state, short = MemoryState(kind).make(PLACE), {"number": 1, "list": [1, [(2, 3)]]}
    for txid, values in enumerate([short, {**short, "text": "a" * 1_000}] * 3, 1):
        reads.clear()
        state.begin_commit(Attempt(txid, 0, 1))
        assert state.multi_get([*short]) == ([*short.values()] if txid > 1 else [None, None])
        state.multi_put([*values], [*values.values()])
        state.commit(Attempt(txid, 0, 1))
        assert txid == 1 or not {'"number"', '"list"'} & {*reads}


@pytest.mark.parametrize("in_between", ["", "another process", "a long value"])
def test_a_function_may_change_the_values_that_it_has_read_and_put_them(in_between: str) -> None:
    factory = MemoryState(OPAQUE)
    state = factory.make(PLACE)
    first: list[Any] = ["x" * 1_000 if in_between == "a long value" else "x"]

    def append(txid: int, attempt: int) -> list[Any]:
        nonlocal state
        if in_between == "another process":
            state = factory.make(PLACE)
        state.begin_commit(Attempt(txid, attempt, 1))
        (value,) = state.multi_get(["storm"])
        value.append(txid)
        state.multi_put(["storm"], [value])
        state.commit(Attempt(txid, attempt, 1))
        return list(value)

    state.begin_commit(Attempt(1, 0, 1))
    state.multi_put(["storm"], [first])
    state.commit(Attempt(1, 0, 1))
    for txid in (2, 3):
        first = [*first, txid]
        assert [append(txid, attempt) for attempt in range(3)] == [first] * 3


def test_writing_outside_of_a_batch_is_refused() -> None:
    state = MemoryState().make(PLACE)
    for write in (
        lambda: state.multi_put(["storm"], [1]),
        lambda: state.multi_update(["storm"], [plus(1)]),
        lambda: state.commit(Attempt(1, 0, 1)),
    ):
        with pytest.raises(BatchError, match="begin_commit is missing"):
            write()
    state.begin_commit(Attempt(1, 0, 1))
    with pytest.raises(BatchError, match="was begun"):
        state.commit(Attempt(2, 0, 1))


def test_copies_of_a_memory_state_share_it_and_other_processes_cannot() -> None:
    factory = MemoryState()
    batch(copy.deepcopy(factory).make(PLACE), 1, storm=3)
    assert dict(factory.items()) == {"storm": 3}
    with pytest.raises(ConfigError, match="SqliteState"):
        pickle.dumps(factory)


def test_readers_of_a_store_with_several_states_must_name_one() -> None:
    factory = MemoryState()
    assert dict(factory.items()) == {}
    batch(factory.make(PLACE), 1, storm=3)
    batch(factory.make(Place("words", "sums", 0, 2)), 1, storm=4)
    batch(factory.make(Place("words", "sums", 1, 2)), 1, ray=5)
    assert dict(factory.items("sums")) == {"storm": 4, "ray": 5}
    with pytest.raises(ConfigError, match=r"items\('counts'\); it has counts, sums"):
        dict(factory.items())
