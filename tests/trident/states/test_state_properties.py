"""Random operations on a state, and repeated batches, compared with a dictionary.

Values are numbers, or lists, which users change in place.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from sunshower.topologies.operators.port import Attempt
from sunshower.topologies.operators.states import MapState, StateKind
from sunshower.trident.states.factories import MemoryState
from tests.trident.rigs.additions import NON, OPAQUE, PLACE, TRANSACTIONAL, plus

keys = st.sampled_from(["a", "b", ("c", 1), 2])
operation = st.one_of(
    st.tuples(st.sampled_from(["update", "put"]), keys, st.integers(-9, 9)),
    st.tuples(st.sampled_from(["remove", "get"]), keys, st.just(0)),
)
operations = st.lists(operation, max_size=8)
Operations = list[tuple[str, Any, int]]


def appended(number: int) -> Callable[[Any], list[int]]:
    """An update that changes a list in place."""

    def update(old: list[int] | None) -> list[int]:
        values = [] if old is None else old
        values.append(number)
        return values

    return update


def spoil(value: Any) -> None:
    """Change what a state was given or has returned."""
    if isinstance(value, list):
        value.append("changed by its reader")


def run(
    state: MapState, attempt: Attempt, todo: Operations, base: dict[Any, Any], are_lists: bool
) -> dict[Any, Any]:
    """Apply the operations to the state and to a dictionary, and compare after each."""
    model = dict(base)
    state.begin_commit(attempt)
    for what, key, number in todo:
        if what == "update" and are_lists:
            model[key] = [*model.get(key, ()), number]
            (value,) = state.multi_update([key], [appended(number)])
            assert value == model[key]
            spoil(value)
        elif what == "update":
            model[key] = model.get(key, 0) + number
            assert state.multi_update([key], [plus(number)]) == [model[key]]
        elif what == "put":
            model[key] = [number] if are_lists else number
            given = [number] if are_lists else number
            state.multi_put([key], [given])
            spoil(given)
        elif what == "remove":
            model.pop(key, None)
            state.multi_remove([key])
        (value,) = state.multi_get([key])
        assert value == model.get(key)
        spoil(value)
    state.commit(attempt)
    assert state.multi_get([*model]) == [*model.values()]
    return model


@given(
    st.lists(st.lists(operations, min_size=1, max_size=3), max_size=5), st.booleans(), st.booleans()
)
def test_the_last_attempt_counts_in_an_opaque_state(
    batches: list[list[Operations]], reopened: bool, are_lists: bool
) -> None:
    factory = MemoryState(OPAQUE)
    state, base = factory.make(PLACE), {}
    for txid, attempts in enumerate(batches, 1):
        after = base
        for number, todo in enumerate(attempts):
            if reopened:
                state = factory.make(PLACE)
            after = run(state, Attempt(txid, number, 1), todo, base, are_lists)
            assert dict(factory.items()) == after
        base = after


@given(
    st.lists(operations, max_size=6),
    st.sampled_from([NON, TRANSACTIONAL]),
    st.booleans(),
    st.booleans(),
)
def test_without_repeats_every_state_behaves_like_a_dictionary(
    batches: list[Operations], kind: StateKind, reopened: bool, are_lists: bool
) -> None:
    factory = MemoryState(kind)
    state, base = factory.make(PLACE), {}
    for txid, todo in enumerate(batches, 1):
        if reopened:
            state = factory.make(PLACE)
        base = run(state, Attempt(txid, 0, 1), todo, base, are_lists)
    assert dict(factory.items()) == base


@given(st.lists(st.tuples(operations, st.integers(1, 3)), max_size=5))
def test_the_first_attempt_counts_in_a_transactional_state(
    batches: list[tuple[Operations, int]],
) -> None:
    factory = MemoryState(TRANSACTIONAL)
    base: dict[Any, int] = {}
    for txid, (todo, repeats) in enumerate(batches, 1):
        base = run(factory.make(PLACE), Attempt(txid, 0, 1), todo, base, are_lists=False)
        for number in range(1, repeats):
            state, attempt = factory.make(PLACE), Attempt(txid, number, 1)
            state.begin_commit(attempt)
            for what, key, value in todo:
                if what == "update":
                    state.multi_update([key], [plus(value)])
                elif what != "get":
                    state.multi_put([key], [None if what == "remove" else value])
            state.commit(attempt)
            assert dict(factory.items()) == base
