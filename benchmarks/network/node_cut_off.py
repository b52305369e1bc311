"""A node is cut off from all others until Ray declares it dead; then it joins again."""

from __future__ import annotations

from benchmarks.network.fault_run import LONG_S, Figures, run_with_fault


def run(seconds: float) -> Figures:
    """The network is cut for `seconds`, but at least for as long as Ray's checks take."""
    return run_with_fault("isolated", max(seconds, LONG_S))
