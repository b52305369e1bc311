"""A store in this process: for tests, and for what need not outlive it."""

from __future__ import annotations


class MemoryStore:
    """See the port."""

    def __init__(self) -> None:
        self._values: dict[str, bytes] = {}

    def read(self, key: str) -> bytes | None:
        """See the port."""
        return self._values.get(key)

    def write(self, key: str, value: bytes) -> None:
        """See the port."""
        self._values[key] = value

    def remove(self, prefix: str) -> None:
        """See the port."""
        self._values = {k: v for k, v in self._values.items() if not k.startswith(prefix)}
