"""The JSON texts of keys of states, and corrupt texts of values, which are refused."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sunshower.errors import Unserialisable
from sunshower.json_values import (
    keys_of,
    letter_value,
    text_of,
    text_of_key,
    texts_of,
    texts_of_keys,
    value_of_letter,
    values_of,
)
from sunshower.records import key_of
from tests.runtime.field_values import dated

texts = st.text(st.characters() | st.sampled_from("\x00\ud800\udfff\ud83d\ude00"), max_size=5)
leaves = st.none() | st.booleans() | st.integers() | st.floats() | texts | st.binary(max_size=5)
leaves = leaves | dated | st.decimals()
numbers = st.integers() | st.booleans() | st.floats(allow_nan=False)
scalars = numbers | st.none() | texts | st.binary(max_size=5) | dated
scalars = scalars | st.decimals(allow_nan=False)
keys = scalars | st.tuples(scalars, scalars) | st.frozensets(scalars, max_size=2)
values = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.frozensets(dated | texts | st.tuples(dated, texts), max_size=3)
        | st.sets(st.integers() | st.none(), max_size=3)
        | st.dictionaries(texts, inner, max_size=3)
        | st.dictionaries(keys, inner, max_size=3)
        | st.dictionaries(keys, st.integers(), max_size=3).map(Counter)
    ),
    max_leaves=6,
)


@pytest.mark.parametrize(
    "mark", ["(datetime)", "(date)", "(time)", "(timedelta)", "(Decimal)", "(UUID)"]
)
@pytest.mark.parametrize("content", ["x\x00", 7, None, [1], {}, "", "9" * 5_000 + "D"])
def test_corrupt_texts_are_refused(mark: str, content: Any) -> None:
    with pytest.raises(ValueError, match=mark[1:-1]):
        values_of([json.dumps({mark: content})])


@pytest.mark.parametrize("text", ['{"(set)":[[]]}', '{"(set)":7}', '{"()":null}', '{"(bytes)":1}'])
def test_corrupt_containers_are_refused(text: str) -> None:
    with pytest.raises(TypeError):
        values_of([text])


@pytest.mark.parametrize(
    "text", ['{"(other)":1}', '{"dict":[[1,2]]}', '{"str":"YQ=="}', '{"{}":[]}']
)
def test_values_of_earlier_releases_are_read_as_before(text: str) -> None:
    assert values_of([text]) == [json.loads(text)]
    assert text_of(json.loads(text)) == text


@pytest.mark.parametrize("content", [{"dict": 1}, {"dict": [[[], 1]]}, {"str": 1}, {"other": []}])
def test_corrupt_marks_are_refused(content: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        values_of([json.dumps({"()": content})])


@pytest.mark.parametrize(
    "number",
    [10**5_000, -(10**5_000), (1 << 64) - 1, 1 << 64],
    ids=["long", "negative", "64", "65"],
)
def test_a_dead_letter_keeps_integers_that_json_of_python_refuses(number: int) -> None:
    as_json = json.loads(json.dumps(letter_value({"n": [number]})))
    assert value_of_letter(as_json) == {"n": [number]}


def test_bytes_of_numpy_are_stored_as_those_of_python() -> None:
    assert values_of([text_of(np.bytes_(b"x"))]) == [b"x"]


@given(st.lists(keys, min_size=1, max_size=3))
def test_keys_are_read_back_and_equal_keys_have_one_text(several: list[Any]) -> None:
    key_texts = texts_of_keys(several)
    assert [key_of(value) for value in several] == keys_of(key_texts)
    for text, key in zip(key_texts, several, strict=True):
        text.encode()
        assert text_of_key(key) == text


def outcome(write: Callable[[list[Any]], list[str]], several: list[Any]) -> list[str] | str:
    try:
        return write(several)
    except Unserialisable as error:
        return str(error)


lists = st.recursive(leaves, lambda inner: st.lists(inner, max_size=3), max_leaves=12)
no_json = st.just(10**5_000) | st.just([10**5_000]) | st.just(object())


@given(st.lists(values | lists, max_size=4), st.lists(no_json, max_size=1))
def test_the_texts_of_many_values_are_those_of_each(several: list[Any], last: list[Any]) -> None:
    several += last
    assert outcome(texts_of, several) == outcome(lambda each: [*map(text_of, each)], several)
