"""What `deduplicate` stores is restored exactly, and decoding it runs no code."""

from __future__ import annotations

import datetime as dt
import os
import pickle
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sunshower import Bolt, Context
from sunshower.errors import StateMismatch, Unserialisable, VersionMismatch
from sunshower.kafka.exactly_once.deduplicate import Deduplicated, deduplicate
from sunshower.kafka.exactly_once.plain_values import decode, encode
from sunshower.state.memory_tree import MemoryForest, MemoryTree

NODE = "/deduplicated/shop/count/0"
SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.binary()
) | st.text(st.characters())  # with lone surrogates
KEYS = st.recursive(SCALARS, lambda one: st.lists(one, max_size=3).map(tuple), max_leaves=5)
VALUES = st.recursive(
    SCALARS | st.frozensets(KEYS, max_size=3) | st.sets(KEYS, max_size=3),
    lambda one: (
        st.lists(one, max_size=4)
        | st.lists(one, max_size=4).map(tuple)
        | st.dictionaries(KEYS, one, max_size=4)
    ),
    max_leaves=12,
)


def kinds(value: Any) -> Any:
    """The value with the type of each of its parts."""
    if isinstance(value, dict):
        return type(value), [(kinds(key), kinds(one)) for key, one in value.items()]
    if isinstance(value, list | tuple):
        return type(value), [kinds(one) for one in value]
    return type(value), value


@given(VALUES)
def test_plain_values_are_restored_exactly(value: Any) -> None:
    found = decode(encode(value))
    assert kinds(found) == kinds(value)


@pytest.mark.parametrize("value", [Counter(a=1), [Counter()], 1 << 200, -(1 << 64), {(): ((),)}])
def test_some_values_that_messagepack_lacks(value: Any) -> None:
    assert kinds(decode(encode(value))) == kinds(value)


class Pair(NamedTuple):
    one: int
    other: int


deep: Any = []
for _ in range(5_000):
    deep = [deep]


@pytest.mark.parametrize("value", [object(), Pair(1, 2), dt.date(2026, 1, 1), deep])
def test_other_values_are_refused_by_their_type(value: object) -> None:
    with pytest.raises(Unserialisable, match="cannot be stored"):
        encode([value])


class Count(Bolt[int, None]):
    total: Any = 0

    def process(self, record: int) -> None:
        self.total += record

    def snapshot(self) -> Any:
        return self.total

    def restore(self, state: Any) -> None:
        self.total = state


class Evil:
    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> object:
        return os.mkdir, (str(self._path),)


def opened(forest: MemoryForest, bolt: Count | None = None) -> Deduplicated:
    found = deduplicate(lambda record: record, bolt or Count(), store=lambda: MemoryTree(forest))
    found.prepare(Context("shop", "count", 1, 0, 1))
    return found


def test_a_pickle_in_the_store_is_refused_and_runs_no_code(tmp_path: Path) -> None:
    forest, proof = MemoryForest(), tmp_path / "code was run"
    MemoryTree(forest).create(NODE, pickle.dumps(([], Evil(proof))))
    with pytest.raises(StateMismatch, match=rf"{NODE} does not hold .* Remove the node"):
        opened(forest)
    assert not proof.exists()


@pytest.mark.parametrize(
    "value", [b"", b"text", encode(7), encode([1, 5, 0]), encode([1, [[]], 0])]
)
def test_any_other_value_in_the_store_is_refused(value: bytes) -> None:
    forest = MemoryForest()
    MemoryTree(forest).create(NODE, value)
    with pytest.raises(StateMismatch, match=NODE):
        opened(forest)


@pytest.mark.parametrize("value", [[2, [], 0], [2, [], 0, "more"], [2, {}]])
def test_a_value_of_a_later_release_is_refused_as_such_whatever_its_form(value: Any) -> None:
    forest = MemoryForest()
    MemoryTree(forest).create(NODE, encode(value))
    with pytest.raises(VersionMismatch, match=f"{NODE} has version 2, .* uses version 1: "):
        opened(forest)


def test_results_that_are_not_plain_are_refused_at_the_start_and_nothing_is_stored() -> None:
    forest, bolt = MemoryForest(), Count()
    bolt.total = Pair(0, 0)
    with pytest.raises(Unserialisable, match=r"test_plain_values\.Pair"):
        opened(forest, bolt)
    assert MemoryTree(forest).get(NODE) is None


def test_a_record_can_be_the_key() -> None:
    class Sum(Count):
        def process(self, record: Any) -> None:
            self.total += record.other

    forest = MemoryForest()
    for _ in range(2):  # the second time after a restart
        bolt = opened(forest, Sum())
        bolt.process(Pair(1, 2))
        bolt.flush()
        assert bolt.bolt.total == 2


def test_tuples_within_tuples_have_a_limit_and_do_not_crash_the_process() -> None:
    deep: Any = ()
    within: Any = ()
    data = encode(())
    for _ in range(63):
        within = (within,)
    assert decode(encode(within)) == within
    for _ in range(3_000):
        deep = (deep,)
        data = encode(msgpack.ExtType(0, b"\x91" + data))
    with pytest.raises(Unserialisable, match="64 levels"):
        encode(deep)
    with pytest.raises(ValueError, match="64 levels"):
        decode(data)
