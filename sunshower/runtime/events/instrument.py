"""Records what one task does, in the event log and for traces, and injects faults into it.

There are a few calls for each batch, and none for each record. Without an experiment there is no
event writer and no fault; with `trace_share=0` no trace recorder. Without both, `records` is false:
calls return at once, and are not made where a batch passes. The events are described in
event_log.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import ceil
from typing import Any, Protocol

import numpy as np

from sunshower.failures import Cause, Failure
from sunshower.runtime.events.event_log import EventWriter, What
from sunshower.runtime.events.injected_faults import NO_FAULTS
from sunshower.runtime.events.trace_recorder import TREES_AT_ONCE, TREES_PER_S, TraceRecorder
from sunshower.runtime.tracking.batch import Batch
from sunshower.runtime.tracking.ids import I64, U64, is_traced, traced_of
from sunshower.runtime.tracking.pending import Released

# ---- trace choice --------------------------------------------------------------------------------
# Chooses which trees of a spout task are traced: an even sample of all, and every replay.
#
# The chosen trees get a root that says so (see ids.py), so no other task has to decide. Each
# stretch of 1/share trees has one chosen tree, not at the same place of each: a source may repeat
# itself, and then equal places would always have the same kind of record.

_GOLDEN = 0.618_033_988_749_895  # its multiples, modulo 1, are spread evenly


class TraceChoice:
    """Of one spout task; `share`: of its trees, above 0."""

    def __init__(self, share: float) -> None:
        self._share = share
        self._chosen = 0  # stretches that had their tree
        self._seen = 0  # trees emitted
        self._next = 0  # the number of the next tree to choose
        self._budget, self._budget_s = float(TREES_AT_ONCE), 0.0

    def positions(self, count: int, attempts: Any, now: float) -> Sequence[int]:
        """Which of `count` new trees are traced; `attempts`: of all of them, or of each."""
        chosen: Sequence[int] = ()
        if not isinstance(attempts, int) or attempts > 1:
            again = np.asarray(attempts) > 1
            chosen = range(count) if again.ndim == 0 else np.flatnonzero(again).tolist()
        if self._next < self._seen + count:
            chosen = sorted({*chosen, *self._sampled(count)})
        self._seen += count
        return self._within_budget(chosen, now) if chosen else chosen

    def _sampled(self, count: int) -> list[int]:
        positions = []
        while self._next < self._seen + count:
            positions.append(self._next - self._seen)
            self._chosen += 1
            first, end = (ceil(number / self._share) for number in (self._chosen, self._chosen + 1))
            self._next = first + int(self._chosen * _GOLDEN % 1 * (end - first))
        return positions

    def _within_budget(self, chosen: Sequence[int], now: float) -> Sequence[int]:
        gained = (now - self._budget_s) * TREES_PER_S
        self._budget, self._budget_s = min(self._budget + gained, float(TREES_AT_ONCE)), now
        chosen = chosen[: int(self._budget)]
        self._budget -= len(chosen)
        return chosen


# ---- instrument ----------------------------------------------------------------------------------


class AnchoredInput(Protocol):
    """An input of a manual bolt: one edge for each of its trees."""

    @property
    def roots(self) -> Sequence[int]: ...
    @property
    def edges(self) -> Sequence[int]: ...


class Instrument:
    """The instrument of one task. `faults` apply to the calls of its user code."""

    def __init__(
        self,
        task: int,
        event_writer: EventWriter | None = None,
        trace_recorder: TraceRecorder | None = None,
    ) -> None:
        self.faults = NO_FAULTS
        self._task = task
        self._event_writer = event_writer
        self._trace_recorder = trace_recorder
        self.records = event_writer is not None or trace_recorder is not None

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

    def traced(self, root: int, number: int, attempt: int, message_id: Any) -> None:
        """A spout task emits this root, which is traced."""
        if (recorder := self._trace_recorder) is not None:
            recorder.emitted(self._task, root, number, attempt, message_id)

    def completed(self, released: Released) -> None:
        """These trees are complete."""
        self._ended(What.COMPLETED, released)

    def failed(self, released: Released, failures: Sequence[Failure]) -> None:
        """These trees have failed."""
        self._ended(What.FAILED, released, failures)

    def dead(self, number: int) -> None:
        """A message has become a dead letter."""
        if (writer := self._event_writer) is not None:
            writer.note(What.DEAD, self._task, values=np.array([number]))

    # ---- bolts ------------------------------------------------------------------------------

    def delivered(self, batch: Batch) -> None:
        """User code is called with a batch; it may be called again for what it did not take."""
        if self.records and not batch.is_recorded:
            self._note_edges(What.DELIVERED, batch.roots, batch.edges)

    def settled(self, batch: Batch, failures: Mapping[int, Failure]) -> None:
        """A batch is processed; `failures`: index of an input → why that one failed."""
        if not self.records:
            return
        if not failures:
            self._note_edges(What.ACKED, batch.roots, batch.edges)
            return
        good = np.delete(np.arange(len(batch)), list(failures))
        self._note_edges(What.ACKED, *batch.ids_of(good))
        for cause in {failure.cause: None for failure in failures.values()}:
            bad = np.array([index for index, why in failures.items() if why.cause is cause])
            self._note_edges(What.REFUSED, *batch.ids_of(bad), cause)

    def joined(self, batches: Sequence[Batch], joined: Batch) -> None:
        """Batches are processed as one. In shared ones, a tree that is in several of them acks its
        edges, and sends this task their XOR."""
        if not self.records or not joined.shared:
            return
        for batch in batches:
            self.delivered(batch)
        trees, parts = self._noted(joined), [self._noted(batch) for batch in batches]
        for part in parts:
            places = np.searchsorted(trees.roots, part.roots)
            merged = trees.edges[places] != part.edges
            self._note_edges(What.ACKED, part.roots[merged], part.edges[merged])
        new = ~np.isin(trees.edges, np.concatenate([part.edges for part in parts]))
        roots, edges = trees.roots[new], trees.edges[new]
        self._note_edges(What.SENT, roots, edges, self._task, joined)
        self._note_edges(What.DELIVERED, roots, edges)
        joined.is_recorded = True

    def refused(self, batch: Batch, cause: Cause) -> None:
        """A batch fails without a call of user code."""
        if self.records:
            self._note_edges(What.REFUSED, batch.roots, batch.edges, cause)

    def inputs(self, held: Iterable[AnchoredInput], refused: Cause | None = None) -> None:
        """Inputs that a manual bolt settles one by one; `refused`: why they failed, if they did."""
        if not self.records:
            return
        pairs = (
            pair for anchored in held for pair in zip(anchored.roots, anchored.edges, strict=True)
        )
        if self._event_writer is None:  # a row of an array for each input takes longer
            pairs = (pair for pair in pairs if is_traced(pair[0]))
        if rows := list(pairs):
            roots, edges = np.array(rows, np.uint64).T
            self._note_edges(What.REFUSED if refused else What.ACKED, roots, edges, refused)

    # ---- all tasks --------------------------------------------------------------------------

    def sent(self, batch: Batch, target: int) -> None:
        """A batch is sent to a task."""
        if self.records:
            self._note_edges(What.SENT, batch.roots, batch.edges, target, batch)

    @property
    def of_user_code(self) -> Sequence[Callable[[Any, Any], None]]:
        """What `wrote` and `noted` of the task's Context call; empty without an event log."""
        if (writer := self._event_writer) is None:
            return ()

        def note(what: What, key: Any, value: Any) -> None:
            writer.note(what, self._task, detail=(key, value))

        return [partial(note, what) for what in (What.WROTE, What.NOTED)]

    # ---- helpers ------------------------------------------------------------------------------

    def _ended(
        self, what: What, released: Released, failures: Sequence[Failure] | None = None
    ) -> None:
        if (recorder := self._trace_recorder) is not None:
            recorder.ended(self._task, released.roots, failures)
        if (writer := self._event_writer) is not None and len(released.roots):
            attempts = released.attempts.astype(np.int64)
            causes = None if failures is None else [failure.cause for failure in failures]
            writer.note(what, self._task, released.roots, released.numbers, attempts, causes)

    def _note_edges(
        self, what: What, roots: U64, edges: U64, detail: Any = None, batch: Batch | None = None
    ) -> None:
        if self._event_writer is not None:
            self._event_writer.note_edges(what, self._task, roots, edges, detail)
        if self._trace_recorder is not None:
            self._trace_recorder.note_edges(what, self._task, roots, edges, detail, batch)

    def _noted(self, batch: Batch) -> Batch:
        """A shared batch with those trees only that are recorded."""
        if self._event_writer is not None:
            return batch
        traced = traced_of(batch.roots)
        return replace(batch, roots=batch.roots[traced], edges=batch.edges[traced])
