"""The test kit: runs topologies in tests, with fed spouts, captured streams and planned crashes."""

from typing import TYPE_CHECKING

from sunshower.installed import lazy_exports

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

if not TYPE_CHECKING:  # pytest imports this package for its plugin wherever Sunshower is installed
    __getattr__ = lazy_exports(
        __name__,
        {
            "assertions": "assert_counts assert_lossless",
            "feeder": "Feeder Shared",
            "inline_run": "InlineRun run",
            "simulated_run": "SimulatedRun simulate",
        },
    )
