"""The port of states, which a batch writes in its commit phase, in txid order.

    state.begin_commit(attempt)
    state.multi_get(keys) · state.multi_update(keys, functions) · state.multi_put(keys, values)
    state.commit(attempt)        all of it is stored now, or commit has raised, and nothing is

`begin_commit` and `commit` are called for every batch, also in tasks without rows of it: an earlier
attempt may have had some, and its writes are then undone. (A first attempt without rows writes
nothing.) Between batches `multi_get` reads the stored values. Storm:
org.apache.storm.trident.state.State, MapState, StateFactory.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, StrEnum
from math import inf
from typing import Any, NamedTuple, Protocol, runtime_checkable

from sunshower.errors import BadEmit
from sunshower.records import DictKey, key_of
from sunshower.topologies.operators.port import Attempt

Key = Hashable  # a value, or a tuple of values, of a row
Update = Callable[[Any], Any]  # the new value of a key from the old one (None: there was none)


class StateKind(Enum):
    """What is stored with each value; decides with which spouts the state is exactly once."""

    NON_TRANSACTIONAL = "non-transactional"  #: the value
    TRANSACTIONAL = "transactional"  #: the value and its txid
    OPAQUE = "opaque"  #: the value, its txid, and the value before


class Spread(StrEnum):
    """Which tasks have a key of a state; stored in its marks."""

    BY_KEY = "key"  # the task to which a fields grouping sends records with this key
    BY_GROUP = "group"  # that of the second value of the key, which is a tuple
    EVERYWHERE = "everywhere"  # each task has all keys


class FoundPart(NamedTuple):
    """What a task of the former number of tasks leaves to a new task."""

    task: int  # of
    tasks: int  # former tasks
    txid: int  # of its last write
    is_heir: bool  # the new task alone gets what is beside the keys
    beside: Mapping[Key, Any]  # entries that no key of a record has, such as owed rows
    latest: Collection[Key]  # those that the last write has written, if states of batches say so
    items: Callable[[], Iterator[tuple[Key, Any]]]  # the keys that the new task gets, with values
    gets: Callable[[Key], bool]  # whether the new task gets the records of a group


@dataclass(frozen=True)
class Moving:
    """How a state goes to another number of tasks."""

    spread: Spread
    join: Callable[[Sequence[FoundPart]], Mapping[Key, Any]]
    """What the new task has instead of the values of `items`, and beside them. None: removed."""
    may_begin: bool = True  # False: it was open here already, with this number of tasks
    check: Callable[[int, Attempt | None], None] | None = None
    """Of states of batches: raises StateMismatch for the last write of a former task if the task
    has noted a later one."""

    @property
    def repeats(self) -> bool:
        """Whether the batch that has written last may be repeated after the move."""
        return self.check is not None


@dataclass(frozen=True)
class Place:
    """A task's part of a state."""

    topology: str
    state: str  # its name, by which a later run finds it
    index: int
    parallelism: int
    batches: str = ""  # the numbering of batches, see CountedIn; "": unknown
    moving: Moving | None = None  # None: the number of tasks cannot change
    values: str = ""  # what they are, as the program declares it; "": not known


class MapState(Protocol):
    """Values under keys, written once per batch. A batch reads its own writes."""

    def begin_commit(self, attempt: Attempt) -> None:
        """Begin to write a batch. Raises StaleAttempt if a later attempt has written."""

    def commit(self, attempt: Attempt) -> None:
        """Store everything written since `begin_commit`, all or nothing. Raises StaleAttempt."""

    def abort(self) -> None:
        """Discard everything written since `begin_commit`."""

    def close(self) -> None:
        """Close connections."""

    def multi_get(self, keys: Sequence[Key]) -> list[Any]:
        """The values of keys, in their order; None where there is none."""

    def multi_update(self, keys: Sequence[Key], updates: Sequence[Update]) -> list[Any]:
        """Store `updates[i](old value)` under `keys[i]`; returns the new values, which the caller
        may change: the state does not."""

    def multi_put(self, keys: Sequence[Key], values: Sequence[Any]) -> None:
        """Replace the values of keys. A repeated batch replaces them again."""

    def multi_remove(self, keys: Sequence[Key]) -> None:
        """Remove keys; a repeated batch finds them as they were before it."""

    def items(self) -> Iterator[tuple[Key, Any]]:
        """All keys and values that are stored, in no order. Called between batches, or in one
        before it has written anything except by `multi_update`."""


@runtime_checkable
class RecognisedState(MapState, Protocol):
    """A MapState that says who wrote it last. It is refused when it is behind what the store of the
    batches knows; another MapState is written on."""

    @property
    def last_attempt(self) -> Attempt | None:
        """The attempt that has written last, as stored with the values; None: nobody has. It is
        asked after the state was opened, after `begin_commit` and after `commit`."""


