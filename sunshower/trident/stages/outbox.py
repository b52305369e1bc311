"""Delivers the rows of committed batches once; separate because operators have no receivers.

    commit of batch 7 ──▶ its rows are in the state, with the batch ──┐
    `$success` of 7, or the commit of 8: 7 is committed ──────────────┴──▶ delivered ──▶ noted as 7

A batch that is repeated replaces its rows in the state, and nothing of it was delivered before. The
receiver notes the last batch together with its rows, or gets the same rows at the same place again.
After a crash the next task reads both, and delivers what is left. A task that ends in order removes
what is delivered, so the next one needs no note of it.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, Protocol

from sunshower.clock import Clock
from sunshower.errors import (
    StaleGeneration,
    StateMismatch,
    SunshowerError,
    TopologyFailed,
    Unavailable,
    user_errors,
)
from sunshower.outages import is_unavailable
from sunshower.texts import describe_error
from sunshower.topologies.components import Context
from sunshower.topologies.operators.port import Attempt, Emit
from sunshower.topologies.operators.states import Key, MapState
from sunshower.topologies.operators.totals import Persist
from sunshower.trident.stages.persisting import BatchSlot
from sunshower.trident.stages.plan import Publishing

_LOG = logging.getLogger("sunshower.trident")
_CHUNK = 500  # rows of an entry of the state
_LAST_S, _APART_S = 20.0, 0.5  # at the end; workers have 29 s to close their tasks


class Delivery(Protocol):
    """What receives the rows. All raise what means an outage, or StaleGeneration; then they are
    called again, `open` first. What else `open` and `deliver` raise ends the topology."""

    notes: bool  # whether `open` returns what was delivered; else a delivery may be repeated
    note: str  # what `open` reads, for errors
    anew: str  # how to declare another receiver, for errors

    def prepare(self, context: Context) -> None: ...
    def packed(self, rows: Sequence[Any]) -> Iterable[Any]:
        """What is stored of rows, and delivered. What it raises fails the batch."""

    def open(self, batches: str) -> int:
        """Keep out former lives of the task, and return the last batch that was delivered.
        `batches`: which numbering of batches, and which state, it is. Raises StateMismatch for the
        note of another."""

    def deliver(self, txid: int, packed: Sequence[Any]) -> None:
        """Deliver a batch, all or nothing, and note it."""

    def close(self) -> None: ...


class Outbox(Persist, Publishing):
    """Stores what `delivery` packs of the rows of a batch, and lets it deliver what is committed.
    It is one task. Entries of its state: (txid, number): [batch delivered then, packed rows]."""

    def __init__(self, slot: BatchSlot, delivery: Delivery, where: str) -> None:
        """`where`: the sink, for errors."""
        super().__init__(slot)
        self.slot: BatchSlot = slot
        self.delivery = delivery
        self._where = f"{where}, state {slot.stored_name!r}"

    def prepare(self, context: Context) -> None:
        self._clock: Clock = context.clock
        self._delivered = 0  # the last batch that was
        self._is_open = False
        self._waiting: dict[int, list[Any]] | None = None  # by batch; None: the state knows
        self._keys: tuple[int, list[Key], list[Key]] | None = None  # batch; those before, after it
        super().prepare(context)
        try:
            self.delivery.prepare(context)
        except BaseException:
            self.slot.close()
            raise

    def process(self, batch: Any, source: int, rows: Sequence[Any], emit: Emit) -> None:
        batch.extend(self.delivery.packed(rows))

    def finish(self, batch: Any, attempt: Attempt, emit: Emit) -> None:
        """Deliver all earlier batches, then store this one. Raises Unavailable, TopologyFailed."""
        txid = attempt.txid
        self._deliver(txid - 1)
        if self._delivered >= txid:
            raise TopologyFailed(
                f"{self._where}: batch {self._delivered} was delivered, but batch {txid} is not "
                f"committed: the store of the batches was rolled back. Put back what was there; or "
                f"give {self.delivery.anew}, which gets batch {txid} and those after it again"
            )
        self._waiting, keys, self._keys = None, self._keys, None
        self._before, self._after = self._keys_before(keys, txid), list[Key]()
        try:
            super().finish(batch, attempt, emit)
        except StateMismatch as error:
            raise TopologyFailed(f"{self._where}: {error}") from error
        self._waiting = {txid: batch} if batch else {}
        if self._before is not None:
            self._keys = txid, self._before, self._after if batch else self._before

    def write(self, state: MapState, batch: Any, attempt: Attempt) -> Sequence[Any]:
        if self._before is None:
            self._before = [key for key, _ in self.slot.items()]
        changes: dict[Key, Any] = dict.fromkeys(self._before)
        for first in range(0, len(batch), _CHUNK):
            key = (attempt.txid, first // _CHUNK)
            changes[key] = [self._delivered, batch[first : first + _CHUNK]]
            self._after.append(key)
        self.slot.write(changes)
        return ()

    def succeeded(self, txid: int) -> None:
        """Deliver the batches up to `txid`; what hinders that is raised by the next batch."""
        try:
            self._deliver(txid)
        except TopologyFailed:
            raise
        except (SunshowerError, OSError) as error:
            _LOG.warning("%s: batch %d is delivered later: %s", self._where, txid, error)

    def cleanup(self) -> None:
        try:
            with suppress(Unavailable):  # the next run delivers it
                self._remove_delivered(self._deliver_last())
        finally:
            self.delivery.close()
            super().cleanup()

    def _remove_delivered(self, last: int) -> None:
        """Remove what is stored, if all of it is delivered: by a further attempt of the batch that
        was written last."""
        written = self.slot.last_attempt
        if written is None or written.txid > last or not [*self.slot.state.items()]:
            return
        attempt = written._replace(attempt=written.attempt + 1)
        self._before, self._after = None, []
        try:
            self.slot.begin_commit(attempt)
            self.write(self.slot.state, (), attempt)
            self.slot.commit(attempt)
        except SunshowerError as error:
            _LOG.info("%s: what is delivered stays in the state: %s", self._where, error)

    def _keys_before(self, keys: Any, txid: int) -> list[Key] | None:
        """The entries before a batch, all of which are delivered; None: the state knows."""
        if keys is None or keys[0] > txid:
            return None
        return keys[1] if keys[0] == txid else keys[2]  # type: ignore[no-any-return]

    def _deliver(self, last: int) -> None:
        """Deliver what was not delivered of the batches up to `last`, which are committed. Raises
        TopologyFailed for what is no outage."""
        txid: int | None = None
        try:
            self._open()
            assert self._waiting is not None
            for txid in sorted(txid for txid in self._waiting if txid <= last):
                if txid > self._delivered:
                    self.delivery.deliver(txid, self._waiting[txid])
                    self._delivered = txid
                del self._waiting[txid]
        except BaseException as error:
            self._is_open, self._waiting = False, None
            if not isinstance(error, user_errors()) or self._passes(error):
                raise
            what = f"the batches up to {last} are" if txid is None else f"batch {txid} is"
            raise TopologyFailed(
                f"{self._where}: {what} committed, and cannot be delivered: "
                f"{_text_of(error)}. When that is fixed, start the program again, which "
                f"delivers first; or give {self.delivery.anew}: then what is not delivered is left "
                "out"
            ) from error

    def _passes(self, error: BaseException) -> bool:
        """Whether an error of a delivery is an outage, or one of another life of the task."""
        known = StaleGeneration, TopologyFailed
        return isinstance(error, known) or is_unavailable(error)

    def _open(self) -> None:
        """Open the receiver, and only then read the state: a former life can no longer deliver."""
        if not self._is_open:
            assert self.counted is not None
            batches = f"{self.counted.incarnation()} {self.slot.stored_name}"
            self._delivered = self.delivery.open(batches)
            self._is_open, self._waiting = True, None
        if self._waiting is not None:
            return
        waiting = defaultdict[int, list[tuple[int, list[Any]]]](list)
        entries: Any = [*self.slot.state.items()]  # a generator would stay open after an error
        for (txid, number), (delivered, packed) in entries:
            if self.delivery.notes and self._delivered < delivered:
                raise StateMismatch(
                    f"batch {delivered} was delivered, but {self.delivery.note} says "
                    f"{self._delivered or 'nothing'}, so whether later ones were is unknown"
                )
            waiting[txid].append((number, packed))
        self._waiting = {
            txid: [row for _, packed in sorted(chunks) for row in packed]
            for txid, chunks in waiting.items()
        }

    def _deliver_last(self) -> int:
        """Deliver all that is committed. Returns the last batch of it."""
        assert self.counted is not None
        last, end_s = self.counted.current() - 1, self._clock.now() + _LAST_S
        while True:
            try:
                self._deliver(last)
            except Unavailable as error:
                if self._clock.now() >= end_s:
                    _LOG.warning("%s: the next run delivers batch %d: %s", self._where, last, error)
                    raise
                self._clock.sleep(_APART_S)
            else:
                return last


def _text_of(error: BaseException) -> str:
    return str(error) if isinstance(error, SunshowerError) else describe_error(error)
