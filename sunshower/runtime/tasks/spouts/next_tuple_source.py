"""Calls next_tuple(), as Storm does: the spout emits by itself and chooses the message ids."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from functools import partial
from threading import get_ident
from typing import TYPE_CHECKING, Any

import numpy as np

from sunshower.errors import BadEmit, user_errors
from sunshower.runtime.tasks.bolts.anchoring import AnchoredSender
from sunshower.runtime.tasks.shared_collector import Call, SharedCollector
from sunshower.runtime.tasks.spouts.retry_queue import Replay
from sunshower.runtime.tasks.spouts.source import Drawn, Emission, Sender, SpoutSource
from sunshower.runtime.tasks.task_transfer import TaskTransfer
from sunshower.runtime.tasks.user_code import as_raised, guard
from sunshower.runtime.tracking.pending import Released
from sunshower.topologies.components import DEFAULT
from sunshower.topologies.retry import DEAD_LETTERS, DeadLetter

if TYPE_CHECKING:
    from sunshower.runtime.tasks.spouts.spout_task import SpoutTask


class NextTupleSource(SpoutSource):
    """Calls next_tuple until it emits nothing or the limit is reached.

    Emits of one call that exceed the limit wait here for the next `draw` (Storm checks
    max.spout.pending once per loop, and exceeds it). Message numbers begin again in each process.
    """

    repeats_numbers = False
    tracks_all = False
    tells_drain = True

    def __init__(self, task: SpoutTask) -> None:
        self._task, self._streams = task.task, task.output_streams
        self._instrument, self._watermarks = task.instrument, task.watermarks
        self._is_tracking = task.is_tracked
        self._spout: Any = None  # once it is open
        self._emissions: deque[Emission] = deque()
        self._count = 0
        self._checks = AnchoredSender(task.output_streams)
        self.collector = SpoutCollectorHandle(self, task.task.name, task.service.records_max)

    @property
    def is_empty(self) -> bool:  # type: ignore[override]
        return not self._emissions and not self.collector.calls

    def draw(self, limit: int, now: float, room: float) -> Drawn:
        self._catch_up(max(0, limit - len(self._emissions)))
        asks = not self.exhausted and len(self._emissions) < limit
        self._ask(limit)
        if asks and self.error is None:
            self.asked_s = now
        fresh: list[Emission] = []
        while self._emissions and (room > 0 or not self._is_tracked(self._emissions[0])):
            room -= self._is_tracked(self._emissions[0])
            fresh.append(self._emissions.popleft())
        numbers = np.array(
            [emission.number for emission in fresh if self._is_tracked(emission)], np.int64
        )
        return Drawn(numbers, fresh, fresh, len(fresh), has_more=not self.is_empty)

    def put(self, stream: str, record: Any, message_id: Any, task: int | None = None) -> None:
        """Check an emit, and keep it until `next_tuple` has returned."""
        self.check(stream, record, message_id, task)
        if self.collector.calls:
            self._catch_up()
        self.keep(stream, record, message_id, task)

    def check(self, stream: str, record: Any, message_id: Any, task: int | None) -> None:
        """Raise BadEmit for an emit that cannot be sent. Any thread may call it."""
        self._checks.check(stream, record, task)
        if message_id is None and self._watermarks.on:
            raise BadEmit(
                "a record without a message id, which no window waits for: the spout feeds a "
                "window, so emit each record with one"
            )

    def check_unfinished(self) -> None:
        """Raise BadEmit if no record may follow, for other threads."""
        if self.exhausted:
            raise BadEmit(
                f"{self._task.name} emits no more records: it has finished or is quarantined, or "
                "the topology drains. End the thread that emits in drain(), or after finish()"
            )

    def keep(self, stream: str, record: Any, message_id: Any, task: int | None) -> None:
        """Keep a checked emit until it is sent."""
        self._emissions.append(Emission(stream, record, message_id, task, 1, self._count))
        self._count += 1
        self.wake()  # the spout may emit in ack or fail, if it kept the collector

    def _catch_up(self, limit: int | None = None) -> None:
        """Carry out the waiting calls of other threads, `limit` at most."""
        if self.collector.calls:
            for call, arguments in self.collector.take(limit):
                call(self, *arguments)

    def adopt(self, spout: Any) -> None:
        self._spout = spout

    def drain(self) -> None:
        self.finish()

    def finish(self) -> None:
        """Call next_tuple no more."""
        self.exhausted = True

    def _ask(self, limit: int) -> None:
        """Call next_tuple until `limit` emits wait, or it emits nothing, or raises."""
        emitted, collector = self._emissions, self.collector
        next_tuple = self._instrument.faults.around_next_tuple(
            partial(self._spout.next_tuple, collector),
            emitted,
            self._streams.schema,
        )
        collector.enter()
        try:
            while not self.exhausted and len(emitted) < limit:
                before = len(emitted)
                next_tuple()
                if len(emitted) == before:
                    break
        except user_errors() as error:
            self.error = as_raised(self._task, "next_tuple", error)
        finally:
            collector.leave()

    def _is_tracked(self, emission: Emission) -> bool:
        return self._is_tracking and emission.message_id is not None

    def send_again(self, replays: Sequence[Replay], now: float, sender: Sender) -> None:
        sender.send_emissions([r.payload._replace(attempt=r.attempt) for r in replays], now)

    def send(self, drawn: Drawn, attempts: Any, now: float, sender: Sender) -> None:
        sender.send_emissions(drawn.records, now)

    def message_id(self, replay: Replay) -> Any:
        return replay.payload.message_id

    def message_ids(self, released: Released) -> list[Any]:
        return [emission.message_id for emission in released.payloads]

    def values(self, replay: Replay) -> dict[str, Any]:
        return self._streams.values(replay.payload.stream, replay.payload.record)

    def stream_of(self, replay: Replay) -> str:
        return str(replay.payload.stream)

    def letter_payload(self, replay: Replay, letter: DeadLetter) -> Any:
        return replay.payload._replace(stream=DEAD_LETTERS, record=letter, task=None)

    def pack(self, transfer: TaskTransfer, *, stays: bool) -> None:
        if stays:
            transfer.collector = self.collector  # the spout may have kept it
        else:
            transfer.state = self._spout.snapshot()
            self._catch_up()  # after the snapshot: rather twice than never
        transfer.ahead, transfer.drawn = list(self._emissions), self._count

    def unpack(self, transfer: TaskTransfer) -> None:
        if transfer.instance is None:
            restore = partial(self._spout.restore, transfer.state)
            guard(self._task, "restore", restore)
        self._emissions.extend(transfer.ahead)
        self._count = transfer.drawn
        if transfer.collector is not None:
            self.collector = transfer.collector
            self.collector.source = self

    def close(self) -> None:
        self._spout = None
        self.collector.close()


class SpoutCollectorHandle(SharedCollector):
    """The SpoutCollector passed to next_tuple."""

    def __init__(self, source: NextTupleSource, name: str, calls_max: int) -> None:
        super().__init__(name, calls_max)
        self.source = source

    def emit(self, record: Any, message_id: Any = None, *, stream: str = DEFAULT) -> None:
        if get_ident() == self.home:
            self.source.put(stream, record, message_id)
        else:
            self._hand_over_emit(stream, record, message_id, None)

    def emit_direct(
        self, task: int, record: Any, message_id: Any = None, *, stream: str = DEFAULT
    ) -> None:
        if get_ident() == self.home:
            self.source.put(stream, record, message_id, task)
        else:
            self._hand_over_emit(stream, record, message_id, task)

    def finish(self) -> None:
        if get_ident() == self.home:
            self.source.finish()
        else:
            self.hand_over(lambda: (NextTupleSource.finish, ()))

    def _hand_over_emit(self, *emit: Any) -> None:
        self.source.check(*emit)

        def claim() -> Call:
            self.source.check_unfinished()
            return NextTupleSource.keep, emit

        self.hand_over(claim, is_emit=True)
