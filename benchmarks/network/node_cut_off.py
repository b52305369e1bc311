"""A node is cut off from all others until Ray has declared it dead, and joins again."""

from __future__ import annotations

from benchmarks.network.fault_run import LONG_S, Figures, measured


def run(seconds: float) -> Figures:
    """The network is cut for so many seconds, but for as long as Ray's checks take at least."""
    return measured("isolated", max(seconds, LONG_S))
