"""Ray's head and all processes on it are killed; it restarts with its tables from a Redis."""

from __future__ import annotations

from benchmarks.network.fault_run import HEAD_AWAY_S, Figures, run_with_fault


def run(seconds: float) -> Figures:
    """The head is unavailable for ten seconds, not for `seconds`, and until it has restarted."""
    del seconds
    return run_with_fault("head", HEAD_AWAY_S)
