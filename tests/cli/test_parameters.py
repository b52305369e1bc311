"""Tests of `--set` and `--sweep`: the types of the values."""

from __future__ import annotations

from typing import Any

import pytest

from sunshower.cli.experiment import value_of


@pytest.mark.parametrize(
    ("default", "text", "value"),
    [
        (1, "3", 3),
        (1, "2.5", 2.5),  # a number is a number
        (0.5, "3", 3.0),
        ("x", "3", "3"),
        ("x", "true", "true"),
        (False, "true", True),
        (True, "FALSE", False),
        (None, "3", 3),
        (None, "auto", "auto"),
        (5, "none", None),
        ([1], "[2,3]", [2, 3]),
    ],
)
def test_a_value_has_the_type_of_its_default(default: Any, text: str, value: Any) -> None:
    parsed = value_of("name", text, default, "--set")
    assert (parsed, type(parsed)) == (value, type(value))
