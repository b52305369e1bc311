"""Ray's head, with all that runs on it, is killed, and started again with its tables from Redis."""

from __future__ import annotations

from benchmarks.network.fault_run import HEAD_AWAY_S, Figures, measured


def run(seconds: float) -> Figures:
    """The head is away for ten seconds, whatever is given, and for as long as it takes to start."""
    del seconds
    return measured("head", HEAD_AWAY_S)
