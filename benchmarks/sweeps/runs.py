"""A run that measures several figures, each of which is an entry of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from benchmarks.measure import Sample


class Runs:
    """The first figure that is asked for begins a run; the others are read from it."""

    def __init__(self, measure: Callable[[], Mapping[str, Sample]]) -> None:
        self._measure = measure
        self._left: dict[str, Sample] = {}

    def take(self, figure: str) -> Sample:
        """A figure of the run, which is a new one if this figure was taken before."""
        if figure not in self._left:
            self._left = dict(self._measure())
        return self._left.pop(figure)
