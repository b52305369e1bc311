"""The dead letters of a batch that is skipped: its rows, and why."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sunshower.failures import Cause, Failure
from sunshower.records import Schema
from sunshower.runtime.letters import dead_letter
from sunshower.topologies.retry import DeadLetter

_LENGTH = 8  # of a packed failure


def packed(failure: Failure, times: int) -> list[Any]:
    """A failure and how often there was one, as plain values that travel in a Word."""
    return [
        *(str(failure.cause), failure.component, failure.task, failure.reason),
        *(failure.exception, failure.traceback, failure.worker, times),
    ]


def is_packed(value: Any) -> bool:
    """Whether a value may be what `packed` has made."""
    return isinstance(value, list) and len(value) == _LENGTH and value[0] in set(Cause)


def letters(
    spout: str, txid: int, schema: Schema, rows: Sequence[Any], why: Sequence[Any]
) -> list[DeadLetter]:
    """One letter for each row of a batch; its message id is the txid."""
    cause, *place, times = why
    failure = Failure(Cause(cause), *place)
    return [
        dead_letter(spout, txid, dict(zip(schema.fields, row, strict=True)), failure, times)
        for row in schema.rows(rows)
    ]
