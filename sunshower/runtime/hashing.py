"""A hash of key values that every process, machine and restart agrees on (Python salts its own)."""

from __future__ import annotations

from typing import Any
from zlib import crc32

from sunshower.errors import BadEmit

_KEYS_MAX = 1 << 16


def stable_hash(value: Any) -> int:
    """32 bits of `value`: str, bytes, int, float, bool, None, and tuples or lists of these.

    Values that are equal in Python hash equally, so 1, 1.0 and True share a task.
    Storm: java.util.Arrays.deepHashCode in TupleUtils.chooseTaskIndex. Raises BadEmit for others.
    """
    if isinstance(value, str):
        return crc32(value.encode("utf-8", "surrogatepass"))
    return crc32(_canonical(value))


def _canonical(value: Any) -> bytes:
    match value:
        case str():
            return b"s" + value.encode("utf-8", "surrogatepass")
        case bytes() | bytearray():
            return b"b" + bytes(value)
        case float() if not value.is_integer():
            return b"f" + repr(value).encode()
        case bool() | int() | float():
            return b"i%d" % int(value)
        case None:
            return b"n"
        case tuple() | list():
            parts = [_canonical(part) for part in value]
            return b"t" + b"".join(b"%d:" % len(part) + part for part in parts)
    raise BadEmit(
        f"a key of type {type(value).__name__} has no hash that all processes agree on: group by "
        "str, bytes, int, float, bool, None, or tuples of these"
    )


class KeyTable(dict[Any, int]):
    """key → index of its task; remembers the keys it has met, up to a limit."""

    def __init__(self, tasks: int) -> None:
        super().__init__()
        self._tasks = tasks

    def __missing__(self, key: Any) -> int:
        if len(self) >= _KEYS_MAX:
            self.clear()
        index = self[key] = stable_hash(key) % self._tasks
        return index

    def find(self, key: Any) -> int:
        """The same for keys that Python cannot hash, such as lists."""
        try:
            return self[key]
        except TypeError:
            return stable_hash(key) % self._tasks
