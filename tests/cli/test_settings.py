"""Tests of `--set name=value` for the topology's Config."""

from __future__ import annotations

import pytest
import typer

from sunshower.cli.run import parse_settings


def test_settings_have_the_types_of_config() -> None:
    assert parse_settings(["spout_pending=1000", "message_timeout_s=2.5", "ackers=none"]) == {
        "spout_pending": 1000,
        "message_timeout_s": 2.5,
        "ackers": None,
    }
    assert parse_settings(
        ["spout_pending=auto", "message_timeout_max_s=60", "check_mutation=true"]
    ) == {"spout_pending": "auto", "message_timeout_max_s": 60.0, "check_mutation": True}


def test_of_two_settings_of_one_name_the_last_counts() -> None:
    assert parse_settings(["workers=1", "workers=3"]) == {"workers": 3}


@pytest.mark.parametrize(
    ("setting", "error_text"),
    [
        ("spout_pending", "is not NAME=VALUE"),
        ("speed=3", "with a NAME of these: message_timeout_s, message_timeout_max_s"),
        ("workers=two", "workers is a whole number, not 'two'"),
        ("workers=none", "workers is a whole number, not 'none'"),
        ("workers=1.5", "workers is a whole number"),
        ("ackers=some", "ackers is a whole number or none"),
        ("message_timeout_s=soon", "message_timeout_s is a number of seconds"),
        ("message_timeout_max_s=soon", "message_timeout_max_s is a number of seconds or none"),
        ("spout_pending=much", "spout_pending is a whole number or auto, not 'much'"),
        ("check_mutation=1", "check_mutation is true or false, not '1'"),
        ("workers=0", "it must be a whole number of at least 1"),
    ],
)
def test_a_wrong_setting_is_an_error_of_usage(setting: str, error_text: str) -> None:
    with pytest.raises(typer.BadParameter, match=error_text.replace("(", r"\(")):
        parse_settings([setting])
