"""The JSON texts of the values of states: round trips, the documented format, corrupt texts."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sunshower.errors import Unserialisable
from sunshower.topologies.operators.keyed.stored_texts import text_of, values_of
from tests.runtime.field_values import dated, exactly

texts = st.text(max_size=5)
leaves = st.none() | st.booleans() | st.integers() | st.floats() | texts | st.binary(max_size=5)
leaves = leaves | dated | st.decimals()
values = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.frozensets(dated | texts | st.tuples(dated, texts), max_size=3)
        | st.sets(st.integers() | st.none(), max_size=3)
        | st.dictionaries(texts, inner, max_size=3)
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


def test_names_that_look_like_a_type_are_refused() -> None:
    assert values_of([text_of({"(other)": 1})]) == [{"(other)": 1}]
    with pytest.raises(Unserialisable, match="texts, not the mark of a type"):
        text_of({"(set)": [1]})
