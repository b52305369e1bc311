"""The port: bytes under names, written whole and read whole."""

from __future__ import annotations

from typing import Protocol


class Store(Protocol):
    """A small memory that outlives the process that writes to it."""

    def read(self, key: str) -> bytes | None:
        """What was written last under `key`; None if there is nothing."""

    def write(self, key: str, value: bytes) -> None:
        """Keep `value` under `key`. When this returns, no death of a process can lose it."""

    def remove(self, prefix: str) -> None:
        """Forget everything under keys that begin with `prefix`."""
