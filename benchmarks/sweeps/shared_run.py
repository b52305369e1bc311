"""Runs that measure several figures, each of which is an entry of a comparison."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from benchmarks.measure import Sample


class SharedRun:
    """The first requested figure starts a run; the others are taken from the same run."""

    def __init__(self, measure: Callable[[], Mapping[str, Sample]]) -> None:
        self._measure = measure
        self._left: dict[str, Sample] = {}

    def take(self, figure: str) -> Sample:
        """A figure of the current run; of a new run if this figure was taken before."""
        if figure not in self._left:
            self._left = dict(self._measure())
        return self._left.pop(figure)
