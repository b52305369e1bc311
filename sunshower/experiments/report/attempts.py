"""Computes for each emission when its message was first emitted, and when it ended."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from sunshower.experiments.evidence.event_history import Rows
from sunshower.runtime.tracking.ids import I64, U64, incarnations_of

F64: TypeAlias = NDArray[np.float64]
BOOLS: TypeAlias = NDArray[np.bool_]


def firsts(at_s: F64, messages: I64) -> tuple[F64, BOOLS]:
    """Return, for each emission, the first emission of its message and whether it is a replay.

    All arrays have shape (n,).
    """
    order = np.lexsort((at_s, messages))
    begins = np.flatnonzero(np.diff(messages[order], prepend=-1))
    first_s = np.empty(len(at_s))
    first_s[order] = np.repeat(at_s[order][begins], np.diff(begins, append=len(order)))
    is_replay = np.ones(len(at_s), bool)
    is_replay[order[begins]] = False
    return first_s, is_replay


def places(roots: U64, among: U64) -> I64:
    """Return the index of each root in `among`, whose elements are unique; -1 for none."""
    if not len(among):
        return np.full(len(roots), -1, np.int64)
    order = np.argsort(among, kind="stable")
    nearest = np.minimum(np.searchsorted(among, roots, sorter=order), len(among) - 1)
    candidates = order[nearest]
    return np.where(among[candidates] == roots, candidates, -1)


def ends(emitted: Rows, settled: Sequence[Rows]) -> F64:
    """Return when each emission ceased to be pending; infinite if it did not.

    It completed or failed, or its spout task was restarted.
    """
    found = np.full(len(emitted), np.inf)
    for rows in settled:
        where = places(rows.roots, emitted.roots)
        known = where >= 0
        np.minimum.at(found, where[known], rows.at_s[known])
    lives = incarnations_of(emitted.roots)
    for task in np.unique(emitted.tasks):
        mine = emitted.tasks == task
        numbers = np.unique(lives[mine])
        begins = [emitted.at_s[mine & (lives == number)].min() for number in numbers]
        for number, successor_s in zip(numbers[:-1], begins[1:], strict=True):
            old = mine & (lives == number)
            found[old] = np.minimum(found[old], successor_s)
    return found
