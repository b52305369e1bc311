"""Root ids hold three numbers without loss; edge ids are 64 random bits and never zero."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sunshower.runtime.tracking.ids import (
    GENERATION_MASK,
    INCARNATIONS_MAX,
    SLOTS_MAX,
    EdgeIds,
    by_incarnation,
    first_of_each,
    generations_of,
    incarnations_of,
    make_roots,
    slots_of,
)

incarnations = st.integers(0, INCARNATIONS_MAX - 1)
places = st.lists(st.tuples(st.integers(0, GENERATION_MASK), st.integers(0, SLOTS_MAX - 1)))


@given(incarnations, places)
def test_root_id_is_split_into_the_numbers_it_was_made_of(
    incarnation: int, parts: list[tuple[int, int]]
) -> None:
    generations = np.array([generation for generation, _ in parts], np.uint32)
    slots = np.array([slot for _, slot in parts], np.int64)
    roots = make_roots(incarnation, generations, slots)
    assert roots.dtype == np.uint64
    assert roots.tolist() == [incarnation << 48 | g << 24 | s for g, s in parts]
    assert incarnations_of(roots).tolist() == [incarnation] * len(parts)
    assert generations_of(roots).tolist() == generations.tolist()
    assert slots_of(roots).tolist() == slots.tolist()


@given(st.lists(st.sampled_from([0, 1, 2**15, INCARNATIONS_MAX - 1]), max_size=40))
def test_roots_are_divided_by_their_incarnations(numbers: list[int]) -> None:
    roots = np.array([number << 48 | slot for slot, number in enumerate(numbers)], np.uint64)
    parts = [*by_incarnation(roots)]
    assert [number for number, _ in parts] == [*dict.fromkeys(numbers)]
    for number, same in parts:
        slots = [slot for slot, other in enumerate(numbers) if other == number]
        assert slots_of(roots[same]).tolist() == slots
    assert any(isinstance(same, slice) for _, same in parts) == (len({*numbers}) == 1)


@given(st.lists(st.integers(0, 9), max_size=40))
def test_one_position_of_each_slot_is_kept(slots: list[int]) -> None:
    scratch = np.full(10, 7, np.int32)  # its content does not matter
    chosen = np.array(slots, np.int64)[first_of_each(np.array(slots, np.int64), scratch)]
    assert sorted(chosen.tolist()) == sorted(set(slots))


def test_edges_use_all_64_bits_and_are_never_zero() -> None:
    edges = EdgeIds(np.random.default_rng(0)).draw(10_000)
    assert edges.all()
    assert int(np.bitwise_or.reduce(edges)) == (1 << 64) - 1
    assert int(np.bitwise_and.reduce(edges)) == 0
    assert len(np.unique(edges)) == 10_000


def test_zeros_are_drawn_again() -> None:
    drawn = iter([[0, 7, 0], [0, 8], [9]])

    class Zeros(np.random.PCG64):
        def random_raw(self, count: int) -> np.ndarray:  # type: ignore[override]
            values = np.array(next(drawn), np.uint64)
            assert len(values) == count
            return values

    assert EdgeIds(np.random.Generator(Zeros(0))).draw(3).tolist() == [9, 7, 8]


@pytest.mark.parametrize("seed", [1, 2])
def test_edges_come_from_the_given_generator(seed: int) -> None:
    same = [EdgeIds(np.random.default_rng(seed)).draw(5).tolist() for _ in range(2)]
    assert same[0] == same[1]
    assert same[0] != EdgeIds(np.random.default_rng(seed + 1)).draw(5).tolist()
