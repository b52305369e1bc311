"""A node is lost for good, as a machine without power: its workers continue on other nodes."""

from __future__ import annotations

from benchmarks.network.fault_run import Figures, measured


def run(seconds: float) -> Figures:
    """The load goes on for so many seconds after the loss, and some more."""
    return measured("lost", seconds)
