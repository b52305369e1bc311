"""How many seeds a test has: few in `make test`, more in `make test-all`, all with `SEEDS=1000`.

The number of examples of a property depends on the marker `long`: tests/conftest.py.
"""

from __future__ import annotations

import pytest

LEAST, MOST = 1, 2  # `make test` runs a twentieth of the seeds, within these bounds
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


def seed_ranges(count: int, few: int, size: int) -> pytest.MarkDecorator:
    """The parameter `seeds`: ranges of `size` seeds, for programs that are short.

    `make test` runs the first two ranges, and `make test-all` the first `few` seeds; the others, up
    to `count`, are as in `seeds`.
    """
    return pytest.mark.parametrize(
        "seeds",
        [
            pytest.param(
                range(first, min(first + size, count)),
                marks=[pytest.mark.long] if first >= min(few, 2 * size) else [],
                id=str(first),
            )
            for first in range(0, count, size)
            if first < few or first < collected_max
        ],
    )
