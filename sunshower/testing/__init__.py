"""The test kit: runs topologies in tests, with fed spouts, captured streams and planned crashes."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sunshower.testing.assertions import assert_counts, assert_lossless
    from sunshower.testing.feeder import Feeder, Shared
    from sunshower.testing.inline_run import InlineRun, run
    from sunshower.testing.simulated_run import SimulatedRun, simulate

__all__ = [
    "Feeder",
    "InlineRun",
    "Shared",
    "SimulatedRun",
    "assert_counts",
    "assert_lossless",
    "run",
    "simulate",
]

# Loaded on first use: pytest imports this package for its plugin wherever Sunshower is installed.
_WHERE = {
    "Feeder": "feeder",
    "InlineRun": "inline_run",
    "Shared": "feeder",
    "SimulatedRun": "simulated_run",
    "assert_counts": "assertions",
    "assert_lossless": "assertions",
    "run": "inline_run",
    "simulate": "simulated_run",
}


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        return getattr(import_module(f"sunshower.testing.{_WHERE[name]}"), name)
    raise AttributeError(f"module 'sunshower.testing' has no attribute {name!r}")
