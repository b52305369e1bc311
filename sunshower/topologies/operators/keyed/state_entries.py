"""Counts the entries of operators' states, if this needs no request to a server."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


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
