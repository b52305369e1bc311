"""The XOR arithmetic on batches gives the same results as a loop over single tuples."""

from __future__ import annotations

from functools import reduce
from operator import xor

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from sunshower.runtime.tracking.ids import fold, runs, segment_xor

ids = st.integers(0, (1 << 64) - 1)
few_roots = st.lists(st.integers(1, 4), max_size=30)  # so that neighbours are often equal


@given(st.lists(st.lists(ids, max_size=4), min_size=1))
@example([[], [], [1, 2], [], [3], []])  # np.bitwise_xor.reduceat gets the empty ones wrong
def test_segment_xor_is_a_loop_over_segments(segments: list[list[int]]) -> None:
    values = np.array([value for segment in segments for value in segment], np.uint64)
    ends = np.cumsum([len(segment) for segment in segments])
    assert segment_xor(values, ends).tolist() == [reduce(xor, s, 0) for s in segments]


@given(few_roots, st.data())
def test_fold_keeps_the_xor_of_every_root(roots: list[int], data: st.DataObject) -> None:
    xors = data.draw(st.lists(ids, min_size=len(roots), max_size=len(roots)))
    if not roots:
        return
    folded, joined = fold(np.array(roots, np.uint64), np.array(xors, np.uint64))
    assert total(folded.tolist(), joined.tolist()) == total(roots, xors)
    assert all(left != right for left, right in zip(folded[1:], folded[:-1], strict=True))


def total(roots: list[int], xors: list[int]) -> dict[int, int]:
    """Root → XOR of all its values."""
    totals: dict[int, int] = {}
    for root, value in zip(roots, xors, strict=True):
        totals[root] = totals.get(root, 0) ^ value
    return totals


@given(few_roots)
def test_runs_are_never_longer_and_lose_nothing(roots: list[int]) -> None:
    array = np.array(roots, np.uint64)
    values, counts = runs(array)
    again = values if counts is None else np.repeat(values, counts)
    assert again.tolist() == roots
    assert values.nbytes + (0 if counts is None else counts.nbytes) <= array.nbytes
