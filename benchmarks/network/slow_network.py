"""The packets of a node take 20 to 60 ms, and 1 % are lost: no worker is replaced."""

from __future__ import annotations

from benchmarks.network.fault_run import Figures, run_with_fault


def run(seconds: float) -> Figures:
    """The network is bad for `seconds`."""
    return run_with_fault("slow", seconds)
