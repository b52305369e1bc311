"""What a history looks like over time: rates, pending, latencies and failures, bin by bin."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from sunshower.faults.report.columns import F64, Column, causes, column, ends, matches, messages
from sunshower.runtime.history import Entry, What
from sunshower.runtime.ids import I64

_BINS_MAX = 240
_BINS_MIN = 12
_EVENTS_PER_BIN = 4  # at least, on the average: with fewer, a rate is nothing but noise


@dataclass(frozen=True)
class Band:
    """A fault from its begin to its end, in seconds from the start of the run."""

    label: str
    begun_s: float
    ended_s: float | None  # None: the history ends before

    @property
    def is_moment(self) -> bool:
        """Whether it is over as soon as it has begun, as a kill is."""
        return self.ended_s == self.begun_s


@dataclass(frozen=True)
class Series:
    """One run over time. Arrays have shape (bins,); a value is that of its bin as a whole."""

    edges_s: F64  # shape (bins + 1,): bin i is from edges_s[i] to edges_s[i + 1]
    emitted_per_s: F64  # replays among them
    completed_per_s: F64
    replays_per_s: F64
    pending: I64  # the most there were at one time
    p50_s: F64  # from a message's first emission until it was complete; NaN: none was
    p99_s: F64
    failures: Mapping[str, I64]  # by cause, the most frequent first
    bands: tuple[Band, ...]  # by begin

    @property
    def seconds(self) -> float:
        """From the first entry to the last one."""
        return float(self.edges_s[-1])


def make_series(entries: Sequence[Entry], seconds: float | None = None) -> Series:
    """All series of a history that is in the order of time.

    Time 0 is the first entry. `seconds`: how long the run took; by default until the last entry.
    """
    start_s = entries[0].at_s if entries else 0.0
    last_s = max((entry.at_s for entry in entries), default=0.0) - start_s
    emitted = _shifted(column(entries, What.EMITTED), start_s)
    completed = _shifted(column(entries, What.COMPLETED), start_s)
    failed = _shifted(column(entries, What.FAILED), start_s)
    edges_s = bins(max(last_s, seconds or 0.0), len(emitted) + len(completed) + len(failed))
    widths_s = np.diff(edges_s)
    names = messages(entries, emitted)
    first_s, replayed = _firsts(emitted, names)
    p50_s, p99_s = _latencies(edges_s, emitted, completed, first_s)
    return Series(
        edges_s,
        _counts(edges_s, emitted.at_s) / widths_s,
        _counts(edges_s, completed.at_s) / widths_s,
        _counts(edges_s, emitted.at_s[replayed]) / widths_s,
        _pending(edges_s, emitted.at_s, ends(emitted, (completed, failed))),
        p50_s,
        p99_s,
        _failures(edges_s, failed, causes(entries)),
        tuple(bands(entries, start_s)),
    )


def bins(seconds: float, events: int) -> F64:
    """The edges of equal bins from 0 to `seconds`: the more events there are, the finer."""
    count = min(max(events // _EVENTS_PER_BIN, _BINS_MIN), _BINS_MAX)
    return np.linspace(0.0, max(seconds, 1e-3), count + 1)


def bands(entries: Sequence[Entry], start_s: float) -> list[Band]:
    """The faults of a history. Of several with the same words, the first to begin ends first."""
    found: list[Band] = []
    open_: dict[str, deque[int]] = {}
    for entry in entries:
        label, at_s = str(entry.detail), entry.at_s - start_s
        if entry.what is What.BEGUN:
            open_.setdefault(label, deque()).append(len(found))
            found.append(Band(label, at_s, None))
        elif entry.what is What.ENDED and open_.get(label):
            place = open_[label].popleft()
            found[place] = Band(label, found[place].begun_s, at_s)
    return found


def _shifted(column: Column, start_s: float) -> Column:
    return Column(column.at_s - start_s, column.tasks, column.roots, column.numbers)


def _bin_of(edges_s: F64, at_s: F64) -> I64:
    places = np.searchsorted(edges_s, at_s, side="right") - 1
    return np.clip(places, 0, len(edges_s) - 2).astype(np.int64)


def _counts(edges_s: F64, at_s: F64) -> I64:
    return np.bincount(_bin_of(edges_s, at_s), minlength=len(edges_s) - 1)


def _firsts(emitted: Column, names: I64) -> tuple[F64, I64]:
    """For each emission when its message was emitted first; and which emissions are replays."""
    if not len(emitted):
        return emitted.at_s, names
    order = np.lexsort((emitted.at_s, names))
    begins = np.flatnonzero(np.diff(names[order], prepend=-1))
    first_s = np.empty(len(emitted))
    first_s[order] = np.repeat(
        emitted.at_s[order][begins], np.diff(begins, append=len(order))
    )
    is_replay = np.ones(len(emitted), bool)
    is_replay[order[begins]] = False
    return first_s, np.flatnonzero(is_replay)


def _latencies(
    edges_s: F64, emitted: Column, completed: Column, first_s: F64
) -> tuple[F64, F64]:
    """The 50th and 99th percentile in each bin of completion."""
    places = matches(completed.roots, emitted.roots)
    known = places >= 0  # a history that was sampled or cut may lack an emission
    at_s = completed.at_s[known]
    waited_s = at_s - first_s[places[known]]
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
    """The most that was open at one time, in each bin."""
    ended_s = ended_s[np.isfinite(ended_s)]
    changes = np.repeat([1, -1, 0], [len(begun_s), len(ended_s), len(edges_s) - 1])
    # At the begin of each bin nothing changes: what is open then is looked at.
    at_s = np.concatenate([begun_s, ended_s, edges_s[:-1]])
    order = np.lexsort((-np.abs(changes), at_s))
    open_ = np.cumsum(changes[order])
    begins = np.searchsorted(at_s[order], edges_s[:-1], side="left")
    return np.maximum.reduceat(open_, begins)


def _failures(edges_s: F64, failed: Column, causes: Sequence[str]) -> dict[str, I64]:
    names, which = np.unique(np.array(causes, str), return_inverse=True)
    bin_of = _bin_of(edges_s, failed.at_s)
    found = {
        str(name): np.bincount(bin_of[which == index], minlength=len(edges_s) - 1)
        for index, name in enumerate(names)
    }
    return dict(sorted(found.items(), key=lambda pair: (-int(pair[1].sum()), pair[0])))
