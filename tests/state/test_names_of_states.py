"""Where programs import states from."""

from __future__ import annotations

import pickle

import pytest

import sunshower
from sunshower import state, trident

NAMES = state.__all__


@pytest.mark.parametrize("name", NAMES)
def test_a_state_is_a_name_of_sunshower_and_of_its_state_package(name: str) -> None:
    assert getattr(sunshower, name) is getattr(state, name)
    assert name in sunshower.__all__


def test_a_pickled_state_is_read() -> None:
    sqlite_state = state.SqliteState("a.db")
    assert pickle.loads(pickle.dumps(sqlite_state)) == sqlite_state


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(AttributeError, match="NoState"):
        trident.NoState  # noqa: B018
