"""The ages of the values of a keyed store, which are absent when they are older than `ttl_s`."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from itertools import islice, takewhile
from typing import Any

from sunshower.topologies.operators.states import Key

_AT_ONCE = 10_000  # keys that one commit removes


class Ages:
    """When each key was written, the oldest first. It is in memory: about 200 bytes a key."""

    def __init__(self, ttl_s: float) -> None:
        self.ttl_s = ttl_s
        self._written: OrderedDict[Key, float] = OrderedDict()

    def is_over(self, at: float, now: float) -> bool:
        """Whether a value that was written `at` is too old."""
        return at + self.ttl_s <= now

    def expired(self, now: float) -> list[Key]:
        """Keys whose values are too old; some of them, if there are many."""
        old = takewhile(lambda one: self.is_over(one[1], now), self._written.items())
        return [key for key, _ in islice(old, _AT_ONCE)]

    def note(self, stored: Iterable[tuple[Key, Any]], now: float) -> None:
        """Note what was just stored; a value without a time counts from `now`."""
        for key, at in sorted(_times(stored, now), key=lambda one: one[1]):
            self._written.pop(key, None)
            if at >= 0:
                self._written[key] = at

    def clear(self) -> None:
        """Forget all keys."""
        self._written.clear()


def stamped(plain: Any, now: float) -> Any:
    """A converted value with its time, as it is stored."""
    return {"(at)": [now, plain]}


def unstamped(stored: Any) -> tuple[float | None, Any]:
    """The time of a stored value, None without one, and the value."""
    match stored:
        case {"(at)": [int() | float() as at, plain], **others} if not others:
            return float(at), plain
    return None, stored


def _times(pairs: Iterable[tuple[Key, Any]], now: float) -> Iterator[tuple[Key, float]]:
    for key, stored in pairs:
        at, plain = unstamped(stored)
        yield key, -1.0 if plain is None else now if at is None else at
