"""A bounded set of seen keys, which drops the oldest ones first."""

from __future__ import annotations

from collections.abc import Hashable, Iterable


class KeyCache:
    """A set of at most `memory` keys, at least one."""

    def __init__(self, memory: int, keys: Iterable[Hashable] = ()) -> None:
        self.memory = memory
        self._keys: dict[Hashable, None] = {}
        self.add(keys)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._keys

    def __len__(self) -> int:
        return len(self._keys)

    def add(self, keys: Iterable[Hashable]) -> None:
        """Add these; a key that is added again counts as new."""
        for key in keys:
            self._keys.pop(key, None)
            self._keys[key] = None
        while len(self._keys) > self.memory:
            del self._keys[next(iter(self._keys))]

    def keys(self) -> list[Hashable]:
        """All keys, the oldest first."""
        return list(self._keys)
