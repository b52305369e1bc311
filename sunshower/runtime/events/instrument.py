"""Records what one task does in the event log, and injects faults into it; idle by default.

Every task calls its `Instrument`, so the task code needs no branches for experiments. Without an
experiment there is no event writer and no fault, and each call returns at once; there are a few
calls for each batch, and none for each record. The events are described in event_log.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

import numpy as np

from sunshower.failures import Cause, Failure
from sunshower.runtime.events.event_log import EventWriter, What
from sunshower.runtime.events.task_faults import NO_FAULTS
from sunshower.runtime.tracking.ids import I64, U64
from sunshower.runtime.tracking.pending import Released
from sunshower.runtime.transport.batch import Anchors, Batch


class AnchoredInput(Protocol):
    """An input of a manual bolt: one edge for each of its trees."""

    @property
    def roots(self) -> Sequence[int]: ...
    @property
    def edges(self) -> Sequence[int]: ...


class Instrument:
    """The instrument of one task. `faults` apply to the calls of its user code."""

    def __init__(self, task: int, event_writer: EventWriter | None = None) -> None:
        self.faults = NO_FAULTS
        self._task = task
        self._event_writer = event_writer

    # ---- spouts -----------------------------------------------------------------------------

    def emitted(
        self,
        roots: U64,
        numbers: Sequence[int] | I64,
        attempts: Any,
        message_ids: list[Any] | None,
    ) -> None:
        """A spout task emits these roots; `attempts`: of all of them, or of each."""
        if (writer := self._event_writer) is not None and len(roots):
            each = np.full(len(roots), attempts, np.int64)
            writer.note(
                What.EMITTED, self._task, roots, np.array(numbers, np.int64), each, message_ids
            )

    def completed(self, released: Released) -> None:
        """These trees are complete."""
        if (writer := self._event_writer) is not None and len(released.roots):
            attempts = released.attempts.astype(np.int64)
            writer.note(What.COMPLETED, self._task, released.roots, released.numbers, attempts)

    def failed(self, released: Released, failures: Iterable[Failure]) -> None:
        """These trees have failed."""
        if (writer := self._event_writer) is not None and len(released.roots):
            attempts = released.attempts.astype(np.int64)
            causes = [failure.cause for failure in failures]
            writer.note(What.FAILED, self._task, released.roots, released.numbers, attempts, causes)

    def buried(self, number: int) -> None:
        """A message has become a dead letter."""
        if (writer := self._event_writer) is not None:
            writer.note(What.BURIED, self._task, values=np.array([number]))

    # ---- bolts ------------------------------------------------------------------------------

    def delivered(self, batch: Batch) -> None:
        """User code is called with a batch; it may be called again for what it did not take."""
        if (writer := self._event_writer) is not None and not batch.is_recorded:
            writer.note_edges(What.DELIVERED, self._task, batch.roots, batch.edges)

    def settled(self, batch: Batch, failures: Mapping[int, Failure]) -> None:
        """A batch is processed; `failures`: index of an input → why that one failed."""
        if (writer := self._event_writer) is None:
            return
        if not failures:
            writer.note_edges(What.ACKED, self._task, batch.roots, batch.edges)
            return
        good = np.delete(np.arange(len(batch)), list(failures))
        writer.note_edges(What.ACKED, self._task, *_rows(batch, good))
        for cause in {failure.cause: None for failure in failures.values()}:
            bad = np.array([index for index, why in failures.items() if why.cause is cause])
            writer.note_edges(What.REFUSED, self._task, *_rows(batch, bad), cause)

    def joined(self, batches: Sequence[Batch], joined: Batch) -> None:
        """Shared batches are processed as one: a tree that is in several of them acks its edges,
        and sends this task their XOR."""
        if (writer := self._event_writer) is None:
            return
        for batch in batches:
            self.delivered(batch)
            places = np.searchsorted(joined.roots, batch.roots)
            merged = joined.edges[places] != batch.edges
            writer.note_edges(What.ACKED, self._task, batch.roots[merged], batch.edges[merged])
        single = np.concatenate([batch.edges for batch in batches])
        new = ~np.isin(joined.edges, single)
        roots, edges = joined.roots[new], joined.edges[new]
        writer.note_edges(What.SENT, self._task, roots, edges, self._task)
        writer.note_edges(What.DELIVERED, self._task, roots, edges)
        joined.is_recorded = True

    def refused(self, batch: Batch, cause: Cause) -> None:
        """A batch fails without a call of user code."""
        if (writer := self._event_writer) is not None:
            writer.note_edges(What.REFUSED, self._task, batch.roots, batch.edges, cause)

    def inputs(self, held: Iterable[AnchoredInput], refused: Cause | None = None) -> None:
        """Inputs that a manual bolt settles one by one; `refused`: why they failed, if they did."""
        if (writer := self._event_writer) is None:
            return
        rows = [row for one in held for row in zip(one.roots, one.edges, strict=True)]
        if rows:
            roots, edges = np.array(rows, np.uint64).T
            writer.note_edges(
                What.REFUSED if refused else What.ACKED, self._task, roots, edges, refused
            )

    # ---- all tasks --------------------------------------------------------------------------

    def sent(self, batch: Batch, target: int) -> None:
        """A batch is sent to a task."""
        if (writer := self._event_writer) is not None:
            writer.note_edges(What.SENT, self._task, batch.roots, batch.edges, target)

    @property
    def of_user_code(self) -> Sequence[Callable[[Any, Any], None]]:
        """What `wrote` and `noted` of the task's Context call; empty without an event log."""
        if (writer := self._event_writer) is None:
            return ()

        def note(what: What, key: Any, value: Any) -> None:
            writer.note(what, self._task, detail=(key, value))

        return [partial(note, what) for what in (What.WROTE, What.NOTED)]


def _rows(batch: Batch, which: I64) -> tuple[U64, U64]:
    """The roots and edges of some records of a batch."""
    roots, edges = (Anchors(ids, batch.offsets) for ids in (batch.roots, batch.edges))
    return roots.select(which).roots, edges.select(which).roots
