"""A node is lost permanently, like a machine without power: other nodes take over its workers."""

from __future__ import annotations

from benchmarks.network.fault_run import Figures, run_with_fault


def run(seconds: float) -> Figures:
    """The load continues for `seconds` after the loss, and for some more."""
    return run_with_fault("lost", seconds)
