"""The entries of a history as long columns: what befell each root, one element each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sunshower.runtime.history import Entry, What
from sunshower.runtime.ids import I64, NO_IDS, U64, incarnations_of

F64 = NDArray[np.float64]
_NO_TIMES: F64 = np.zeros(0)
_NO_NUMBERS: I64 = np.zeros(0, np.int64)
_NUMBER_BITS = 44  # a key has room for so many messages of a task


@dataclass(frozen=True)
class Column:
    """All entries of one kind, row by row; every array has shape (n,)."""

    at_s: F64
    tasks: I64
    roots: U64
    numbers: I64  # of a message within its spout task

    def __len__(self) -> int:
        return len(self.at_s)


def column(entries: Iterable[Entry], what: What) -> Column:
    """The rows of all entries of a kind that has roots and numbers, in their order."""
    found = [entry for entry in entries if entry.what is what]
    if not found:
        return Column(_NO_TIMES, _NO_NUMBERS, NO_IDS, _NO_NUMBERS)
    sizes = [len(entry.values) for entry in found]
    return Column(
        np.repeat([entry.at_s for entry in found], sizes),
        np.repeat(np.array([entry.task for entry in found], np.int64), sizes),
        np.concatenate([entry.roots for entry in found]),
        np.concatenate([entry.values for entry in found]).astype(np.int64),
    )


def causes(entries: Iterable[Entry]) -> list[str]:
    """The cause of each row of `column(entries, What.FAILED)`."""
    return [str(cause) for entry in entries if entry.what is What.FAILED for cause in entry.detail]


def messages(entries: Sequence[Entry], emitted: Column) -> I64:
    """For each emission which message it is of, as numbers from 0 on: replays share theirs.

    A message is known by its task and its number, or the id that a next_tuple spout gave it.
    """
    found: I64 = emitted.tasks << _NUMBER_BITS | emitted.numbers
    places: dict[tuple[int, str], int] = {}
    row = 0
    for entry in entries:
        if entry.what is not What.EMITTED:
            continue
        if entry.detail is not None:
            names = [(entry.task, repr(id)) for id in entry.detail]
            found[row : row + len(names)] = [~places.setdefault(n, len(places)) for n in names]
        row += len(entry.values)
    _, numbered = np.unique(found, return_inverse=True)
    return numbered.astype(np.int64)


def matches(roots: U64, among: U64) -> I64:
    """Where each of `roots` stands in `among`, whose elements differ; -1 where it does not."""
    if not len(among):
        return np.full(len(roots), -1, np.int64)
    order = np.argsort(among, kind="stable")
    places = np.minimum(np.searchsorted(among, roots, sorter=order), len(among) - 1)
    candidates = order[places]
    return np.where(among[candidates] == roots, candidates, -1)


def ends(emitted: Column, settled: Sequence[Column]) -> F64:
    """When each emission was no longer pending; infinite where it is to the end.

    It has completed or failed, or its spout task began a new life without it.
    """
    found = np.full(len(emitted), np.inf)
    for one in settled:
        places = matches(one.roots, emitted.roots)
        known = places >= 0
        np.minimum.at(found, places[known], one.at_s[known])
    lives = incarnations_of(emitted.roots)
    for task in np.unique(emitted.tasks):
        of_task = emitted.tasks == task
        numbers = np.unique(lives[of_task])
        begins = [emitted.at_s[of_task & (lives == number)].min() for number in numbers]
        for number, successor_s in zip(numbers, begins[1:], strict=False):
            old = of_task & (lives == number)
            found[old] = np.minimum(found[old], successor_s)
    return found
