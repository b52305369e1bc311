"""Which attempts may write a state, which states are refused, and which values can be stored."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest

from sunshower import versions
from sunshower.errors import (
    BatchError,
    StaleAttempt,
    StateLost,
    StateMismatch,
    Unserialisable,
    VersionMismatch,
)
from sunshower.state.backing import Home, Mark, MemoryBacking
from sunshower.topologies.operators.port import Attempt
from sunshower.topologies.operators.states import Place, StateKind
from sunshower.trident.states.factories import MemoryState
from tests.runtime.field_values import Color
from tests.trident.rigs.additions import (
    OPAQUE,
    PLACE,
    TRANSACTIONAL,
    batch,
    every_kind,
    plus,
    stored,
)

NOON = datetime(2026, 7, 1, 12, tzinfo=UTC)

# ---- which attempts may write -------------------------------------------------------------------


@every_kind
@pytest.mark.parametrize("late", [Attempt(5, 1, 2), Attempt(4, 9, 2), Attempt(9, 9, 1)])
def test_a_late_attempt_writes_nothing(kind: StateKind, late: Attempt) -> None:
    factory = MemoryState(kind)
    batch(factory.make(PLACE), 5, attempt=2, epoch=2, storm=3)
    with pytest.raises(
        StaleAttempt, match="state 'counts' in memory, task 0 was written by batch 5"
    ):
        factory.make(PLACE).begin_commit(late)
    assert dict(factory.items()) == {"storm": 3}


@every_kind
def test_a_task_that_was_thought_dead_within_a_batch_writes_nothing(kind: StateKind) -> None:
    factory = MemoryState(kind)
    dead, alive = factory.make(PLACE), factory.make(PLACE)
    dead.begin_commit(Attempt(1, 0, 1))
    dead.multi_put(["storm", "ray"], [100, 100])
    batch(alive, 1, attempt=1, storm=3)
    with pytest.raises(StaleAttempt):
        dead.commit(Attempt(1, 0, 1))
    assert dict(factory.items()) == {"storm": 3}


@every_kind
def test_a_state_whose_mark_was_removed_meanwhile_does_not_begin_again(kind: StateKind) -> None:
    factory = MemoryState(kind)
    state = factory.make(PLACE)
    batch(state, 1, storm=3)
    marks = dict(factory.shelf.marks)
    factory.shelf.marks.clear()
    for attempt in range(2):
        with pytest.raises(StateLost, match=r"had batch 1.* and has no mark now"):
            batch(state, 2, attempt=attempt, storm=5)
    factory.shelf.marks.update(marks)
    batch(state, 2, attempt=2, storm=5)
    assert dict(factory.items()) == {"storm": 8}


def test_values_read_before_an_earlier_attempt_committed_are_not_written() -> None:
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


def test_batches_that_are_numbered_from_the_start_again_are_refused() -> None:
    factory = MemoryState(OPAQUE)
    batch(factory.make(PLACE), 500, epoch=3, storm=3)
    with pytest.raises(StaleAttempt, match="the store of the batches was removed"):
        batch(factory.make(PLACE), 1, epoch=1, storm=3)
    with pytest.raises(StateMismatch, match="batches are counted elsewhere"):
        batch(factory.make(PLACE), 1, epoch=4, storm=3)


@pytest.mark.parametrize(
    ("place", "kind", "what"),
    [
        (Place("other", "counts", 0, 1), OPAQUE, "topology 'words', and this is 'other'"),
        (Place("words", "counts", 0, 2), OPAQUE, "parallelism 1, and this is 2"),
        (Place("words", "counts", 0, 1, "9f"), OPAQUE, "batch 1, .* a spout with another id"),
        (PLACE, TRANSACTIONAL, "kind 'opaque', and this is 'transactional'"),
    ],
)
def test_a_state_of_another_owner_is_not_opened(place: Place, kind: StateKind, what: str) -> None:
    factory = MemoryState(OPAQUE)
    batch(factory.make(PLACE), 1, storm=3)
    with pytest.raises(StateMismatch, match=what):
        MemoryState(kind, shelf=factory.shelf).make(place)


def test_fewer_tasks_are_reported_even_if_only_the_removed_ones_had_rows() -> None:
    factory = MemoryState(OPAQUE)
    batch(factory.make(Place("words", "counts", 3, 4)), 1, storm=3)
    batch(factory.make(Place("words", "others", 3, 4)), 1, storm=3)
    with pytest.raises(StateMismatch, match="has 2 tasks, and task 3 has written there"):
        factory.make(Place("words", "counts", 0, 2))
    factory.make(Place("words", "counts", 0, 4))


@pytest.mark.parametrize(
    "mark",
    [
        Mark("", "{}"),
        Mark("[]", "{}"),
        Mark('{"txid": 1, "attempt": "0", "epoch": 1}', "{}"),
        Mark('{"txid": 1, "attempt": 0}', "{}"),
    ],
)
def test_a_corrupt_mark_is_reported(mark: Mark) -> None:
    factory = MemoryState(OPAQUE)
    factory.shelf.marks[Home("counts", 0)] = mark
    with pytest.raises(StateMismatch, match="task 0: its mark cannot be read"):
        factory.make(PLACE)


@pytest.mark.parametrize(
    "value", ["", "7", "[1,2]", '["a",1,2]', "[1,2],[1,2,3]", "[1,2,3", b"[1,2,3]", "[0,2,3]"]
)
def test_a_corrupt_value_is_reported_with_its_key(value: Any) -> None:
    factory = MemoryState(OPAQUE)
    batch(factory.make(PLACE), 1, storm=3, ray=1)
    factory.shelf.values[Home("counts", 0)]['"ray"'] = value
    with pytest.raises(StateMismatch, match=r'the value of key "ray" cannot be read'):
        batch(factory.make(PLACE), 2, storm=1, ray=1)


@pytest.mark.parametrize(("call", "what"), [("mark", "its mark"), ("get", "a value")])
def test_bytes_that_are_not_text_are_reported(
    call: str, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error of the clients of Redis and ZooKeeper, if another program has written bytes."""
    factory = MemoryState(OPAQUE)
    batch(factory.make(PLACE), 1, storm=3)
    monkeypatch.setattr(MemoryBacking, call, lambda *_: b"\xff".decode())
    with pytest.raises(StateMismatch, match=f"{what} cannot be read"):
        batch(factory.make(PLACE), 2, storm=3)


