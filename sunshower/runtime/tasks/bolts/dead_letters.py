"""Builds dead letters that any sink can write, for every record."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sunshower.failures import Failure
from sunshower.scalars import for_json
from sunshower.texts import carried, size_of
from sunshower.topologies.components import DEFAULT
from sunshower.topologies.retry import DeadLetter, fitted

ROW_BYTES = 64  # what encoding a letter as a row of a frame may add
_LINE_MAX = 120  # characters of a message id or a reason in one line


def dead_letter(
    spout: str,
    message_id: Any,
    record: Mapping[str, Any],
    failure: Failure,
    attempts: int,
    bytes_max: int = (1 << 24) - ROW_BYTES,
    *,
    stream: str = DEFAULT,
    time: float,
) -> DeadLetter:
    """The dead letter of a message of `spout` that failed `attempts` times, last with `failure`;
    `time`: Unix time.

    It has at most `bytes_max` bytes as MessagePack, by default what the usual `record_bytes_max`
    lets travel to another worker.
    """
    values = {field: _plain(value) for field, value in record.items()}
    letter = DeadLetter(
        message_id,
        values,
        spout,
        attempts,
        str(failure.cause),
        failure.component,
        failure.task,
        failure.worker,
        failure.reason,
        failure.exception,
        failure.traceback,
        stream,
        time,
        tuple(field for field, value in record.items() if values[field] is not value),
    )
    return fitted(letter, bytes_max, lambda one: size_of(tuple(one)))


def _plain(value: Any) -> Any:
    """A date, decimal, UUID, Enum or record as record_reader reads it; others as they are."""
    try:
        plain = value._asdict() if hasattr(type(value), "_fields") else for_json(value)
    except (Exception, SystemExit):  # of a property of a dataclass, too
        return value
    return plain if carried(plain, 1 << 62) is plain else value


def in_a_line(text: str) -> str:
    """The first line of `text`, cut to 120 characters."""
    line = text.strip().split("\n", 1)[0]
    return line if len(line) <= _LINE_MAX else f"{line[: _LINE_MAX - 1]}…"
