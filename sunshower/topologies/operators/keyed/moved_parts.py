"""The data of a task besides the values of its keys, after the number of tasks has changed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf
from typing import Any

from sunshower.records import DictKey
from sunshower.topologies.operators.states import FoundPart, Key, Spread

ABOUT = DictKey(sunshower="about")  # the key of what the store says of itself
_OWN = "__sunshower:"  # begins the first text of other keys of its own
OWED, TIME, TIMER = _OWN + "owed", _OWN + "time", _OWN + "timer"
BEHIND = _OWN + "behind"  # up to where windows of a group have ended, if that is before TIME
# Of totals of totals: what an origin has in this task, the slots of a group, and a node of its tree
ORIGIN, SLOTS, NODE = _OWN + "origin", _OWN + "slots", _OWN + "node"
_OF_A_KEY = (TIMER, BEHIND, SLOTS, NODE)
_NOBODY = -1  # the spout task of rows that the next watermark brings, of whichever task


def is_own(key: Key) -> bool:
    """Whether a key is not one of a user's records: what the store or an operator notes."""
    if type(key) is not tuple:
        return key == ABOUT
    return bool(key) and type(key[0]) is str and key[0].startswith(_OWN)


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
    found: dict[Key, Any] = {}
    if latest > -inf:
        found[(TIME,)] = latest
    for part, time in zip(parts, times, strict=True):
        for key, value in part.beside.items() if part.is_heir else ():
            if type(key) is tuple and key[0] == OWED:
                _, _, rows = found.get((OWED, _NOBODY), (0, 0, []))
                found[OWED, _NOBODY] = [_NOBODY, 0, [*rows, *value[2]]]
            elif not is_own(key):
                found[key] = [*found.get(key, ()), *value]
        if has_panes and time < latest:
            keys = [key for key, _ in part.items()]
            groups = {key[1]: None for key in keys if type(key) is tuple and not is_own(key)}
            known = {key[1] for key in keys if type(key) is tuple and key[0] == BEHIND}
            found |= {(BEHIND, group): time for group in groups if group not in known}
    return found


# ---- state entries -------------------------------------------------------------------------------


def entries_of(operators: Iterable[Any]) -> int | None:
    """The sum over the states of operators, a shared one once. None if they have none that is open,
    or one of them does not know it. Raises what reading a store raises."""
    states = (getattr(one, "slot", None) or getattr(one, "store", None) for one in operators)
    unique = {id(state): state for state in states if state is not None}
    counts = [count_of(state) for state in unique.values()]
    known = [count for count in counts if count is not None]
    return sum(known) if known and len(known) == len(counts) else None


def count_of(state: Any) -> int | None:
    """The entries of a state; None for one that is not open, or does not know it."""
    count = getattr(state, "entry_count", None)
    found: int | None = count() if callable(count) else None
    return found
