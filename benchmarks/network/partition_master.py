"""A node is cut off from the master's: its workers are replaced, and the old ones are refused."""

from __future__ import annotations

from benchmarks.network.fault_run import Figures, run_with_fault


def run(seconds: float) -> Figures:
    """The network is cut for `seconds`."""
    return run_with_fault("master", seconds)
