"""Each setting of Config has a valid range, and other values are refused by its name."""

from __future__ import annotations

from dataclasses import fields
from math import inf, nan
from typing import Any

import pytest

from sunshower import Config, Topology
from sunshower.config import LIMITS, Internals
from sunshower.errors import ConfigError

DEFAULT = Config()


def test_each_setting_has_a_limit() -> None:
    assert [*LIMITS, "internals"] == [setting.name for setting in fields(Config)]


def test_internal_values_stay_when_settings_change() -> None:
    start = Config(internals=Internals(slice_s=0.5))
    assert Topology("t", config=start, workers=3).config.internals.slice_s == 0.5


@pytest.mark.parametrize("value", ["x", "auto", "none", [], (), nan, inf, -inf, -1, int, True, 1j])
def test_an_invalid_value_is_refused_by_the_name_of_its_setting(value: Any) -> None:
    for name, limit in LIMITS.items():
        if value not in limit.words.values():
            with pytest.raises(ConfigError, match=f"^topology 't': {name} is .*it must be "):
                Topology("t", **{name: value})


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"workers": None}, "workers is None; it must be a whole number of at least 1"),
        ({"workers": 2.5}, "workers is 2.5; it must be a whole number of at least 1"),
        ({"ackers": 1.5}, "ackers is 1.5; it must be a whole number of at least 0, or None"),
        ({"message_timeout_s": None}, "it must be a number of seconds above 0"),
        ({"spout_pending": 100.5}, "of at least 1 and at most 16,777,216, or 'auto'"),
        ({"trace_share": 2}, "it must be a number of at least 0 and at most 1"),
        ({"check_mutation": 1}, "check_mutation is 1; it must be True, or False"),
    ],
    ids=str,
)
def test_an_error_names_the_valid_values(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        Config(**wrong)
    assert message in str(refused.value)
