"""The fixture `drive`: a bolt that a test calls as a worker does, and that is closed at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.kafka.producing.rig import BoltRig

Drive = Callable[..., BoltRig]


@pytest.fixture
def drive() -> Iterator[Drive]:
    """Call it with a bolt, and a clock if needed; it prepares the bolt."""
    with ExitStack() as stack:

        def prepared(bolt: Any, clock: Any = None) -> BoltRig:
            driven = BoltRig(bolt, clock)
            stack.callback(bolt.cleanup)
            return driven

        yield prepared
