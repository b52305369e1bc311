"""A keyed state that shows which numbers have arrived: a bit for each number of a key."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from sunshower import KeyState

KEYS = 30


class Keyed(NamedTuple):
    key: int
    number: int


def keyed(number: int) -> Iterator[Keyed]:
    """The number with its key."""
    yield Keyed(number % KEYS, number)


def gather(record: Keyed, state: KeyState[bytes]) -> None:
    """Set the bit of a number."""
    bits, position = bytearray(state.value or b""), record.number // KEYS
    bits.extend(bytes(max(0, position // 8 + 1 - len(bits))))
    bits[position // 8] |= 1 << position % 8
    state.value = bytes(bits)


def wrong_keys(states: Mapping[Any, bytes], total: int) -> int:
    """How many keys do not have exactly the bits that a plain program sets for 0 … total - 1."""
    return sum(states.get(key, b"") != _expected(key, total) for key in range(KEYS))


def missing_numbers(states: Mapping[Any, bytes], total: int) -> int:
    """How many of the numbers 0 … total - 1 are in no state."""
    set_bits = sum(int.from_bytes(bits, "little").bit_count() for bits in states.values())
    return total - set_bits


def _expected(key: int, total: int) -> bytes:
    count = len(range(key, total, KEYS))
    return ((1 << count) - 1).to_bytes((count + 7) // 8, "little")