def test_a_value_of_a_later_batch_is_reported() -> None:
    factory = MemoryState(OPAQUE)
    batch(factory.make(PLACE), 1, storm=3)
    factory.shelf.values[Home("counts", 0)]['"storm"'] = "[7,2,1]"
    with pytest.raises(StaleAttempt, match=r'key "storm" was written by batch 7'):
        batch(factory.make(PLACE), 2, storm=1)


# ---- which values can be stored -----------------------------------------------------------------


@every_kind
@pytest.mark.parametrize(
    "bad", [{1j}, object(), [1j], {1j: 2}, Attempt(1, 1, 1), Color.RED, (Color.RED,)]
)
def test_the_error_names_a_value_that_cannot_be_stored_and_nothing_is_written(
    kind: StateKind, bad: object
) -> None:
    factory = MemoryState(kind)
    state = factory.make(PLACE)
    batch(state, 1, storm=3)
    before = stored(factory)
    state.begin_commit(Attempt(2, 0, 1))
    with pytest.raises(Unserialisable, match=r"state 'counts' .* the value of key 'ray' cannot be"):
        state.multi_update(["storm", "ray"], [plus(1), lambda _: bad])
    state.abort()
    assert stored(factory) == before


def test_the_error_names_a_key_that_cannot_be_stored() -> None:
    state = MemoryState().make(PLACE)
    with pytest.raises(
        Unserialisable, match=r"a key cannot be kept: .*Color is not for JSON: keep its"
    ):
        state.multi_get([("storm", frozenset([Color.RED]))])


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
        b"bytes": b"\xff",
        NOON: {"at": NOON.replace(tzinfo=ZoneInfo("Europe/Berlin"), fold=1)},
        NOON.date(): [NOON.timetz(), timedelta(-1, 5)],
        Decimal("1.1"): Decimal("1.10"),
        (UUID(int=7), frozenset([1, (NOON,)])): {1, "b", (Decimal(2), None)},
        frozenset(): {"(datetime)x": {"(set)": 1, "b": 2}},
    }
    at = Attempt(1, 0, 1)
    state.begin_commit(at)
    state.multi_put([*values], [*values.values()])
    assert state.multi_get([*values]) == [*values.values()]
    state.commit(at)
    assert factory.make(PLACE).multi_get([*values]) == [*values.values()]
    assert dict(factory.items()) == values


def test_an_update_may_change_its_argument_in_place() -> None:
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
    assert stored(factory) == {"storm": [2, [0, 1, 2, 3], [0, 1]]}


# ---- versions -----------------------------------------------------------------------------------


def test_a_state_of_another_release_is_not_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    factory = MemoryState(OPAQUE)
    with monkeypatch.context() as other_release:
        other_release.setattr(versions, "STATE", 9)
        batch(factory.make(PLACE), 1, storm=3)
    wanted = "^state 'counts' in memory, task 0 has version 9, and .* uses version 2: use the rel"
    with pytest.raises(VersionMismatch, match=wanted):
        factory.make(PLACE)


def test_a_mark_without_a_version_is_of_version_1() -> None:
    factory = MemoryState(OPAQUE)
    batch(factory.make(PLACE), 1, storm=3)
    home = Home("counts", 0)
    word, journal = factory.shelf.marks[home]
    content = {name: value for name, value in json.loads(word).items() if name != "version"}
    factory.shelf.marks[home] = Mark(json.dumps(content), journal)
    with pytest.raises(VersionMismatch, match="has version 1, and this release"):
        factory.make(PLACE)
