"""Frames, stores, keys, letters and logs have the bytes of the release before, and are read."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sunshower.errors import BadEmit
from tests.runtime.field_values import hashables, values
from tests.values.formats import FILE, FORMATS, SAMPLES, SEEDS, checksums, random_value, written
from tests.values.kinds import effects, enums, nested

BEFORE: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
NUMPY_1 = np.__version__.startswith("1.")


def is_written_otherwise(value: Any) -> bool:
    """Whether texts for people have another `repr` of it: NumPy 1 writes numpy.datetime64(…)."""
    return NUMPY_1 and isinstance(value, np.datetime64)


MARKS = ["()", "(int)", "(float)", "(set)", "(Decimal)", "(dict)", "<Color>", "dict", "str", "a"]
marked = st.dictionaries(st.sampled_from(MARKS), values | st.text(max_size=2), max_size=2)
READ = [name for name in FORMATS if name not in ("hash", "JSON")]


@pytest.mark.parametrize("name", FORMATS)
def test_values_are_written_as_the_release_before_wrote_them(name: str) -> None:
    form, before = FORMATS[name], BEFORE[name]
    for value, text in zip(SAMPLES, before["samples"], strict=True):
        if not (name in ("log", "letter") and is_written_otherwise(value)):
            assert written(form, value) == text, repr(value)
    pairs = enumerate(zip(checksums(form), before["random"], strict=True))
    changed = [seed for seed, (now, then) in pairs if now != then]
    assert not changed, [random_value(Random(seed)) for seed in changed[:3]]


@pytest.mark.parametrize("name", READ)
def test_what_the_release_before_wrote_is_read(name: str) -> None:
    form = FORMATS[name]
    for value, text in zip(SAMPLES, BEFORE[name]["samples"], strict=True):
        try:
            read_value = None if text.startswith("!") else form.read(text)
        except BadEmit as error:
            assert "only a text in place of" in str(error), repr(value)  # noqa: PT017
        else:
            assert (
                text.startswith("!")
                or name in ("log", "letter")
                or written(form, read_value) == text
            )
    for seed in range(SEEDS):
        check(name, random_value(Random(seed)))


@pytest.mark.parametrize("name", READ)
@given(value=nested | enums | values | hashables | marked)
def test_a_value_is_read_as_it_was_written_or_refused(name: str, value: Any) -> None:
    check(name, value)


def check(name: str, value: Any) -> None:
    """Check that a value is read as it was written, if it was, without code of its class."""
    form = FORMATS[name]
    text = written(form, value)
    if text.startswith("!"):
        return
    expected = form.same(value)
    effects.clear()
    try:
        read_value = form.read(text)
    except BadEmit as error:
        assert "only a text in place of" in str(error)  # noqa: PT017
    else:
        assert effects == []
        assert [form.same(read_value)] == [expected]  # a key that is NaN is one object
