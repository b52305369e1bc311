"""Builds dead letters that any sink can write, whatever the record holds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sunshower.failures import Failure
from sunshower.texts import size_of
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
) -> DeadLetter:
    """The dead letter of a message of `spout` that failed `attempts` times, last with `failure`.

    It has at most `bytes_max` bytes as MessagePack, by default what the usual `record_bytes_max`
    lets travel to another worker.
    """
    letter = DeadLetter(
        message_id,
        dict(record),
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
    return fitted(letter, bytes_max, lambda one: size_of(tuple(one)))


def in_a_line(text: str) -> str:
    """The first line of `text`, cut to 120 characters."""
    line = text.strip().split("\n", 1)[0]
    return line if len(line) <= _LINE_MAX else f"{line[: _LINE_MAX - 1]}…"
