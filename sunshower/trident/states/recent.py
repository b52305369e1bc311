"""A cache of recently written values of a state, so that they need not be read again.

It has two generations: writes go to the young one; when that is full it becomes the old one, and
the old one is dropped. Storm: org.apache.storm.trident.state.map.CachedMap (an LRU).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Generic, TypeVar

T = TypeVar("T")


class Recent(Generic[T]):
    """Caches at most `keys_max` keys; valid while there is no other writer."""

    def __init__(self, keys_max: int) -> None:
        self._room = max(1, keys_max // 2)
        self._young: dict[str, T] = {}
        self._old: dict[str, T] = {}

    def find(self, texts: Iterable[str]) -> dict[str, T]:
        """The cached values of these keys."""
        young, old = self._young, self._old
        found = {}
        for text in texts:
            stored = young.get(text) or old.get(text)
            if stored is not None:
                found[text] = stored
        return found

    def keep(self, written: Mapping[str, T], changed: Iterable[str]) -> None:
        """Cache what was just written, and drop other keys that have changed."""
        for text in changed:
            self._young.pop(text, None)
            self._old.pop(text, None)
        self._young.update(written)
        if len(self._young) > self._room:
            self._old = self._young if len(self._young) <= 2 * self._room else {}
            self._young = {}

    def clear(self) -> None:
        """Drop everything."""
        self._young, self._old = {}, {}

    def __len__(self) -> int:
        return len(self._young) + len(self._old)
