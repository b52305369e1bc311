"""Tests of `--set` and `--sweep`: types of the values, and every combination."""

from __future__ import annotations

from typing import Any

import pytest

from sunshower.cli.experiment import value_of, variants

DEFAULTS: dict[str, Any] = {"a": 1, "b": 0.5, "word": "x", "on": False, "any": None}


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
    found = value_of("name", text, default, "--set")
    assert (found, type(found)) == (value, type(value))


def chosen(**options: Any) -> list[tuple[dict[str, Any], int]]:
    usual: dict[str, Any] = {"set_": (), "sweeps": (), "seed": 0, "repeat": 1}
    sweep = options.pop("sweep", {})
    found, _ = variants(DEFAULTS, sweep, **{**usual, **options})
    changed = [
        {name: value for name, value in one.parameters.items() if value != DEFAULTS[name]}
        for one in found
    ]
    return [(what, one.seed) for what, one in zip(changed, found, strict=True)]


def test_without_options_there_is_one_run_with_the_defaults() -> None:
    assert chosen(seed=4) == [({}, 4)]


def test_a_sweep_is_every_combination_with_every_seed() -> None:
    found = chosen(sweeps=["a=2,3", "word=y, z"], repeat=2)
    assert len(found) == 8
    assert found[:3] == [
        ({"a": 2, "word": "y"}, 0),
        ({"a": 2, "word": "y"}, 1),
        ({"a": 2, "word": "z"}, 0),
    ]


def test_an_option_replaces_the_sweep_in_the_file() -> None:
    sweep = {"a": [7, 8]}
    assert [what["a"] for what, _ in chosen(sweep=sweep)] == [7, 8]
    assert chosen(sweep=sweep, sweeps=["a=2"]) == [({"a": 2}, 0)]
    assert chosen(sweep=sweep, set_=["a=9"]) == [({"a": 9}, 0)]
