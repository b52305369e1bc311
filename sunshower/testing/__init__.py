"""The test kit: runs topologies in tests, with fed spouts, captured streams and planned crashes."""

from typing import TYPE_CHECKING

from sunshower.installed import exports

if TYPE_CHECKING:
    from sunshower.testing.observed_run import InlineRun as InlineRun
    from sunshower.testing.observed_run import SimulatedRun as SimulatedRun
    from sunshower.testing.observed_run import assert_counts as assert_counts
    from sunshower.testing.observed_run import assert_lossless as assert_lossless
    from sunshower.testing.observed_run import run as run
    from sunshower.testing.observed_run import simulate as simulate
    from sunshower.testing.prepared_graph import Feeder as Feeder
    from sunshower.testing.prepared_graph import Shared as Shared


if not TYPE_CHECKING:  # pytest imports this package for its plugin wherever Sunshower is installed
    __all__, __getattr__ = exports(__name__)
