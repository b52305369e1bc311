"""The port for byte stores: bytes under keys, written whole and read whole."""

from __future__ import annotations

from typing import Protocol


class Store(Protocol):
    """A small store that outlives the process that writes to it."""

    def read(self, key: str) -> bytes | None:
        """The value last written under `key`; None if there is none."""

    def write(self, key: str, value: bytes) -> None:
        """Store `value` under `key`. Once this returns, no process crash can lose it."""

    def remove(self, prefix: str) -> None:
        """Remove all keys that begin with `prefix`."""


class MemoryStore:
    """Implements the port `Store`."""

    def __init__(self) -> None:
        self._values: dict[str, bytes] = {}

    def read(self, key: str) -> bytes | None:
        return self._values.get(key)

    def write(self, key: str, value: bytes) -> None:
        self._values[key] = value

    def remove(self, prefix: str) -> None:
        self._values = {k: v for k, v in self._values.items() if not k.startswith(prefix)}
