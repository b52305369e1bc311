"""Evaluates the rows of a run: lost tuples, and how long the effect of each kill lasted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.endurance.row_files import CAUSES, Rows

NEVER = np.iinfo(np.int64).max
Times = NDArray[np.int64]  # shape (total,): nanoseconds by message number


@dataclass(frozen=True)
class Kill:
    """One SIGKILL."""

    kind: str  # of the victim
    actor: str
    at_ns: int
    back_s: float | None = None  # until its successor had registered with the master


@dataclass(frozen=True)
class KillEffect:
    """The effect of one kill."""

    kill: Kill
    touched: int  # tuples that were open between the kill and the successor's registration
    seconds: float  # until the last of them was acked


@dataclass(frozen=True)
class DeliveryTimes:
    """The times at which each number was first emitted, written by the sink, and acked."""

    emitted: Times
    sunk: Times
    acked: Times
    duplicates: int  # further rows of the sink for the same numbers

    @classmethod
    def of(cls, total: int, emitted: Rows, sunk: Rows, acked: Rows) -> DeliveryTimes:
        """The delivery times of the numbers 0 … total - 1."""
        firsts = [_first_times(rows, total) for rows in (emitted, sunk, acked)]
        return cls(*firsts, len(sunk) - int(np.count_nonzero(firsts[1] != NEVER)))

    @property
    def lost(self) -> int:
        """Numbers that were never acked, or never written by a sink."""
        return int(np.count_nonzero((self.acked == NEVER) | (self.sunk == NEVER)))

    @property
    def acked_early(self) -> int:
        """Numbers that were acked before any sink had written them. Must be 0."""
        return int(np.count_nonzero(self.acked < self.sunk))

    @property
    def rate(self) -> float:
        """Tuples acked per second, from the first emit to the last ack."""
        done = self.acked[self.acked != NEVER]
        return len(done) / ((done.max() - self.emitted.min()) / 1e9) if len(done) else 0.0

    def effect_of(self, kill: Kill) -> KillEffect:
        """How long the effect of a kill lasted; infinite if a touched tuple was never acked.

        Tuples that were emitted before the successor had registered are touched too, because they
        may have been sent to the victim.
        """
        back_ns = kill.at_ns + int((kill.back_s or 0) * 1e9)
        touched = self.acked[(self.emitted <= back_ns) & (self.acked > kill.at_ns)]
        last = int(touched.max(initial=kill.at_ns))
        seconds = np.inf if last == NEVER else (last - kill.at_ns) / 1e9
        return KillEffect(kill, len(touched), float(seconds))


def by_kind(effects: Iterable[KillEffect]) -> list[dict[str, Any]]:
    """A row for each kind of victim: its kills, and how many seconds their effects lasted."""
    kinds: dict[str, list[KillEffect]] = {}
    for effect in effects:
        kinds.setdefault(effect.kill.kind, []).append(effect)
    return [_row(kind, kinds[kind]) for kind in sorted(kinds)]


def causes(failures: Rows) -> dict[str, int]:
    """Cause → failed attempts."""
    counts = Counter(failures["detail"].tolist())
    return {str(CAUSES[index]): counts[index] for index in sorted(counts)}


def worst(rows: Sequence[Mapping[str, Any]], figure: str) -> float:
    """The largest of a figure over all kinds of victim."""
    return max((row[figure] for row in rows), default=0.0)


def _row(kind: str, effects: Sequence[KillEffect]) -> dict[str, Any]:
    seconds = [effect.seconds for effect in effects]
    back = [effect.kill.back_s for effect in effects if effect.kill.back_s is not None]
    return {
        "victim": kind,
        "kills": len(effects),
        "touched": median(effect.touched for effect in effects),
        "back_s": round(median(back), 3) if back else None,
        "median_s": round(median(seconds), 3),
        "worst_s": round(max(seconds), 3),
    }


def _first_times(rows: Rows, total: int) -> Times:
    times = np.full(total, NEVER)
    np.minimum.at(times, rows["number"], rows["ns"])
    return times
