"""The dead letters of a skipped batch: its rows, and the failure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sunshower.errors import IncompleteBatch
from sunshower.failures import Cause, Failure
from sunshower.records import Schema
from sunshower.runtime.tasks.bolts.dead_letters import dead_letter
from sunshower.topologies.retry import DeadLetter

_LENGTH = 8  # of a packed failure


def packed_failure(failure: Failure, times: int) -> list[Any]:
    """A failure and the number of failures, as plain values that a BatchCommand carries."""
    return [
        *(str(failure.cause), failure.component, failure.task, failure.reason),
        *(failure.exception, failure.traceback, failure.worker, times),
    ]


def is_packed(value: Any) -> bool:
    """Whether a value looks like a result of `packed_failure`."""
    return isinstance(value, list) and len(value) == _LENGTH and value[0] in set(Cause)


def letters(
    spout: str, txid: int, schema: Schema, rows: Sequence[Any], why: Sequence[Any], time: float
) -> list[DeadLetter]:
    """One letter for each row of a batch; its message id is the txid."""
    failure, times = _unpacked(why)
    records = (dict(zip(schema.fields, row, strict=True)) for row in schema.rows(rows))
    return [dead_letter(spout, txid, one, failure, times, time=time) for one in records]


def letter_without_rows(
    spout: str, txid: int, error: IncompleteBatch, why: Sequence[Any], time: float
) -> DeadLetter:
    """The letter, without a record, for rows of a batch that can no longer be emitted."""
    failure, times = _unpacked(why)
    failure = replace(failure, reason=str(error), exception=type(error).__name__)
    return dead_letter(spout, txid, {}, failure, times, time=time)


def _unpacked(why: Sequence[Any]) -> tuple[Failure, int]:
    cause, *place, times = why
    return Failure(Cause(cause), *place), times
