"""A node is cut off from all others for five seconds: nothing is replaced, and work resumes."""

from __future__ import annotations

from benchmarks.network.fault_run import SHORT_S, Figures, run_with_fault


def run(seconds: float) -> Figures:
    """The network is cut for five seconds, not for `seconds`."""
    del seconds
    return run_with_fault("isolated", SHORT_S)
