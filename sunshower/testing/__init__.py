"""The test kit: runs topologies in tests, with fed spouts, captured streams and planned crashes."""

from typing import TYPE_CHECKING

from sunshower.installed import lazy_exports

if TYPE_CHECKING:
    from sunshower.testing.observed_run import (
        InlineRun,
        SimulatedRun,
        assert_counts,
        assert_lossless,
        run,
        simulate,
    )
    from sunshower.testing.prepared_graph import Feeder, Shared

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
            "observed_run": "InlineRun SimulatedRun assert_counts assert_lossless run simulate",
            "prepared_graph": "Feeder Shared",
        },
    )
