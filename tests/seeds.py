"""How many seeds a test has: few in `make test`, more in `make test-all`, all with `SEEDS=1000`.

The number of examples of a property depends on the marker `long`: tests/conftest.py.
"""

from __future__ import annotations

import pytest

LEAST, MOST = 1, 3  # `make test` runs a twentieth of the seeds, within these bounds
collected_max = MOST  # of the `long` seeds; conftest.py sets it to --sunshower-seeds


def seeds(count: int, first: int = 0, kinds: int = 1) -> pytest.MarkDecorator:
    """The parameter `seed`, from 0 … `count` - 1.

    `make test` runs `first` and some seeds after it, at least one for each of the `kinds` among
    which a test chooses by its seed. All others are marked `long`; of these, the seeds below
    `collected_max` are collected.
    """
    few = max(min(max(LEAST, count // 20), MOST), kinds)
    chosen = range(first, first + few)
    return pytest.mark.parametrize(
        "seed",
        [
            seed if seed in chosen else pytest.param(seed, marks=pytest.mark.long)
            for seed in range(count)
            if seed in chosen or seed < collected_max
        ],
    )
