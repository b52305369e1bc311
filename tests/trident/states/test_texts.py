"""The JSON texts of the values of states: round trips, the documented format, corrupt texts."""

from __future__ import annotations

import json
from collections import Counter, deque
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sunshower.errors import Unserialisable
from sunshower.json_values import (
    keys_of,
    text_of,
    text_of_key,
    texts_of_keys,
    values_of,
)
from sunshower.records import key_of
from tests.runtime.field_values import dated, exactly

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


@given(st.lists(values, max_size=3))
def test_values_are_read_back_equal_and_of_their_types(several: list[Any]) -> None:
    found = values_of([text_of(one) for one in several])
    assert exactly(found) == exactly(several)


AUTUMN = datetime(2026, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"), fold=1)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (AUTUMN.replace(tzinfo=None, fold=0), '{"(datetime)":"2026-10-25T02:30:00"}'),
        (datetime(2026, 1, 2, tzinfo=UTC), '{"(datetime)":"2026-01-02T00:00:00+00:00"}'),
        (AUTUMN, '{"(datetime)":"2026-10-25T02:30:00+01:00[Europe/Berlin]#1"}'),
        (date(2026, 1, 2), '{"(date)":"2026-01-02"}'),
        (time(3, 4), '{"(time)":"03:04:00"}'),
        (timedelta(-1, 3600), '{"(timedelta)":"P-1DT3600.000000S"}'),
        (Decimal("1.50"), '{"(Decimal)":"1.50"}'),
        (UUID(int=1), '{"(UUID)":"00000000-0000-0000-0000-000000000001"}'),
        ({2, 1}, '{"(set)":[1,2]}'),
        ((1, frozenset()), '{"()":[1,{"(frozenset)":[]}]}'),
        (b"\xff", '{"(bytes)":"/w=="}'),
    ],
)
def test_any_tool_can_read_what_is_stored(value: Any, text: str) -> None:
    assert text_of(value) == text
    assert exactly(values_of([text])) == exactly([value])


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
    ("value", "text"),
    [
        ({"(set)": [1]}, '{"()":{"dict":[["(set)",[1]]]}}'),
        ({"()": 1}, '{"()":{"dict":[["()",1]]}}'),
        (
            {1: "a", (2, b"x"): None},
            '{"()":{"dict":[[1,"a"],[{"()":[2,{"(bytes)":"eA=="}]},null]]}}',
        ),
        (Counter("aab"), '{"()":{"Counter":[["a",2],["b",1]]}}'),
        ({}, "{}"),
        ("a\ud800", '{"()":{"str":"Ye2ggA=="}}'),
        ("\ud83d\ude00", '{"()":{"str":"7aC97biA"}}'),
        ({"\ud800": "b"}, '{"()":{"dict":[[{"()":{"str":"7aCA"}},"b"]]}}'),
    ],
)
def test_what_no_mark_was_for_is_stored_as_no_earlier_release_did(value: Any, text: str) -> None:
    assert text_of(value) == text
    assert exactly(values_of([text])) == exactly([value])


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


@given(st.lists(keys, min_size=1, max_size=3))
def test_keys_are_read_back_and_equal_keys_have_one_text(several: list[Any]) -> None:
    found = texts_of_keys(several)
    assert [key_of(one) for one in several] == keys_of(found)
    for text, key in zip(found, several, strict=True):
        text.encode()
        assert text_of_key(key) == text


@pytest.mark.parametrize(
    "value", [np.int64(7), np.float32(0.5), np.bool_(True), np.str_("a"), {"n": np.uint8(3)}]
)
def test_numbers_of_numpy_are_stored_as_those_of_python(value: Any) -> None:
    plain = {"n": 3} if isinstance(value, dict) else value.item()
    assert exactly(values_of([text_of(value)])) == exactly([plain])


@pytest.mark.parametrize("value", [object(), np.datetime64(1, "ns"), {object(): 1}, deque([1])])
def test_what_cannot_be_restored_is_refused(value: Any) -> None:
    with pytest.raises(Unserialisable, match="is not for JSON"):
        text_of(value)
