"""How many seeds a test has: a few in `make test`, all in `make test-all`.

The number of examples of a property depends on the same marker: tests/conftest.py.
"""

from __future__ import annotations

import pytest

LEAST, MOST = 2, 5  # seeds in `make test`; between them it is a twentieth of all


def seeds(count: int) -> pytest.MarkDecorator:
    """The parameter `seed`: 0 … `count` - 1. What `make test` leaves out is marked `long`."""
    few = min(max(LEAST, count // 20), MOST)
    return pytest.mark.parametrize(
        "seed",
        [pytest.param(n, marks=pytest.mark.long) if n >= few else n for n in range(count)],
    )
