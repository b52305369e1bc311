"""Two nodes are cut off from each other only: nothing is replaced, and work resumes afterwards."""

from __future__ import annotations

from benchmarks.network.fault_run import Figures, measured


def run(seconds: float) -> Figures:
    """The network is cut for so many seconds."""
    return measured("peers", seconds)
