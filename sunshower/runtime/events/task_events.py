"""Records tuple events (emitted, completed, acked, failed) in the event log (event_log.py)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from sunshower.failures import Failure
from sunshower.runtime.events.event_log import EventWriter, What
from sunshower.runtime.tracking.ids import I64, U64
from sunshower.runtime.tracking.pending import Released
from sunshower.runtime.transport.batch import Anchors, Batch


class Input(Protocol):
    """An input of a manual bolt: one edge for each of its trees."""

    @property
    def roots(self) -> Sequence[int]: ...
    @property
    def edges(self) -> Sequence[int]: ...


def emitted(
    event_writer: EventWriter,
    task: int,
    roots: U64,
    numbers: Sequence[int] | I64,
    attempts: Any,
    message_ids: list[Any] | None,
) -> None:
    """A spout task emits these roots; `attempts`: of all of them, or of each."""
    each = np.full(len(roots), attempts, np.int64)
    event_writer.note(What.EMITTED, task, roots, np.array(numbers, np.int64), each, message_ids)


def completed(event_writer: EventWriter, task: int, released: Released) -> None:
    """These trees are complete."""
    attempts = released.attempts.astype(np.int64)
    event_writer.note(What.COMPLETED, task, released.roots, released.numbers, attempts)


def failed(
    event_writer: EventWriter, task: int, released: Released, failures: Iterable[Failure]
) -> None:
    """These trees have failed."""
    attempts = released.attempts.astype(np.int64)
    causes = [failure.cause for failure in failures]
    event_writer.note(What.FAILED, task, released.roots, released.numbers, attempts, causes)


def settled(
    event_writer: EventWriter, task: int, batch: Batch, failures: Mapping[int, Failure]
) -> None:
    """A bolt task has processed a batch; `failures`: index of an input → why that one failed."""
    if not failures:
        event_writer.note_edges(What.ACKED, task, batch.roots, batch.edges)
        return
    good = np.delete(np.arange(len(batch)), list(failures))
    event_writer.note_edges(What.ACKED, task, *_rows(batch, good))
    for cause in {failure.cause: None for failure in failures.values()}:
        bad = np.array([index for index, why in failures.items() if why.cause is cause])
        event_writer.note_edges(What.REFUSED, task, *_rows(batch, bad), cause)


def inputs(
    event_writer: EventWriter, what: What, task: int, held: Iterable[Input], detail: Any = None
) -> None:
    """Record inputs that a manual bolt settles one by one."""
    rows = [row for one in held for row in zip(one.roots, one.edges, strict=True)]
    if rows:
        roots, edges = np.array(rows, np.uint64).T
        event_writer.note_edges(what, task, roots, edges, detail)


def _rows(batch: Batch, which: I64) -> tuple[U64, U64]:
    """Return the roots and edges of some records of a batch."""
    roots, edges = (Anchors(ids, batch.offsets) for ids in (batch.roots, batch.edges))
    return roots.select(which).roots, edges.select(which).roots
