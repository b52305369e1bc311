"""A topology to declare wrongly, and how to tell that it was refused well."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import sunshower
from sunshower import DirectStream
from sunshower.errors import SunshowerError
from tests.topologies.examples import Word, words

Topology: Any = sunshower.Topology  # what follows is wrong on purpose, also for a type checker


def refused(kind: type[SunshowerError], declare: Callable[[], object], *says: str) -> None:
    """`declare` raises exactly `kind`, in one paragraph that contains all of `says`."""
    with pytest.raises(kind) as caught:
        declare()
    message = str(caught.value)
    assert type(caught.value) is kind
    assert "\n" not in message
    assert not [text for text in says if text not in message], message


@pytest.fixture
def topology() -> Any:
    return Topology("clicks")


@pytest.fixture
def lines(topology: Any) -> Any:
    return topology.spout("words", words(), streams={"late": Word, "to": DirectStream(Word)})
