"""Builds dead letters whose values JSON and MessagePack can encode, whatever the record holds."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from sunshower.failures import Failure
from sunshower.topologies.retry import DeadLetter

_LINE_MAX = 120  # characters of a message id or a reason in one line


def dead_letter(
    spout: str, message_id: Any, record: Mapping[str, Any], failure: Failure, attempts: int
) -> DeadLetter:
    """The dead letter of a message of `spout` that failed `attempts` times, last with `failure`."""
    return DeadLetter(
        _carried(message_id),
        {field: _carried(value) for field, value in record.items()},
        spout,
        attempts,
        str(failure.cause),
        failure.component,
        failure.task,
        failure.worker,
        failure.reason,
        failure.exception,
        failure.traceback,
    )


def in_a_line(text: str) -> str:
    """The first line of `text`, cut to 120 characters."""
    line = text.strip().split("\n", 1)[0]
    return line if len(line) <= _LINE_MAX else f"{line[: _LINE_MAX - 1]}…"


def safe_repr(value: Any) -> str:
    """`repr(value)`; a placeholder with the type's name if `__repr__` raises."""
    try:
        return repr(value)
    except Exception as error:
        return f"<{type(value).__name__}, whose repr raised {type(error).__name__}>"


def _carried(value: Any) -> Any:
    try:
        return value if _is_plain(value) else safe_repr(value)
    except RecursionError:
        return safe_repr(value)


def _is_plain(value: Any) -> bool:
    """Whether JSON and MessagePack can encode `value`: no NaN, ints of 64 bits, str keys.

    Subclasses do not count as plain: encoding would lose what they add.
    """
    kind = type(value)
    if kind is list or kind is tuple:
        return all(map(_is_plain, value))
    if kind is dict:
        return all(type(key) is str for key in value) and all(map(_is_plain, value.values()))
    if kind is int:
        return bool(-(1 << 63) <= value < 1 << 64)
    if kind is float:
        return math.isfinite(value)
    return kind is str or kind is bool or value is None
