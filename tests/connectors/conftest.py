"""Bolts that a test calls by hand, as a worker does, and that are closed at its end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.kafka.producing.rig import Driven

Drive = Callable[..., Driven]


@pytest.fixture
def drive() -> Iterator[Drive]:
    """Prepare a bolt; on a clock, if one is given."""
    with ExitStack() as stack:

        def prepared(bolt: Any, clock: Any = None) -> Driven:
            driven = Driven(bolt, clock)
            stack.callback(bolt.cleanup)
            return driven

        yield prepared
