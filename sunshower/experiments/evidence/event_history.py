"""The history of one run as numpy columns, for checkers and reports."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import repeat
from operator import attrgetter
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from sunshower.runtime.events.event_log import NOTHING, Entry, What
from sunshower.runtime.tracking.ids import I64, NO_IDS, U64

F64 = NDArray[np.float64]
NumberT = TypeVar("NumberT", np.float64, np.int64)
_NUMBER_BITS = 44
_NUMBER_MASK = (1 << _NUMBER_BITS) - 1
_SLOT_AT, _OFFSET_BITS = 48, 28
_FOLDED = 1 << (_NUMBER_BITS - 1)  # apart from the offsets of slot 0, which stay as they are
# Entries without columns.
_SINGLE = frozenset({What.WROTE, What.NOTED, What.STARTED, What.BEGUN, What.ENDED})
_ROOTED = frozenset(What) - _SINGLE - {What.DEAD}
_COUNTED = frozenset({What.EMITTED, What.COMPLETED, What.FAILED})  # those with attempts
_AT, _TASK = attrgetter("at_s"), attrgetter("task")
_ROOTS, _VALUES, _ATTEMPTS = attrgetter("roots"), attrgetter("values"), attrgetter("attempts")


@dataclass(frozen=True)
class EventRows:
    """The events of one kind, one row for each tuple, in the order of the history.

    `at_s`, `order` and `tasks` have shape (n,); so do the other columns if the kind has them (see
    runtime/events/event_log.py), else they are empty.
    """

    entries: Sequence[Entry]
    counts: I64  # rows of each entry
    at_s: F64  # from the start of the run
    order: I64  # the position of the row's entry in the whole history
    tasks: I64
    roots: U64
    values: U64 | I64  # message numbers, or edges
    attempts: I64

    def __len__(self) -> int:
        return len(self.at_s)

    @cached_property
    def messages(self) -> I64:
        """One number for each pair of task and message number."""
        return message_keys(self.tasks, self.values.view(np.int64))

    @cached_property
    def details(self) -> list[Any]:
        """The detail of each row: a cause, a target task, (key, value), or a description."""
        found: list[Any] = []
        for entry, count in zip(self.entries, self.counts.tolist(), strict=True):
            each = entry.what is What.FAILED or entry.what is What.EMITTED
            found.extend(entry.detail if each and entry.detail else [entry.detail] * count)
        return found

    @cached_property
    def targets(self) -> I64:
        """The target task of each edge; only of SENT."""
        return np.repeat(np.array([e.detail for e in self.entries], np.int64), self.counts)


@dataclass(frozen=True)
class Band:
    """One fault on the time line."""

    words: str
    begun_s: float  # from the start of the run
    ended_s: float | None  # None: the history ends before


@dataclass(frozen=True)
class Accounts:
    """One row for each message that was ever emitted; every array has shape (n,)."""

    messages: I64  # ascending; see message_keys
    emitted_s: F64  # the first time, from the start of the run
    completed_s: F64  # the first time; infinite: never
    emits: I64  # number of emits

    @property
    def open(self) -> I64:
        """The messages that were never completed."""
        return self.messages[np.isinf(self.completed_s)]

    def touched(self, from_s: float, to_s: float, lost: I64, but: I64) -> F64:
        """Return when messages were completed that were open between `from_s` and `to_s`, or are in
        `lost`, and are not in `but`; infinite for those that never were."""
        open_then = (self.emitted_s <= to_s) | np.isin(self.messages, lost)
        open_then &= ~np.isin(self.messages, but)
        return self.completed_s[open_then & (self.completed_s > from_s)]


class History:
    """Every entry of one run, sorted by time.

    `tasks`: task id → its name, such as relay[0]. `begun_s`: when the run began, on the clock of
    the entries. `cut`: why the history is known to be incomplete.
    """

    def __init__(
        self,
        entries: Iterable[Entry],
        tasks: Mapping[int, str],
        begun_s: float = 0.0,
        cut: str | None = None,
    ) -> None:
        self.entries: tuple[Entry, ...] = tuple(sorted(entries, key=_AT))
        self.tasks = tasks
        self.begun_s = begun_s
        self.cut = cut
        self._rows: dict[What, EventRows] = {}

    def __len__(self) -> int:
        return len(self.entries)

    @property
    def seconds(self) -> float:
        """The time of the last event, from the start of the run."""
        return self.entries[-1].at_s - self.begun_s if self.entries else 0.0

    def rows(self, what: What) -> EventRows:
        """Return the events of one kind."""
        if what not in self._rows:
            self._rows[what] = self._gather(what)
        return self._rows[what]

    @cached_property
    def faults(self) -> tuple[Band, ...]:
        """Every fault, in the order in which they began."""
        ends: dict[str, list[float]] = {}
        ended = self.rows(What.ENDED)
        for words, at_s in zip(ended.details, ended.at_s.tolist(), strict=True):
            ends.setdefault(words, []).append(at_s)
        begun = self.rows(What.BEGUN)
        found: list[Band] = []
        for words, at_s in zip(begun.details, begun.at_s.tolist(), strict=True):
            mine = ends.get(words)
            found.append(Band(words, at_s, mine.pop(0) if mine else None))
        return tuple(found)

    @cached_property
    def accounts(self) -> Accounts:
        """The emits and the completion of each message."""
        emitted, completed = self.rows(What.EMITTED), self.rows(What.COMPLETED)
        messages, firsts, emits = np.unique(emitted.messages, return_index=True, return_counts=True)
        completed_s = lookup(completed.messages, completed.at_s, messages, np.inf)
        return Accounts(messages, emitted.at_s[firsts], completed_s, emits)

    def name(self, task: int) -> str:
        """Return the name of a task."""
        return self.tasks.get(task, f"task {task}")

    @cached_property
    def _by_what(self) -> list[tuple[list[Entry], list[int]]]:
        """For each kind, its entries and their positions in the history."""
        found: list[tuple[list[Entry], list[int]]] = [([], []) for _ in range(max(What) + 1)]
        for place, entry in enumerate(self.entries):
            entries, places = found[entry.what]
            entries.append(entry)
            places.append(place)
        return found

    def _gather(self, what: What) -> EventRows:
        entries, places = self._by_what[what]
        count = len(entries)
        values = list(map(_VALUES, entries))
        sizes = repeat(1, count) if what in _SINGLE else map(len, values)
        counts = np.fromiter(sizes, np.int64, count)
        at_s = np.fromiter(map(_AT, entries), np.float64, count)
        at_s -= self.begun_s
        rooted, numbered = what in _ROOTED, what in _COUNTED
        attempts = map(_ATTEMPTS, entries)
        return EventRows(
            entries=entries,
            counts=counts,
            at_s=np.repeat(at_s, counts),
            order=np.repeat(np.array(places, np.int64), counts),
            tasks=np.repeat(np.fromiter(map(_TASK, entries), np.int64, count), counts),
            roots=np.concatenate(list(map(_ROOTS, entries))) if rooted and count else NO_IDS,
            values=np.concatenate(values) if count and what not in _SINGLE else NOTHING,
            attempts=np.concatenate(list(attempts)) if numbered and count else NOTHING,
        )


def message_keys(tasks: I64, numbers: I64) -> I64:
    """Return one number for each pair of task and message number.

    Numbers of a log may be slot << 48 | offset: of slots other than 0, 28 bits of the
    offset count.
    """
    if np.max(numbers, initial=0) > _NUMBER_MASK:
        folded = (numbers >> _SLOT_AT << _OFFSET_BITS) | (numbers & ((1 << _OFFSET_BITS) - 1))
        numbers = np.where(numbers > _NUMBER_MASK, folded | _FOLDED, numbers)
    return (tasks << _NUMBER_BITS) + numbers


def tasks_of(messages: I64) -> I64:
    """Return the task of each message key."""
    return messages >> _NUMBER_BITS


def numbers_of(messages: I64) -> I64:
    """Return the message number of each message key."""
    return messages & _NUMBER_MASK


def task_and_number(message: int) -> tuple[int, int]:
    """Return (task, message number) of a message key."""
    return message >> _NUMBER_BITS, message & _NUMBER_MASK


def is_repeat(keys: U64 | I64) -> NDArray[np.bool_]:
    """Return which keys repeat an earlier one: shape (n,)."""
    found = np.ones(len(keys), np.bool_)
    found[np.unique(keys, return_index=True)[1]] = False
    return found


def lookup(
    keys: U64 | I64, values: NDArray[NumberT], wanted: U64 | I64, missing: float
) -> NDArray[NumberT]:
    """Return the first value of each wanted key, or `missing` if it is not in `keys`."""
    there, at = np.unique(keys, return_index=True)
    if not len(there):
        return np.full(len(wanted), missing, values.dtype)
    places = np.minimum(np.searchsorted(there, wanted), len(there) - 1)
    return np.where(there[places] == wanted, values[at[places]], values.dtype.type(missing))
