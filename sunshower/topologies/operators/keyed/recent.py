"""A cache of recently used values of a state, so that they need not be read again.

It has two generations: values go to the young one; when that is full it becomes the old one, and
the old one is dropped. Storm: org.apache.storm.trident.state.map.CachedMap (an LRU).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any, Generic, TypeVar

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")
_MISSING: Any = object()


class Recent(Generic[K, T]):
    """Caches values of at most `size_max` in all; valid while there is no other writer. `size_of`:
    the size of a key and its value; None: each counts as 1."""

    def __init__(self, size_max: int, size_of: Callable[[K, T], int] | None = None) -> None:
        self._room = max(1, size_max // 2)
        self._size_of = size_of
        self._young: dict[K, T] = {}
        self._old: dict[K, T] = {}
        self._size = 0  # of the young generation, or more

    def find(self, keys: Iterable[K]) -> dict[K, T]:
        """The cached values of these keys."""
        young, old, missing = self._young, self._old, _MISSING
        found = {}
        for key in keys:
            value = young.get(key, missing)
            if value is missing:
                value = old.get(key, missing)
            if value is not missing:
                found[key] = value
        return found

    def keep(self, used: Mapping[K, T], changed: Iterable[K] = ()) -> None:
        """Cache what was just read or written, and drop other keys that have changed."""
        for key in changed:
            self._young.pop(key, None)
            self._old.pop(key, None)
        self._young.update(used)
        if self._size_of is None:
            self._size = len(self._young)
        else:
            self._size += sum(map(self._size_of, used.keys(), used.values()))
        if self._size > self._room:
            self._old = self._young if self._size <= 2 * self._room else {}
            self._young, self._size = {}, 0

    def clear(self) -> None:
        """Drop everything."""
        self._young, self._old, self._size = {}, {}, 0

    def __len__(self) -> int:
        return len(self._young) + len(self._old)
