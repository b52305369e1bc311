"""Two nodes are cut off only from each other: nothing is replaced, and work resumes afterwards."""

from __future__ import annotations

from benchmarks.network.fault_run import Figures, run_with_fault


def run(seconds: float) -> Figures:
    """The network is cut for `seconds`."""
    return run_with_fault("peers", seconds)
