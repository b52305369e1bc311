"""Emits requests of callers; separate because it is an implementation of the port SpoutSource.

The bolt that returns their answers is here too. Requests that wait together are one batch. One that
fails then is emitted again alone, so no request fails with another one. Where operators combine the
rows of a batch, each request is a batch of its own: each row must belong to one request.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sunshower.errors import RequestFailed
from sunshower.failures import Failure
from sunshower.runtime.tasks.bolts.bolt_task import BoltTask
from sunshower.runtime.tasks.spouts.next_tuple_source import NextTupleSource
from sunshower.runtime.tasks.spouts.retry_queue import Replay
from sunshower.runtime.tasks.spouts.source import Drawn, Emission, Sender
from sunshower.runtime.tasks.task_transfer import TaskTransfer
from sunshower.runtime.tracking.batch import Batch
from sunshower.runtime.tracking.ids import U64
from sunshower.runtime.tracking.pending import Released
from sunshower.topologies.components import DEFAULT
from sunshower.topologies.requests import Requests

if TYPE_CHECKING:
    from sunshower.runtime.tasks.spouts.spout_task import SpoutTask


class RequestSource(NextTupleSource):
    """A message is a request, and its message id that of the request."""

    is_combined = False  # whether rows of several requests in a batch may become one
    _requests: Requests  # also when it is closed

    def __init__(self, task: SpoutTask) -> None:
        super().__init__(task)
        self._pending = task.pending

    def adopt(self, spout: Any) -> None:
        super().adopt(spout)
        self._requests, spout.wake = spout, self.wake
        if self.exhausted:  # another life was drained
            spout.stop()

    def add(self, roots: U64, row: Any) -> None:
        """A row of an answer, which belongs to these trees. Raises RequestFailed."""
        if self._spout is not None:
            for root in self._pending.live(roots).tolist():
                self._requests.add(self._pending.payload_of(root).message_id, root, row)

    def drain(self) -> None:
        super().drain()
        if self._spout is not None:
            self._requests.stop()

    def judged(self, released: Released, failures: Sequence[Failure]) -> Sequence[Failure]:
        return [
            replace(failure, shared=True) if emission.together else failure
            for emission, failure in zip(released.payloads, failures, strict=True)
        ]

    def gives_up(self, replay: Replay, failure: Failure | None) -> bool:
        return not self._requests.goes_on(replay.payload.message_id, failure)

    def listens(self, spout: Any) -> bool:
        return True

    def settled(self, released: Released) -> list[Any]:
        for root, emission in zip(released.roots.tolist(), released.payloads, strict=True):
            self._requests.complete(emission.message_id, root)
        return []

    def pack(self, transfer: TaskTransfer, *, stays: bool) -> None:
        if stays:
            super().pack(transfer, stays=True)
        else:  # callers send their requests again
            transfer.waiting, transfer.exhausted = [], self.exhausted
            self._requests.wake = lambda: None

    def unpack(self, transfer: TaskTransfer) -> None:
        if transfer.instance is not None:
            super().unpack(transfer)
        elif transfer.exhausted:
            self._requests.stop()

    def _ask(self, limit: int) -> None:
        for id, record in self._requests.take(limit - len(self._emissions)):
            self.put(DEFAULT, record, id)
        if self._requests.ends and self.is_empty:
            self.exhausted = True

    def send_again(self, replays: Sequence[Replay], now: float, sender: Sender) -> None:
        again = [replay.payload._replace(attempt=replay.attempt) for replay in replays]
        self._send(again, now, sender)

    def send(self, drawn: Drawn, attempts: Any, now: float, sender: Sender) -> None:
        self._send(drawn.records, now, sender)

    def _send(self, emissions: Sequence[Emission], now: float, sender: Sender) -> None:
        together = len(emissions) > 1 and not self.is_combined
        emissions = [emission._replace(together=together) for emission in emissions]
        if together:
            sender.send_emissions(emissions, now)
            return
        self._streams.alone, was_alone = True, self._streams.alone
        for emission in emissions:
            sender.send_emissions([emission], now)
        self._streams.alone = was_alone


# ---- answer bolt ---------------------------------------------------------------------------------
# Collects the rows that answer requests, beside the spout of the requests.
#
# It runs in the same worker. A row is added to its request before it is acked, so all rows are
# there when the tree is complete; the rows of an attempt that has failed are dropped.


class AnswerTask(BoltTask):
    """Passes rows on to `requests`. Rows that no request has caused are dropped."""

    requests: RequestSource

    def process(self, batch: Batch) -> Batch | None:
        self._begin_batch(batch)
        failures: dict[int, Failure] = {}
        schema = self._streams[batch.stream].spec.schema
        for index, row in enumerate(batch.rows(schema) if batch.tracked else ()):
            try:
                self.requests.add(batch.roots_of(index), row)
            except RequestFailed as error:
                failures[index] = self.failure(error)
        self.settle(batch, batch.nothing_made(), failures)
        return None
