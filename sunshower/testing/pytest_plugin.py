"""The pytest plugin: the fixture `simulate`, which runs a test with several seeds."""

from __future__ import annotations

from argparse import ArgumentTypeError
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from sunshower.testing import SimulatedRun
    from sunshower.topologies.topology import Topology

_OPTION = "--sunshower-seeds"
_SEEDS = 3


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--sunshower-seeds`."""
    parser.getgroup("sunshower").addoption(
        _OPTION,
        type=_at_least_one,
        default=_SEEDS,
        metavar="N",
        help=f"run each test that uses the fixture `simulate` with N seeds (default: {_SEEDS})",
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give each test that simulates its seeds."""
    if "_sunshower_seed" in metafunc.fixturenames:
        seeds = range(metafunc.config.getoption(_OPTION))
        metafunc.parametrize("_sunshower_seed", seeds, ids=lambda seed: f"seed {seed}")


@pytest.fixture
def simulate(_sunshower_seed: int) -> Iterator[Callable[..., SimulatedRun]]:
    """`sunshower.testing.simulate` with the seed of this test; all runs are closed after it."""
    from sunshower.testing import simulate as start

    with ExitStack() as runs:

        def started(
            topology: Topology, replaced: Mapping[str, Any] | None = None, **how: Any
        ) -> SimulatedRun:
            how.setdefault("seed", _sunshower_seed)
            return runs.enter_context(start(topology, replaced, **how))

        yield started


def _at_least_one(text: str) -> int:
    """The number of the option; pytest makes a UsageError of what this raises."""
    if not text.isdecimal() or int(text) < 1:
        raise ArgumentTypeError(f"{text!r} is not a number of seeds; give 1 or more")
    return int(text)
