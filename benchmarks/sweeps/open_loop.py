"""An open loop: due times by the clock, and latencies that begin at the due times.

A latency begins when a record is due, not when it is emitted. So if a source is late, its delay is
part of the latencies.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from math import ceil

GAP_S = 0.2  # between two steps, so that the records of the first are acked before the second
UNDONE = float("inf")  # the time of a record that was not acked


@dataclass(frozen=True)
class Step:
    """`count` records, at `rate` records a second."""

    rate: float
    count: int

    @property
    def seconds(self) -> float:
        return self.count / self.rate


def due_times(steps: Sequence[Step]) -> list[list[float]]:
    """The seconds from the start at which each record of each step is due."""
    times, begin_s = [], 0.0
    for step in steps:
        times.append([begin_s + number / step.rate for number in range(step.count)])
        begin_s += step.seconds + GAP_S
    return times


def latencies_ms(
    steps: Sequence[Step], done_s: Sequence[float], start_s: float
) -> list[list[float]]:
    """The milliseconds from due to done of each record, step by step.

    `done_s`: a time on the monotonic clock for each record, in the order of emission.
    """
    dues = due_times(steps)
    done = iter(done_s)
    return [[1000 * (next(done) - start_s - due_s) for due_s in step] for step in dues]


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest value that at least `percent` of the values do not exceed (nearest rank)."""
    if not values:
        raise ValueError("no values: there is no percentile")
    return sorted(values)[max(ceil(len(values) * percent / 100), 1) - 1]


def flat_due_times(steps: Sequence[Step]) -> list[float]:
    """The due times of all steps in one list."""
    return list(chain.from_iterable(due_times(steps)))
