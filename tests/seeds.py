"""How many seeds a test has: a few in `make test`, all in `make test-all`.

The number of examples of a property depends on the same marker: tests/conftest.py.
"""

from __future__ import annotations

import pytest

LEAST, MOST = 1, 3  # seeds in `make test`; between them it is a fortieth of all
is_short = False  # whether the tests marked `long` are left out, so that nobody collects them


def seeds(count: int, first: int = 0) -> pytest.MarkDecorator:
    """The parameter `seed`: 0 … `count` - 1. What `make test` leaves out is marked `long`; it runs
    `first` and those after it."""
    few = min(max(LEAST, count // 40), MOST)
    chosen = range(first, first + few)
    return pytest.mark.parametrize(
        "seed",
        [
            seed if seed in chosen else pytest.param(seed, marks=pytest.mark.long)
            for seed in range(count)
            if seed in chosen or not is_short
        ],
    )
