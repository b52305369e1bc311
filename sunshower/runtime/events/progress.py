"""Whether a topology keeps up: how far it is behind, what limits it, and its last hour."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from math import nan
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class LimitKind(StrEnum):
    """What keeps a topology from processing more."""

    STOPPED = "stopped"  # its state: nothing is emitted
    PROBLEM = "problem"  # a task waits for a dependency, hangs, or is quarantined
    COMPONENT = "component"  # the tasks of a component are busy
    SKEW = "skew"  # one task of a component is busy, and the others are not
    WORKER = "worker"  # the tasks of a worker fill its processor
    PROCESSOR = "processor"  # the processors of a machine are full
    PENDING = "pending"  # as many trees are open as are allowed
    CREDIT = "credit"  # receivers take no more
    BATCHES = "batches"  # batches follow one another
    IDLE = "idle"  # the sources have nothing more
    UNKNOWN = "unknown"  # none of these, or not measured yet


class Limit(NamedTuple):
    """What limits a topology, with a sentence for users."""

    kind: LimitKind
    text: str
    component: str = ""  # empty: it is not a component


class Backlog(NamedTuple):
    """How far a source is behind."""

    component: str
    lag: float | None  # records not processed yet; None: not known now
    growth: float  # of the lag, in records a second
    rate: float  # records processed a second
    falls_behind: bool
    catch_up_s: float | None  # when there is no lag any more, if it goes on so; None: never
    trend: str  # in words: `falls behind by 1,200 records/s`, `catches up in 12 min`


class TaskLoads(NamedTuple):
    """The shares of the last half minute in which the tasks of a component were busy, 0 to 1."""

    mean: float
    top: float  # that of the busiest one
    is_uneven: bool  # whether that one is much busier than the others


@dataclass(frozen=True)
class TopologyProgress:
    """Whether a topology keeps up with its sources, over the last half minute."""

    limit: Limit
    bottleneck: str = ""  # the component whose tasks are busy while inputs wait; empty: none
    sources: tuple[Backlog, ...] = ()  # those that know their lag
    oldest_s: Mapping[str, float] = field(
        default_factory=dict
    )  # spout → the age of its oldest open tree; of a
    # batch coordinator: of its oldest batch
    rows_s: Mapping[str, float] = field(default_factory=dict)  # step of exactly-once batches → the
    # rows that it takes, or emits as a source, a second
    event_age_s: float | None = None  # how far the lowest watermark is behind the clock; None: not
    # known, or not in the time since 1970
    busy: Mapping[str, TaskLoads] = field(default_factory=dict)  # by component


# ---- history -------------------------------------------------------------------------------------
# The numbers of each component in the last hour, as samples of cumulative counters.
#
# At first there is a sample each second. When there are 128, every second one is dropped, and the
# time between two is doubled, up to 32 s. So a young topology has a fine history, and memory is
# bounded: 128 × components × fields numbers of 8 bytes.

FIELDS = ("emitted", "executed", "acked", "failed", "replayed", "busy_s", "pending", "lag")
_GAUGES = [FIELDS.index("pending"), FIELDS.index("lag")]
_SAMPLES_MAX = 128
_STEP_MAX_S = 32.0
_HOUR_S = 3600.0

Rows = Mapping[str, Sequence[float]]  # component → the values of FIELDS


@dataclass(frozen=True)
class LoadHistory:
    """The numbers of each component between every two samples: those of `pending` and `lag` at its
    end, the others a second. NaN: not known."""

    components: tuple[str, ...]
    ago_s: NDArray[np.float64]  # shape (n,): the end of each, in seconds before the snapshot
    values: NDArray[np.float32]  # shape (n, components, FIELDS)

    def series(self, components: Sequence[str], field: str) -> list[float | None]:
        """The sums over these components, shape (n,); None where none of them is known."""
        places = [self.components.index(id) for id in components if id in self.components]
        values = self.values[:, places, FIELDS.index(field)].astype(np.float64)
        known = ~np.isnan(values)
        sums = np.where(known, values, 0.0).sum(axis=1)
        pairs = zip(sums.tolist(), known.sum(axis=1).tolist(), strict=True)
        return [float(f"{total:.4g}") if count else None for total, count in pairs]


class HistoryRecorder:
    """Takes the samples."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, Rows]] = deque()
        self._step_s = 1.0

    def note(self, now: float, rows: Callable[[], Rows]) -> None:
        """Take a sample, if it is time."""
        samples = self._samples
        if samples and now - samples[-1][0] < self._step_s:
            return
        samples.append((now, rows()))
        if len(samples) > _SAMPLES_MAX and self._step_s < _STEP_MAX_S:
            self._samples, self._step_s = deque([*samples][::2]), 2 * self._step_s
        while self._samples[0][0] < now - _HOUR_S - _STEP_MAX_S:
            self._samples.popleft()

    def at(self, now: float) -> LoadHistory:
        """The history as of now. Counters that have gone back count as 0."""
        components = tuple(self._samples[-1][1]) if self._samples else ()
        unknown = [nan] * len(FIELDS)
        table = np.array(
            [[rows.get(id, unknown) for id in components] for _, rows in self._samples]
        ).reshape(len(self._samples), len(components), len(FIELDS))
        times = np.array([at_s for at_s, _ in self._samples])
        lengths = np.diff(times)[:, None, None]
        rates = np.maximum(np.diff(table, axis=0), 0.0) / lengths if len(times) > 1 else table[:0]
        rates[:, :, _GAUGES] = table[1:, :, _GAUGES]
        return LoadHistory(components, now - times[1:], rates.astype(np.float32))
