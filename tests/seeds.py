"""How many seeds a test has: a few in `make test`, more in `make test-all`, `SEEDS=1000` for all.

The number of examples of a property depends on the marker `long`: tests/conftest.py.
"""

from __future__ import annotations

import pytest

LEAST, MOST = 1, 3  # seeds in `make test`; between them it is a twentieth of all
most = MOST  # of the long seeds; conftest.py sets it to the option --sunshower-seeds


def seeds(count: int, first: int = 0, kinds: int = 1) -> pytest.MarkDecorator:
    """The parameter `seed`: 0 … `count` - 1, at most `most`. What `make test` leaves out is marked
    `long`; it runs `first` and those after it, of each of the `kinds` among which a test chooses by
    its seed."""
    few = max(min(max(LEAST, count // 20), MOST), kinds)
    chosen = range(first, first + few)
    return pytest.mark.parametrize(
        "seed",
        [
            seed if seed in chosen else pytest.param(seed, marks=pytest.mark.long)
            for seed in range(count)
            if seed in chosen or seed < most
        ],
    )
