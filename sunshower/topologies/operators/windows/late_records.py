"""The late records of a window or a join, counted for `status`: how many, and how late."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from math import inf

from sunshower.topologies.operators.windows.event_times import Time, as_float

_LOG = logging.getLogger("sunshower")


@dataclass
class LateRecords:
    """What one task knows of its late records, in its present process."""

    count: int = 0
    by: float = 0.0  # how long after the end of its window the worst came, in event time
    in_time: bool = False  # whether any record came in time
    had_ended: float = -inf  # up to where windows had ended when the task read its state
    ahead: int = 0  # of a source of batches: rows that were too far ahead of the clock
    _is_said: bool = False

    def loaded(self, ended: Time) -> None:
        """Note up to where windows have ended, as the state says."""
        if not (self.count or self.in_time):
            self.had_ended = as_float(ended)

    def add(self, count: int, by: Time) -> None:
        """Note late records; `by`: how long after the end of their window they came."""
        self.count += count
        self.by = max(self.by, as_float(by))

    def say_if_all(self, name: str) -> None:
        """Log at the end of all sources that everything was late, because of what the state says
        of earlier windows. `name`: of the window."""
        if self.count and not self.in_time and self.had_ended > -inf and not self._is_said:
            self._is_said = True
            _LOG.warning("%s: %s", name, all_late(self.count, self.had_ended))


def sum_of(parts: Iterable[LateRecords]) -> LateRecords:
    """What several windows know together."""
    parts = list(parts)
    return LateRecords(
        sum(part.count for part in parts),
        max((part.by for part in parts), default=0.0),
        any(part.in_time for part in parts),
        max((part.had_ended for part in parts), default=-inf),
        sum(part.ahead for part in parts),
    )


def all_late(count: int, had_ended: float) -> str:
    """Say that all records of a window were late, and what helps."""
    return (
        f"everything was late: the state says that windows up to {had_ended:,.6f} had ended before "
        f"this run, and all records ({count:,}) belong to these. If the same records are read "
        "again to compute their windows again, give the window a new state or name="
    )
