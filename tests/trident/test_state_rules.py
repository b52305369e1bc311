"""What a state holds after a batch, its repeats and its removals: Storm's rules, case by case."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Callable
from typing import Any

import pytest

from sunshower.errors import (
    BatchError,
    ConfigError,
    StaleAttempt,
    StateMismatch,
    Unserialisable,
)
from sunshower.stores.backing import Home, Mark
from sunshower.trident.attempts import Attempt
from sunshower.trident.states.factories import MemoryState
from sunshower.trident.states.port import Place, StateKind
from sunshower.trident.states.stored_map import StoredMap

NON, TRANSACTIONAL, OPAQUE = (
    StateKind.NON_TRANSACTIONAL,
    StateKind.TRANSACTIONAL,
    StateKind.OPAQUE,
)
every_kind = pytest.mark.parametrize("kind", StateKind)
PLACE = Place("words", "counts", 0, 1)


def plus(number: int) -> Callable[[Any], Any]:
    return lambda old: (old or 0) + number


def kept(factory: MemoryState) -> dict[str, Any]:
    """What stands in the store, as JSON."""
    values = factory.shelf.values.get(Home("counts", 0), {})
    return {json.loads(key): json.loads(value) for key, value in values.items()}


def batch(
    state: StoredMap, txid: int, attempt: int = 0, epoch: int = 1, **numbers: int
) -> list[Any]:
    """A whole batch that adds numbers."""
    at = Attempt(txid, attempt, epoch)
    state.begin_commit(at)
    new = state.multi_update([*numbers], [plus(number) for number in numbers.values()])
    state.commit(at)
    return new


# ---- Storm's rules ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "first", "second"),
    [(NON, 3, 8), (TRANSACTIONAL, [1, 3], [2, 8]), (OPAQUE, [1, 3, None], [2, 8, 3])],
)
def test_what_is_stored_is_what_storm_stores(kind: StateKind, first: Any, second: Any) -> None:
    factory = MemoryState(kind)
    state = factory.make(PLACE)
    assert batch(state, 1, storm=3) == [3]
    assert kept(factory) == {"storm": first}
    assert batch(state, 2, storm=5) == [8]
    assert kept(factory) == {"storm": second}


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
    assert kept(factory) == {"storm": [1, 3]}


def test_a_repeat_with_other_rows_begins_at_the_value_before_in_an_opaque_state() -> None:
    factory = MemoryState(OPAQUE)
    state = factory.make(PLACE)
    batch(state, 1, storm=3)
    batch(state, 2, storm=5)
    assert batch(state, 2, attempt=1, storm=7) == [10]
    assert kept(factory) == {"storm": [2, 10, 3]}


def test_keys_that_only_the_earlier_attempt_had_go_back() -> None:
    """In Storm they stay, and what it has counted is counted again in the batch that has it."""
    factory = MemoryState(OPAQUE)
    state = factory.make(PLACE)
    batch(state, 1, storm=3)
    batch(state, 2, storm=5, ray=1)
    batch(factory.make(PLACE), 2, attempt=1, sun=1)
    assert kept(factory) == {"storm": [2, 3, 3], "sun": [2, 1, None]}
    assert batch(factory.make(PLACE), 3, storm=5, ray=1) == [8, 1]


def test_a_repeat_without_rows_undoes_the_earlier_attempt() -> None:
    factory = MemoryState(OPAQUE)
    batch(factory.make(PLACE), 1, storm=3)
    batch(factory.make(PLACE), 1, attempt=1)
    assert kept(factory) == {}
    assert batch(factory.make(PLACE), 2, storm=3) == [3]


def test_a_first_attempt_without_rows_writes_nothing() -> None:
    factory = MemoryState(OPAQUE)
    state = factory.make(PLACE)
    batch(state, 1)
    assert factory.homes() == []
    batch(state, 2, attempt=1)  # an earlier one may still write: it is kept out
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
        assert kept(factory)["storm"][:2] == [2, 6]


@every_kind
def test_a_batch_reads_what_it_has_written_and_others_what_is_kept(kind: StateKind) -> None:
    state = MemoryState(kind).make(PLACE)
    state.begin_commit(Attempt(1, 0, 1))
    state.multi_put(["storm", "ray"], [1, 2])
    assert state.multi_get(["ray", "storm", "sun"]) == [2, 1, None]
    state.abort()
    assert state.multi_get(["ray", "storm"]) == [None, None]


def test_an_opaque_state_shows_a_repeat_what_was_before_and_others_what_is_now() -> None:
    state = MemoryState(OPAQUE).make(PLACE)
    batch(state, 1, storm=3)
    batch(state, 2, storm=5)
    assert state.multi_get(["storm"]) == [8]
    state.begin_commit(Attempt(2, 1, 1))
    assert state.multi_get(["storm"]) == [3]


@every_kind
def test_what_is_put_replaces_whatever_was_there(kind: StateKind) -> None:
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
        assert kept(factory) == {"storm": [2, "put 1", 3]}


@every_kind
def test_what_is_removed_is_gone_for_the_next_batch(kind: StateKind) -> None:
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
    assert {*kept(factory)} == {"ray"}  # nothing of it stays behind
    assert batch(state, 4, storm=1) == [1]


def test_a_repeat_of_a_removal_finds_what_was_before_it() -> None:
    factory = MemoryState(OPAQUE)
    state = factory.make(PLACE)
    batch(state, 1, storm=3)
    for attempt in range(3):
        at = Attempt(2, attempt, 1)
        state.begin_commit(at)
        assert state.multi_get(["storm"]) == [3]
        state.multi_remove(["storm"])
        state.commit(at)
    assert batch(factory.make(PLACE), 2, attempt=3, ray=1) == [1]  # this one removes nothing
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


# ---- who may write ------------------------------------------------------------------------------


@every_kind
@pytest.mark.parametrize("late", [Attempt(5, 1, 2), Attempt(4, 9, 2), Attempt(9, 9, 1)])
def test_who_comes_late_writes_nothing(kind: StateKind, late: Attempt) -> None:
    factory = MemoryState(kind)
    batch(factory.make(PLACE), 5, attempt=2, epoch=2, storm=3)
    with pytest.raises(
        StaleAttempt, match="state 'counts' in memory, task 0 was written by batch 5"
    ):
        factory.make(PLACE).begin_commit(late)
    assert dict(factory.items()) == {"storm": 3}


@every_kind
def test_who_was_thought_dead_in_the_middle_of_a_batch_writes_nothing(kind: StateKind) -> None:
    factory = MemoryState(kind)
    dead, alive = factory.make(PLACE), factory.make(PLACE)
    dead.begin_commit(Attempt(1, 0, 1))
    dead.multi_put(["storm", "ray"], [100, 100])
    batch(alive, 1, attempt=1, storm=3)
    with pytest.raises(StaleAttempt):
        dead.commit(Attempt(1, 0, 1))
    assert dict(factory.items()) == {"storm": 3}


def test_what_was_read_before_an_earlier_attempt_wrote_is_not_written() -> None:
    factory = MemoryState(OPAQUE)
    late, now = factory.make(PLACE), factory.make(PLACE)
    late.begin_commit(Attempt(1, 0, 1))
    late.multi_put(["ray"], [100])
    now.begin_commit(Attempt(1, 1, 1))
    now.multi_put(["storm"], [1])
    late.commit(Attempt(1, 0, 1))
    with pytest.raises(BatchError, match="meanwhile by batch 1, attempt 0"):
        now.commit(Attempt(1, 1, 1))
    batch(now, 1, attempt=2, storm=1)
    assert dict(factory.items()) == {"storm": 1}


def test_batches_that_are_counted_anew_are_refused() -> None:
    factory = MemoryState(OPAQUE)
    batch(factory.make(PLACE), 500, epoch=3, storm=3)
    with pytest.raises(StaleAttempt, match="the store of the batches was removed"):
        batch(factory.make(PLACE), 1, epoch=1, storm=3)
    with pytest.raises(StateMismatch, match="counted in another store than they were"):
        batch(factory.make(PLACE), 1, epoch=4, storm=3)


@pytest.mark.parametrize(
    ("place", "kind", "what"),
    [
        (Place("other", "counts", 0, 1), OPAQUE, "topology 'words', and this is 'other'"),
        (Place("words", "counts", 0, 2), OPAQUE, "parallelism 1, and this is 2"),
        (PLACE, TRANSACTIONAL, "kind 'opaque', and this is 'transactional'"),
    ],
)
def test_a_state_of_somebody_else_is_not_opened(place: Place, kind: StateKind, what: str) -> None:
    factory = MemoryState(OPAQUE)
    batch(factory.make(PLACE), 1, storm=3)
    with pytest.raises(StateMismatch, match=what):
        MemoryState(kind, shelf=factory.shelf).make(place)


@pytest.mark.parametrize(
    "mark",
    [
        Mark("", "{}"),
        Mark("[]", "{}"),
        Mark('{"txid": 1, "attempt": "0", "epoch": 1}', "{}"),
        Mark('{"txid": 1, "attempt": 0}', "{}"),
    ],
)
def test_a_mark_that_is_corrupt_is_told(mark: Mark) -> None:
    factory = MemoryState(OPAQUE)
    factory.shelf.marks[Home("counts", 0)] = mark
    with pytest.raises(StateMismatch, match="task 0: its mark cannot be read"):
        factory.make(PLACE)


@pytest.mark.parametrize("value", ["", "7", "[1,2]", '["a",1,2]', "[1,2],[1,2,3]", "[1,2,3"])
def test_a_value_that_is_corrupt_is_told_with_its_key(value: str) -> None:
    factory = MemoryState(OPAQUE)
    state = factory.make(PLACE)
    batch(state, 1, storm=3, ray=1)
    factory.shelf.values[Home("counts", 0)]['"ray"'] = value
    with pytest.raises(StateMismatch, match=r'the value of key "ray" cannot be read'):
        batch(state, 2, storm=1, ray=1)


def test_a_value_of_a_later_batch_is_told() -> None:
    factory = MemoryState(OPAQUE)
    state = factory.make(PLACE)
    batch(state, 1, storm=3)
    factory.shelf.values[Home("counts", 0)]['"storm"'] = "[7,2,1]"
    with pytest.raises(StaleAttempt, match=r'key "storm" was written by batch 7'):
        batch(state, 2, storm=1)


# ---- what can be kept ---------------------------------------------------------------------------


@every_kind
@pytest.mark.parametrize(
    "bad", [{1, 2}, b"bytes", object(), [b""], {1: 2}, "\ud800", Attempt(1, 1, 1)]
)
def test_a_value_that_cannot_be_kept_is_named_and_nothing_is_written(
    kind: StateKind, bad: object
) -> None:
    factory = MemoryState(kind)
    state = factory.make(PLACE)
    batch(state, 1, storm=3)
    before = kept(factory)
    state.begin_commit(Attempt(2, 0, 1))
    with pytest.raises(Unserialisable, match=r"state 'counts' .* the value of key 'ray' cannot be"):
        state.multi_update(["storm", "ray"], [plus(1), lambda _: bad])
    state.abort()
    assert kept(factory) == before


def test_a_key_that_cannot_be_kept_is_named() -> None:
    state = MemoryState().make(PLACE)
    with pytest.raises(Unserialisable, match="a key cannot be kept: a frozenset is not for JSON"):
        state.multi_get([("storm", frozenset())])


@every_kind
def test_values_and_keys_come_back_as_they_were(kind: StateKind) -> None:
    factory = MemoryState(kind)
    state = factory.make(PLACE)
    values: dict[Any, Any] = {
        "text": "你好 \n\x00\"'",
        ("a", 1): (1, (2.5, "b"), []),
        ("a",): [1, None, True, {"()x": (1,)}],
        1: 2**80,
        1.5: float("-inf"),
        None: {"k": [("t",)]},
        (("nested", 1), "x"): "",
    }
    at = Attempt(1, 0, 1)
    state.begin_commit(at)
    state.multi_put([*values], [*values.values()])
    assert state.multi_get([*values]) == [*values.values()]
    state.commit(at)
    assert factory.make(PLACE).multi_get([*values]) == [*values.values()]
    assert dict(factory.items()) == values


def test_an_update_that_changes_what_it_is_handed_changes_nothing_else() -> None:
    factory = MemoryState(OPAQUE)
    state = factory.make(PLACE)

    def grown(old: list[int] | None) -> list[int]:
        old = [] if old is None else old
        old.append(len(old))
        return old

    for txid in (1, 2):
        state.begin_commit(Attempt(txid, 0, 1))
        (new,) = state.multi_update(["storm"], [grown])
        new.append("not mine")
        state.multi_update(["storm"], [grown])
        state.commit(Attempt(txid, 0, 1))
    assert kept(factory) == {"storm": [2, [0, 1, 2, 3], [0, 1]]}


# ---- how it is used -----------------------------------------------------------------------------


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


def test_whoever_reads_a_store_with_several_states_says_which() -> None:
    factory = MemoryState()
    assert dict(factory.items()) == {}
    batch(factory.make(PLACE), 1, storm=3)
    batch(factory.make(Place("words", "sums", 0, 2)), 1, storm=4)
    batch(factory.make(Place("words", "sums", 1, 2)), 1, ray=5)
    assert dict(factory.items("sums")) == {"storm": 4, "ray": 5}
    with pytest.raises(ConfigError, match=r"items\('counts'\); it has counts, sums"):
        dict(factory.items())
