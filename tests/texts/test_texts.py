"""Any text and any value can be encoded within a limit, and printed."""

from __future__ import annotations

import json
import math
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sunshower.texts import (
    carried,
    clip,
    describe,
    describe_error,
    json_of,
    message_of,
    printable,
    size_of,
    utf8,
)
from tests.texts.hostile import ESCAPES, SilentError, doubled, odd_values, texts, values

limits = st.integers(0, 3000)


@given(texts, st.integers(0, 200), st.integers(0, 50))
def test_clipped_text_can_be_encoded_and_has_at_most_its_bytes(
    text: str, limit: int, times: int
) -> None:
    clipped = clip(text * times, limit)
    assert len(clipped.encode()) <= limit
    if len(utf8(text * times)) <= limit:
        assert clipped == utf8(text * times).decode()


def test_a_clipped_text_keeps_its_beginning_and_end() -> None:
    clipped = clip("begin" + "x" * 10_000 + "end", 100)
    assert clipped.startswith("beginxx")
    assert clipped.endswith("xxend")
    assert " … (clipped to 100 bytes) … " in clipped
    assert len(clipped.encode()) == 100
    assert clip("short", 100) == "short"


@given(values, limits)
def test_any_value_can_be_described_within_any_limit(value: Any, limit: int) -> None:
    assert len(describe(value, limit).encode()) <= limit
    assert len(clip(value, limit).encode()) <= limit


@given(values, limits)
def test_a_carried_value_can_be_encoded_within_its_limit(value: Any, limit: int) -> None:
    plain = carried(value, limit)
    json.dumps(plain, allow_nan=False, ensure_ascii=False).encode("utf-8", "backslashreplace")
    packed = msgpack.packb(plain, unicode_errors="surrogatepass")
    assert len(packed) <= size_of(plain)
    if type(plain) is str:
        assert len(plain.encode("utf-8", "surrogatepass")) <= limit
    else:
        assert plain is value
        assert len(packed) <= limit


@given(st.recursive(texts | st.integers(-(2**63), 2**64 - 1), st.lists))
def test_plain_value_is_carried_unchanged(value: Any) -> None:
    assert carried(value, 1 << 24) is value


@given(st.dictionaries(texts, values, max_size=3))
def test_json_of_any_values_is_json(fields: dict[str, Any]) -> None:
    for ascii_only in (True, False):
        text = utf8(json_of(fields, ensure_ascii=ascii_only))
        parsed = json.loads(text, parse_constant=pytest.fail)  # NaN is not JSON
        assert len(parsed) == len(fields)


def test_an_odd_value_does_not_change_other_values_in_json() -> None:
    fields = {"list": ["x" * 100_000], "odd": {"nan": math.nan, "one": 1, "inner": {(1, 2): 3}}}
    odd = {"nan": "nan", "one": 1, "inner": {"(1, 2)": 3}}
    assert json.loads(json_of(fields)) == {"list": ["x" * 100_000], "odd": odd}


def test_an_endless_value_is_described_at_once() -> None:
    for value in (doubled(60), *odd_values()):
        assert len(describe(value, 1000)) <= 1000
    assert describe(10**5000, 100).startswith("0x")


def test_repr_of_usual_values_is_as_python_writes_it() -> None:
    for value in ([1, ("a",), (), {}, {"k": [b"x", None]}, {1}, 2.5], "text", b"bytes", True):
        assert describe(value) == repr(value)


@given(texts)
def test_a_printable_text_contains_no_control_characters(text: str) -> None:
    shown = printable(text)
    assert not any(ord(c) < 32 or 127 <= ord(c) < 160 for c in shown if c not in "\t\n")
    assert not {"\u202e", "\u2028", "\ud800"} & {*shown}
    shown.encode()


def test_a_printable_text_shows_escaped_control_characters() -> None:
    assert printable(ESCAPES) == ("\\x1b]0;title\\x07\\x1b[2J\\x1b[31mAll is well\\r\\x9b1m\\u202e")
    assert printable("two\tcells\nnaïve 東京 👍") == "two\tcells\nnaïve 東京 👍"


@pytest.mark.parametrize("error", [SilentError(), ValueError("\ud800" * 10_000), OSError()])
def test_any_exception_can_be_described(error: Exception) -> None:
    assert isinstance(message_of(error), str)
    described = describe_error(error)
    assert described.startswith(f"{type(error).__name__}: ")
    assert len(described.encode()) <= 4096
