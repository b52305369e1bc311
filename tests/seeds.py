"""How many seeds a test has: a tenth of them in `make test`, all in `make test-all`.

The number of examples of a property depends on the same marker: tests/conftest.py.
"""

from __future__ import annotations

import pytest

LEAST = 3  # of which `make test` runs all


def seeds(count: int) -> pytest.MarkDecorator:
    """The parameter `seed`: 0 … `count` - 1. From a tenth of them on they are marked `long`."""
    short = max(LEAST, count // 10)
    return pytest.mark.parametrize(
        "seed",
        [pytest.param(n, marks=pytest.mark.long) if n >= short else n for n in range(count)],
    )
