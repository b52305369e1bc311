"""Tests of the option `--sunshower-seeds` of the pytest plugin."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from sunshower.testing import pytest_plugin


def parser() -> pytest.Parser:
    parser = pytest.Parser(_ispytest=True)
    pytest_plugin.pytest_addoption(parser)
    return parser


def test_three_seeds_are_the_default() -> None:
    assert parser().parse([]).sunshower_seeds == 3
    assert parser().parse(["--sunshower-seeds", "100"]).sunshower_seeds == 100


@pytest.mark.parametrize("seeds", ["0", "-1", "many"])
def test_fewer_than_one_seed_is_refused(seeds: str) -> None:
    with pytest.raises(pytest.UsageError, match="is not a number of seeds; give 1 or more"):
        parser().parse([f"--sunshower-seeds={seeds}"])


def test_a_test_that_simulates_is_run_once_for_each_seed() -> None:
    names: list[str] = []
    test: Any = SimpleNamespace(
        fixturenames=["simulate", "_sunshower_seed"],
        config=SimpleNamespace(getoption={"--sunshower-seeds": 3}.get),
        parametrize=lambda _, seeds, ids: names.extend(map(ids, seeds)),
    )
    pytest_plugin.pytest_generate_tests(test)
    assert names == ["seed 0", "seed 1", "seed 2"]
