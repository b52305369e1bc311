"""Computes time series from a history: rates, pending, latencies and failures in time bins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from sunshower.experiments.evidence.batch_evidence import batches_of
from sunshower.experiments.evidence.event_history import (
    F64,
    Band,
    EventRows,
    History,
    is_repeat,
    lookup,
)
from sunshower.runtime.events.event_log import What
from sunshower.runtime.tracking.ids import I64, incarnations_of

_BINS_MAX = 240
_BINS_MIN = 12
_EVENTS_PER_BIN = 4  # on average at least; with fewer, rates are noise


@dataclass(frozen=True)
class Series:
    """One run over time. Arrays have shape (bins,), with one value for each bin."""

    edges_s: F64  # shape (bins + 1,): bin i is from edges_s[i] to edges_s[i + 1]
    emitted_per_s: F64  # including replays
    completed_per_s: F64
    replays_per_s: F64
    pending: I64  # the maximum in the bin
    p50_s: F64  # from the first emission of a message to its completion; NaN: none
    p99_s: F64
    batches_per_s: F64  # committed Trident batches
    failures: Mapping[str, I64]  # by cause, the most frequent first
    bands: tuple[Band, ...]  # by begin

    @property
    def seconds(self) -> float:
        """The length of the series."""
        return float(self.edges_s[-1])


def make_series(history: History, seconds: float | None = None) -> Series:
    """Compute the series of a history of `seconds` (default: until the last entry)."""
    emitted, completed, failed = map(history.rows, (What.EMITTED, What.COMPLETED, What.FAILED))
    edges_s = bins(
        max(history.seconds, seconds or 0.0), len(emitted) + len(completed) + len(failed)
    )
    widths_s = np.diff(edges_s)
    p50_s, p99_s = _latencies(edges_s, history)
    replays_s = emitted.at_s[is_repeat(emitted.messages)]
    return Series(
        edges_s=edges_s,
        emitted_per_s=_counts(edges_s, emitted.at_s) / widths_s,
        completed_per_s=_counts(edges_s, completed.at_s) / widths_s,
        replays_per_s=_counts(edges_s, replays_s) / widths_s,
        pending=_pending(edges_s, emitted.at_s, _ends(emitted, (completed, failed))),
        p50_s=p50_s,
        p99_s=p99_s,
        batches_per_s=_counts(edges_s, _committed(history)) / widths_s,
        failures=_failures(edges_s, failed.at_s, list(map(str, failed.details))),
        bands=history.faults,
    )


def bins(seconds: float, events: int) -> F64:
    """Return the edges of equal bins from 0 to `seconds`; more events give more bins."""
    count = min(max(events // _EVENTS_PER_BIN, _BINS_MIN), _BINS_MAX)
    return np.linspace(0.0, max(seconds, 1e-3), count + 1)


def _committed(history: History) -> F64:
    """Return when each batch was committed."""
    times_s = [one.committed_s for one in batches_of(history) if one.committed_s is not None]
    return np.array(times_s, np.float64)


def _bin_of(edges_s: F64, at_s: F64) -> I64:
    found = np.searchsorted(edges_s, at_s, side="right") - 1
    return np.clip(found, 0, len(edges_s) - 2).astype(np.int64)


def _counts(edges_s: F64, at_s: F64) -> I64:
    return np.bincount(_bin_of(edges_s, at_s), minlength=len(edges_s) - 1)


def _ends(emitted: EventRows, settled: Sequence[EventRows]) -> F64:
    """Return when each emission ceased to be pending; infinite if it did not.

    It completed or failed, or its spout task was restarted.
    """
    found = np.full(len(emitted), np.inf)
    for rows in settled:
        found = np.minimum(found, lookup(rows.roots, rows.at_s, emitted.roots, np.inf))
    lives = incarnations_of(emitted.roots)
    for task in np.unique(emitted.tasks):
        mine = emitted.tasks == task
        numbers = np.unique(lives[mine])
        begins = [emitted.at_s[mine & (lives == number)].min() for number in numbers]
        for number, successor_s in zip(numbers[:-1], begins[1:], strict=True):
            old = mine & (lives == number)
            found[old] = np.minimum(found[old], successor_s)
    return found


def _latencies(edges_s: F64, history: History) -> tuple[F64, F64]:
    """Return the 50th and 99th percentile of the completions in each bin, from the first emission
    of a message."""
    emitted, completed = history.rows(What.EMITTED), history.rows(What.COMPLETED)
    accounts = history.accounts
    first_s = lookup(accounts.messages, accounts.emitted_s, completed.messages, np.nan)
    # A sampled or cut history may lack the emission of the completed attempt.
    known = np.isin(completed.roots, emitted.roots)
    at_s = completed.at_s[known]
    waited_s = at_s - first_s[known]
    bin_of = _bin_of(edges_s, at_s)
    order = np.lexsort((waited_s, bin_of))
    sizes = np.bincount(bin_of, minlength=len(edges_s) - 1)
    begins = np.cumsum(sizes) - sizes
    found = []
    for ratio in (0.50, 0.99):
        ranks = np.ceil(ratio * sizes).astype(np.int64) - 1
        values = np.full(len(sizes), np.nan)
        some = sizes > 0
        values[some] = waited_s[order][(begins + ranks)[some]]
        found.append(values)
    return found[0], found[1]


def _pending(edges_s: F64, begun_s: F64, ended_s: F64) -> I64:
    """Return the maximum of open messages in each bin."""
    ended_s = ended_s[np.isfinite(ended_s)]
    changes = np.repeat([1, -1, 0], [len(begun_s), len(ended_s), len(edges_s) - 1])
    # A change of 0 at the begin of each bin makes its first value count.
    at_s = np.concatenate([begun_s, ended_s, edges_s[:-1]])
    order = np.lexsort((-np.abs(changes), at_s))
    open_ = np.cumsum(changes[order])
    begins = np.searchsorted(at_s[order], edges_s[:-1], side="left")
    return np.maximum.reduceat(open_, begins)


def _failures(edges_s: F64, at_s: F64, causes: Sequence[str]) -> dict[str, I64]:
    names, which = np.unique(np.array(causes, str), return_inverse=True)
    bin_of = _bin_of(edges_s, at_s)
    found = {
        str(name): np.bincount(bin_of[which == index], minlength=len(edges_s) - 1)
        for index, name in enumerate(names)
    }
    return dict(sorted(found.items(), key=lambda pair: (-int(pair[1].sum()), pair[0])))