class StateFactory(Protocol):
    """Opens the state of one task: a value that can be pickled."""

    @property
    def kind(self) -> StateKind:
        """What it stores with each value."""

    def make(self, place: Place) -> MapState:
        """Open a task's part. Raises StoreUnreachable, and StateMismatch for another owner's."""


# ---- moved parts ---------------------------------------------------------------------------------

ABOUT = DictKey(sunshower="about")  # the key of what the store says of itself
_OWN = "__sunshower:"  # begins the first text of other keys of its own
OWED, TIME, TIMER = _OWN + "owed", _OWN + "time", _OWN + "timer"
WAITING = _OWN + "waiting"  # a record that waits for its turn, by number
BEHIND = _OWN + "behind"  # up to where windows of a group have ended, if that is before TIME
# Of totals of totals: what an origin has in this task, the slots of a group, and a node of its tree
ORIGIN, SLOTS, NODE = _OWN + "origin", _OWN + "slots", _OWN + "node"
# Of a key: an element of its list or the name of an entry of its map, by number; and that entry
ROW, ENTRY = _OWN + "row", _OWN + "entry"
_OF_A_KEY = (TIMER, WAITING, BEHIND, SLOTS, NODE, ROW, ENTRY)
_NOBODY = -1  # the spout task of rows that the next watermark brings, of whichever task


def is_own(key: Key) -> bool:
    """Whether a key is not one of a user's records: what the store or an operator notes."""
    if type(key) is not tuple:
        return key == ABOUT
    return bool(key) and type(key[0]) is str and key[0].startswith(_OWN)


def check_key(key: Any) -> None:
    """Raise BadEmit for the key of a record that would be one of the store's own."""
    if type(key) is not str and is_own(key_of(key)):
        raise BadEmit(f"{key!r:.200} cannot be the key of a state: it is reserved")


def group_of(key: Key, spread: Spread) -> tuple[Key] | None:
    """(the key of the records for which an entry is stored,); None: it is of its task alone."""
    if is_own(key):
        is_of_key = type(key) is tuple and len(key) > 1 and key[0] in _OF_A_KEY
        return (key[1],) if is_of_key else None  # type: ignore[index]
    if spread is not Spread.BY_GROUP:
        return (key,)
    return (key[1],) if type(key) is tuple and len(key) > 1 else None


def joined(parts: Sequence[FoundPart], *, has_panes: bool) -> dict[Key, Any]:
    """The entries beside the keys, from those of former tasks.

    The time is the latest of theirs: what one of them has heard of the sources is true for all.
    What would have ended by then ends with the next watermark. `has_panes`: panes do not say which
    of their windows have ended, so the time of a group is stored for it if it is before the latest.
    """
    times = [part.beside.get((TIME,), -inf) for part in parts]
    latest = max(times, default=-inf)
    values: dict[Key, Any] = {}
    if latest > -inf:
        values[(TIME,)] = latest
    for part, time in zip(parts, times, strict=True):
        for key, value in part.beside.items() if part.is_heir else ():
            if type(key) is tuple and key[0] == OWED:
                _, _, rows = values.get((OWED, _NOBODY), (0, 0, []))
                values[OWED, _NOBODY] = [_NOBODY, 0, [*rows, *value[2]]]
            elif not is_own(key):
                values[key] = [*values.get(key, ()), *value]
        if has_panes and time < latest:
            keys = [key for key, _ in part.items()]
            groups = {key[1]: None for key in keys if type(key) is tuple and not is_own(key)}
            known = {key[1] for key in keys if type(key) is tuple and key[0] == BEHIND}
            values |= {(BEHIND, group): time for group in groups if group not in known}
    return values


# ---- state entries -------------------------------------------------------------------------------


def numbers_of(stored: Any) -> list[int]:
    """The numbers in the head of a list or a map of a key; empty for another value."""
    match stored:
        case {"(list)": [int(first), int(end)], **others} if not others:
            return [first, end]
        case {"(map)": [int(first), int(end), int(size)], **others} if not others:
            return [first, end, size]
    return []


def entries_of(operators: Iterable[Any]) -> int | None:
    """The sum over the states of operators, a shared one once. None if they have none that is open,
    or one of them does not know it. Raises what reading a store raises."""
    states = (
        getattr(operator, "slot", None) or getattr(operator, "store", None)
        for operator in operators
    )
    unique = {id(state): state for state in states if state is not None}
    counts = [count_of(state) for state in unique.values()]
    known = [count for count in counts if count is not None]
    return sum(known) if known and len(known) == len(counts) else None


def count_of(state: Any) -> int | None:
    """The entries of a state; None for one that is not open, or does not know it."""
    count = getattr(state, "entry_count", None)
    entries: int | None = count() if callable(count) else None
    return entries
