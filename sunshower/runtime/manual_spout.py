"""A spout at the manual level: Storm's nextTuple, with message ids of the spout's own."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sunshower.runtime.anchoring import Anchor, AnchoredSender
from sunshower.runtime.luggage import Luggage
from sunshower.runtime.pending import Released
from sunshower.runtime.spout_task import SpoutTask
from sunshower.topologies.components import DEFAULT, Context


@dataclass(frozen=True, slots=True)
class Emission:
    """One emit of a manual spout."""

    stream: str
    record: Any
    message_id: Any
    task: int | None = None  # of emit_direct
    attempt: int = 1
    number: int = 0  # how many the task had emitted before


class NextTupleSpoutTask(SpoutTask):
    """Calls next_tuple until it emits nothing or the limit is reached.

    What one call emits beyond the room left in the pending table waits here for the next time
    (Storm checks max.spout.pending once per loop, and overshoots).
    """

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._emissions: deque[Emission] = deque()
        self._sender = AnchoredSender(self.outlets)

    def emit(self, now: float, limit: int) -> int:
        replays = [
            replace(replay.payload, attempt=replay.attempt) for replay in self._take_replays(limit)
        ]
        while not self.exhausted and len(self._emissions) + len(replays) < limit:
            before = len(self._emissions)
            self.spout.next_tuple(_Collector(self))
            if len(self._emissions) == before:
                break
        sending = list(replays)
        room = self.pending.room - len(replays)
        while self._emissions and (room > 0 or not self._tracked(self._emissions[0])):
            room -= self._tracked(self._emissions[0])
            sending.append(self._emissions.popleft())
        self._send(sending, now)
        return len(sending)

    @property
    def done(self) -> bool:
        return super().done and not self._emissions

    def pack(self, *, stays: bool) -> Luggage:
        luggage = super().pack(stays=True)
        luggage.ahead = list(self._emissions)
        if not stays:
            luggage.instance, luggage.state = None, self.spout.snapshot()
        return luggage

    def unpack(self, luggage: Luggage, context: Context) -> None:
        super().unpack(luggage, context)
        if luggage.instance is None:
            self.spout.restore(luggage.state)
        self._emissions.extend(luggage.ahead)

    def put(self, emission: Emission) -> None:
        """Check an emit, and keep it until `next_tuple` has returned."""
        self._sender.check(emission.stream, emission.record, emission.task)
        self._emissions.append(replace(emission, number=self._position))
        self._position += 1

    def _tracked(self, emission: Emission) -> bool:
        return self._reports.tracked and emission.message_id is not None

    def _send(self, emissions: list[Emission], now: float) -> None:
        tracked = [emission for emission in emissions if self._tracked(emission)]
        attempts = [emission.attempt for emission in tracked]
        numbers = np.array([emission.number for emission in tracked], np.int64)
        timeout_s = self._config.message_timeout_s
        roots = self.pending.take(tracked, numbers, attempts, now, timeout_s)
        anchors = [Anchor([root]) for root in roots.tolist()]
        unused = iter(anchors)
        for emission in emissions:
            own = [next(unused)] if self._tracked(emission) else []
            self._sender.add(emission.stream, emission.record, own, emission.task)
        self._sender.flush()
        self._reports.start(roots, np.array([anchor.made for anchor in anchors], np.uint64))
        if not self._reports.tracked:  # as Storm without ackers: done as soon as it is sent
            for emission in emissions:
                if emission.message_id is not None:
                    self.spout.ack(emission.message_id)

    def _message_ids(self, released: Released) -> list[Any]:
        return [emission.message_id for emission in released.payloads]


class _Collector:
    """The SpoutCollector that next_tuple is handed."""

    def __init__(self, task: NextTupleSpoutTask) -> None:
        self._task = task

    def emit(self, record: Any, message_id: Any = None, *, stream: str = DEFAULT) -> None:
        self._task.put(Emission(stream, record, message_id))

    def emit_direct(
        self, task: int, record: Any, message_id: Any = None, *, stream: str = DEFAULT
    ) -> None:
        self._task.put(Emission(stream, record, message_id, task))

    def finish(self) -> None:
        self._task.exhausted = True
