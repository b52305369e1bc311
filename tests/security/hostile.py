"""Changes bytes, values and MessagePack data at random, for tests with hostile input."""

from __future__ import annotations

import random
from typing import Any

import msgpack

INTS = (0, 1, -1, 7, 255, 1 << 16, 1 << 31, (1 << 32) - 1, 1 << 40, (1 << 63) - 1, (1 << 64) - 1)
OTHERS: tuple[Any, ...] = (None, True, -1, 1.5, "", "text", b"", b"\xff" * 8, [], [[]], {}, {1: 2})
# Bytes that begin a value of another type or length in MessagePack.
MARKERS = (0, 1, 0x7F, 0x80, 0xC0, 0xC1, 0xC9, 0xCF, 0xD9, 0xDC, 0xDD, 0xDF, 0xE0, 0xFF)


def mutated_bytes(data: bytes, dice: random.Random) -> bytes:
    """Return the data with some bytes changed, removed, repeated or added."""
    mutated = bytearray(data)
    for _ in range(dice.choice((1, 1, 2, 4, 16))):
        at = dice.randrange(len(mutated) + 1)
        match dice.randrange(6):
            case 0:
                del mutated[at:]
            case 1:
                del mutated[at : at + dice.randrange(1, 9)]
            case 2:
                mutated[at:at] = dice.randbytes(dice.randrange(1, 9))
            case 3:
                mutated[at:at] = mutated[at : at + dice.randrange(1, 64)]
            case _ if at < len(mutated):
                mutated[at] = dice.choice((dice.randrange(256), dice.choice(MARKERS)))
    return bytes(mutated)


def mutated_value(value: Any, dice: random.Random) -> Any:
    """Return the value with one part changed, at any depth, mostly to a value of the same type."""
    if isinstance(value, list | tuple) and value:
        parts = list(value)
        full = [at for at, part in enumerate(parts) if part not in ([], {}, b"", "")]
        at = dice.choice(full if full and dice.random() < 0.95 else range(len(parts)))
        match dice.randrange(40):
            case 0:
                del parts[at]
            case 1:
                parts.insert(at, parts[at])
            case 2:
                parts[at] = dice.choice(OTHERS)
            case _:
                parts[at] = mutated_value(parts[at], dice)
        return parts
    if isinstance(value, dict) and value:
        name = dice.choice([*value])
        match dice.randrange(20):
            case 0:
                return {key: item for key, item in value.items() if key != name}
            case 1:
                return {**value, "other": 1}
            case _:
                return {**value, name: mutated_value(value[name], dice)}
    if dice.random() < 0.15:
        return dice.choice((*OTHERS, *INTS))
    if isinstance(value, bytes) and value:
        return _flipped(value, dice) if dice.random() < 0.7 else mutated_bytes(value, dice)
    if type(value) is int:
        near = min(value + dice.choice((-1, 1)), INTS[-1])
        return dice.choice((near, near, dice.randrange(64), dice.choice(INTS)))
    return dice.choice(OTHERS)


def _flipped(data: bytes, dice: random.Random) -> bytes:
    """Return the data with some bytes changed, but of the same length."""
    mutated = bytearray(data)
    for _ in range(dice.choice((1, 1, 2, 8))):
        mutated[dice.randrange(len(mutated))] = dice.choice(
            (dice.randrange(256), dice.choice(MARKERS))
        )
    return bytes(mutated)


def mutated_messagepack(data: bytes, dice: random.Random) -> bytes:
    """Return MessagePack data with changed bytes, or with changed parts of its value."""
    if dice.random() < 0.2:
        return mutated_bytes(data, dice)
    errors = "surrogatepass"
    value = msgpack.unpackb(data, strict_map_key=False, unicode_errors=errors)
    for _ in range(dice.choice((1, 1, 1, 2, 3))):
        value = mutated_value(value, dice)
    packed: bytes = msgpack.packb(value, unicode_errors=errors)
    return packed
