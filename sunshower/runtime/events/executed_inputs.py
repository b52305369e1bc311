"""Counts the inputs that a bolt task has executed, by input stream."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sunshower.runtime.events.metrics import InputStream
from sunshower.runtime.plan import PlannedStream
from sunshower.topologies.operators.windows.watermarks import WATERMARKS


class ExecutedInputs:
    """The counters of one task. Watermarks are not counted: users count records."""

    def __init__(self, streams: Sequence[PlannedStream]) -> None:
        """`streams`: of the plan."""
        self.total = 0
        self._streams = streams
        self._watermarks = {one.index for one in streams if one.spec.id == WATERMARKS}
        self._counts: dict[int, int] = {}  # by the stream's index in the plan

    def add(self, stream: int, inputs: int) -> None:
        """Count inputs of a stream, given by its index in the plan."""
        if stream not in self._watermarks:
            self.total += inputs
            self._counts[stream] = self._counts.get(stream, 0) + inputs

    def by_stream(self) -> Mapping[InputStream, int]:
        """The inputs of each stream that had any."""
        found = ((self._streams[index], count) for index, count in self._counts.items())
        return {InputStream(one.component, one.spec.id): count for one, count in found}
