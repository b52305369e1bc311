"""Runs spouts at the manual level: Storm's nextTuple, with message ids that the spout chooses."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from sunshower.failures import Failure
from sunshower.records import Schema
from sunshower.runtime.control.task_transfer import TaskTransfer
from sunshower.runtime.tasks.bolts.anchoring import Anchor, AnchoredSender
from sunshower.runtime.tasks.spouts.retry_queue import Replay
from sunshower.runtime.tasks.spouts.spout_task import SpoutTask
from sunshower.runtime.tasks.user_code import RAISED, Raised, blame, guard
from sunshower.runtime.tracking.pending import Released
from sunshower.topologies.components import DEFAULT, Context
from sunshower.topologies.retry import DEAD_LETTERS, DeadLetter


class Emission(NamedTuple):
    """One emit of a manual spout."""

    stream: str
    record: Any
    message_id: Any
    task: int | None = None  # of emit_direct
    attempt: int = 1
    number: int = 0  # emits of the task before this one


class NextTupleSpoutTask(SpoutTask):
    """Calls next_tuple until it emits nothing or the limit is reached.

    Emits of one call that exceed the free slots in `Pending` wait here for the next `emit` (Storm
    checks max.spout.pending once per loop, and exceeds it).
    """

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._emissions: deque[Emission] = deque()
        self._count = 0
        self._sender = AnchoredSender(self.output_streams)

    def emit(self, now: float, limit: int) -> int:
        room = self._fresh_room
        replays, _ = self.replays.share_out(now, limit, room)
        wanted = limit - replays if room > 0 else 0  # untracked records need no room
        before = self._count
        broken = self._ask(wanted)
        fresh: list[Emission] = []
        while self._emissions and (room > 0 or not self._tracked(self._emissions[0])):
            room -= self._tracked(self._emissions[0])
            fresh.append(self._emissions.popleft())
        if len(fresh) < wanted and not self._emissions:  # the source has nothing now
            replays = limit - len(fresh)
        taken = sum(map(self._tracked, fresh))
        replays = min(replays, self.pending.room - taken)  # all queued messages are tracked
        again, letters = self.replays.take(replays, len(fresh))
        sending = [r.payload._replace(attempt=r.attempt) for r in (*again, *letters)]
        if sending or fresh:
            self._send(sending + fresh, now)
        if broken is not None:
            if self._count > before:
                self.supervision.went_well(now, progress=True)
            raise broken
        return len(sending) + len(fresh)

    @property
    def done(self) -> bool:
        return super().done and not self._emissions

    def pack(self, *, stays: bool, now: float) -> TaskTransfer:
        transfer = super().pack(stays=True, now=now)
        transfer.ahead, transfer.drawn = list(self._emissions), self._count
        if not stays:
            transfer.instance, transfer.state = None, self.spout.snapshot()
        return transfer

    def unpack(self, transfer: TaskTransfer, context: Context) -> None:
        super().unpack(transfer, context)
        self._emissions.extend(transfer.ahead)
        self._count = transfer.drawn

    def _restore(self, state: Any) -> None:
        guard(self.task, "restore", partial(self.spout.restore, state))

    def accuse(self, times: Mapping[int, int], failure: Failure) -> None:
        """Charge nothing: message numbers restart with each process and cannot be matched."""

    def put(self, emission: Emission) -> None:
        """Check an emit, and keep it until `next_tuple` has returned."""
        self._sender.check(emission.stream, emission.record, emission.task)
        self._emissions.append(emission._replace(number=self._count))
        self._count += 1
        self.rest.end()  # the spout may emit in ack or fail, if it kept the collector

    def _ask(self, limit: int) -> Raised | None:
        """Call next_tuple until `limit` emits wait. Returns its error, if it raised."""
        emitted = self._emissions
        next_tuple = self.instrument.faults.around_next_tuple(
            partial(self.spout.next_tuple, _Collector(self)), emitted, self._schema_of
        )
        while not self.exhausted and len(emitted) < limit:
            before = len(emitted)
            try:
                next_tuple()
            except RAISED as error:
                return blame(self.task, "next_tuple", error)
            if len(emitted) == before:
                break
        return None

    def _schema_of(self, stream: str) -> Schema:
        return self.output_streams.output_stream(stream).spec.schema

    def _tracked(self, emission: Emission) -> bool:
        return self._reports.tracked and emission.message_id is not None

    def _send(self, emissions: list[Emission], now: float) -> None:
        tracked = [emission for emission in emissions if self._tracked(emission)]
        attempts = [emission.attempt for emission in tracked]
        numbers = np.array([emission.number for emission in tracked], np.int64)
        ids = [emission.message_id for emission in tracked]
        roots = self._take(tracked, numbers, attempts, now, ids)
        anchors = [Anchor([root]) for root in roots.tolist()]
        unused = iter(anchors)
        for emission in emissions:
            own = [next(unused)] if self._tracked(emission) else []
            self._sender.add(emission.stream, emission.record, own, emission.task)
        unsent = self._sender.flush()
        made = np.array([anchor.made for anchor in anchors], np.uint64)
        errors = {anchors.index(a): one.error for one in unsent for a in one.anchors}
        self._start(roots, made, errors, now)
        self._note_untracked(one.error for one in unsent if not one.anchors)
        if not self._reports.tracked:  # as in Storm without ackers: acked once sent
            ids = [emission.message_id for emission in emissions]
            self._tell_acked([id for id in ids if id is not None])

    def _message_ids(self, released: Released) -> list[Any]:
        return [emission.message_id for emission in released.payloads]

    def message_id(self, replay: Replay) -> Any:
        return replay.payload.message_id

    def values(self, replay: Replay) -> dict[str, Any]:
        emission = replay.payload
        schema = self._schema_of(emission.stream)
        (values,) = schema.rows([emission.record])
        return dict(zip(schema.fields, values, strict=True))

    def letter_payload(self, replay: Replay, letter: DeadLetter) -> Any:
        return replay.payload._replace(stream=DEAD_LETTERS, record=letter, task=None)


class _Collector:
    """The SpoutCollector passed to next_tuple."""

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
