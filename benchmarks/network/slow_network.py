"""A node whose packets take 20 to 60 ms, and of which one in a hundred is lost, is not replaced."""

from __future__ import annotations

from benchmarks.network.fault_run import Figures, measured


def run(seconds: float) -> Figures:
    """The network is bad for so many seconds."""
    return measured("slow", seconds)
