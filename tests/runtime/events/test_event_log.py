"""Tests of the encoding of event logs: only an entry that is cut off is not read back."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from sunshower import Cause
from sunshower.runtime.events.event_log import Entry, What, decode, encode

ids = arrays(np.uint64, st.integers(0, 40))
numbers = arrays(np.int64, st.integers(0, 40))
details = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 64) - 1) | st.floats() | st.text(),
    lambda inner: st.tuples(inner, inner),
)
times = st.floats(0, 1e7)
entries = st.builds(
    Entry,
    times,
    st.sampled_from(What),
    st.integers(0, 1 << 40),
    ids,
    ids | numbers,
    numbers,
    details,
)


def decoded(*data: bytes) -> list[Entry]:
    return list(decode(io.BytesIO(b"".join(data))))


def assert_same(read: Entry, written: Entry) -> None:
    for name in ("roots", "values", "attempts"):
        column, expected = getattr(read, name), getattr(written, name)
        assert column.tolist() == expected.tolist()
        assert column.dtype == expected.dtype or not len(expected)
    for name in ("at_s", "what", "task"):
        assert getattr(read, name) == getattr(written, name)
    assert repr(read.detail) == repr(written.detail), "by repr, because NaN is not equal to itself"


@given(st.lists(entries, max_size=5))
def test_entries_are_read_as_they_were_written(written: list[Entry]) -> None:
    decoded_entries = decoded(*map(encode, written))
    assert len(decoded_entries) == len(written)
    for entry, other in zip(decoded_entries, written, strict=True):
        assert_same(entry, other)


@given(entries, entries, st.data())
def test_an_entry_that_is_cut_off_is_left_out(whole: Entry, cut: Entry, data: Any) -> None:
    encoded = encode(cut)
    size = data.draw(st.integers(0, len(encoded) - 1))
    (entry,) = decoded(encode(whole), encoded[:size])
    assert_same(entry, whole)


def test_equal_attempts_are_stored_as_one_number() -> None:
    roots, attempts = np.zeros(10_000, np.uint64), np.ones(10_000, np.int64)
    size = len(encode(Entry(0.0, What.EMITTED, 1, roots, attempts=attempts)))
    assert size < roots.nbytes + 50


def test_columns_with_gaps_in_memory_are_read_as_they_were() -> None:
    rows = np.arange(8, dtype=np.uint64).reshape(4, 2)
    (entry,) = decoded(encode(Entry(0.0, What.ACKED, 1, rows[:, 0], rows[:, 1])))
    assert (entry.roots.tolist(), entry.values.tolist()) == ([0, 2, 4, 6], [1, 3, 5, 7])


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        (np.int64(7), 7),
        (1 << 70, str(1 << 70)),
        ({1, 2}, "{1, 2}"),
        ([1, [2]], (1, (2,))),
        ({"a": [1]}, {"a": (1,)}),
        ("\ud800", "\ud800"),
        (Cause.ACTOR_DIED, "actor died"),
    ],
)
def test_details_from_user_code_are_stored_as_exactly_as_possible(value: Any, stored: Any) -> None:
    (entry,) = decoded(encode(Entry(0.0, What.WROTE, 1, detail=("key", value))))
    assert entry.detail == ("key", stored)
