"""What a state has written lately, so that it need not be read again.

Two generations: what is asked for or written stays in the young one; when that is full it becomes
the old one, and the old one goes. Storm: org.apache.storm.trident.state.map.CachedMap (an LRU).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Generic, TypeVar

T = TypeVar("T")


class Recent(Generic[T]):
    """`keys_max` keys at most, as long as nobody else writes."""

    def __init__(self, keys_max: int) -> None:
        self._room = max(1, keys_max // 2)
        self._young: dict[str, T] = {}
        self._old: dict[str, T] = {}

    def find(self, texts: Iterable[str]) -> dict[str, T]:
        """Those of the keys that are known."""
        young, old = self._young, self._old
        found = {}
        for text in texts:
            stored = young.get(text) or old.get(text)
            if stored is not None:
                found[text] = stored
        return found

    def keep(self, written: Mapping[str, T], changed: Iterable[str]) -> None:
        """These were written just now; of others that have changed, nothing is known any more."""
        for text in changed:
            self._young.pop(text, None)
            self._old.pop(text, None)
        self._young.update(written)
        if len(self._young) > self._room:
            self._old = self._young if len(self._young) <= 2 * self._room else {}
            self._young = {}

    def clear(self) -> None:
        """Nothing is known."""
        self._young, self._old = {}, {}

    def __len__(self) -> int:
        return len(self._young) + len(self._old)
