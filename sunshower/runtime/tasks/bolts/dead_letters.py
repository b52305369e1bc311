"""Builds dead letters that any sink can write, for every record."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sunshower.failures import Failure
from sunshower.runtime.tasks.letter_values import LetterValues, readable
from sunshower.texts import size_of
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
    forms: LetterValues | None = None,
) -> DeadLetter:
    """The dead letter of a message of `spout` that failed `attempts` times, last with `failure`;
    `time`: Unix time; `forms`: how the values are written, so that a replay restores them.

    It has at most `bytes_max` bytes as MessagePack, by default what the usual `record_bytes_max`
    lets travel to another worker.
    """
    if forms is not None:
        values, texts, marked = forms.written(record)
    else:
        values, marked = {field: readable(value) for field, value in record.items()}, []
        texts = [field for field, value in record.items() if values[field] is not value]
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
        tuple(texts),
        tuple(marked),
    )
    return fitted(letter, bytes_max, lambda one: size_of(tuple(one)))


def in_a_line(text: str) -> str:
    """The first line of `text`, cut to 120 characters."""
    line = text.strip().split("\n", 1)[0]
    return line if len(line) <= _LINE_MAX else f"{line[: _LINE_MAX - 1]}…"
