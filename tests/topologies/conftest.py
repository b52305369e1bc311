"""Fixtures for the tests of wrong declarations, and the assertion `refused`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import sunshower
from sunshower import DirectStream
from sunshower.errors import SunshowerError
from tests.topologies.examples import Word, words

Topology: Any = sunshower.Topology  # not typed: the declarations are wrong, also for a type checker


def refused(kind: type[SunshowerError], declare: Callable[[], object], *texts: str) -> None:
    """Assert that `declare` raises exactly `kind`, in one paragraph that contains all `texts`."""
    with pytest.raises(kind) as caught:
        declare()
    message = str(caught.value)
    assert type(caught.value) is kind
    assert "\n" not in message
    assert not [text for text in texts if text not in message], message


@pytest.fixture
def topology() -> Any:
    return Topology("clicks")


@pytest.fixture
def lines(topology: Any) -> Any:
    return topology.spout("words", words(), streams={"late": Word, "to": DirectStream(Word)})
