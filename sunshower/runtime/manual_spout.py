"""A spout at the manual level: Storm's nextTuple, with message ids of the spout's own."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from sunshower.failures import Failure
from sunshower.runtime.anchoring import Anchor, AnchoredSender
from sunshower.runtime.luggage import Luggage
from sunshower.runtime.pending import Released
from sunshower.runtime.retries import Replay
from sunshower.runtime.spout_task import SpoutTask
from sunshower.runtime.usercode import RAISED, Raised, blame, guard
from sunshower.topologies.components import DEFAULT, Context
from sunshower.topologies.retry import DEAD_LETTERS, DeadLetter


class Emission(NamedTuple):
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
        self._count = 0
        self._sender = AnchoredSender(self.outlets)

    def emit(self, now: float, limit: int) -> int:
        room = self._fresh_room
        replays, _ = self.replays.share_out(now, limit, room)
        wanted = limit - replays if room > 0 else 0  # what is untracked needs no room
        before = self._count
        broken = self._ask(wanted)
        fresh: list[Emission] = []
        while self._emissions and (room > 0 or not self._tracked(self._emissions[0])):
            room -= self._tracked(self._emissions[0])
            fresh.append(self._emissions.popleft())
        if len(fresh) < wanted and not self._emissions:  # the source has nothing now
            replays = limit - len(fresh)
        taken = sum(map(self._tracked, fresh))
        replays = min(replays, self.pending.room - taken)  # all that is in line is tracked
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

    def pack(self, *, stays: bool, now: float) -> Luggage:
        luggage = super().pack(stays=True, now=now)
        luggage.ahead, luggage.drawn = list(self._emissions), self._count
        if not stays:
            luggage.instance, luggage.state = None, self.spout.snapshot()
        return luggage

    def unpack(self, luggage: Luggage, context: Context) -> None:
        super().unpack(luggage, context)
        self._emissions.extend(luggage.ahead)
        self._count = luggage.drawn

    def _restore(self, state: Any) -> None:
        guard(self.task, "restore", partial(self.spout.restore, state))

    def accuse(self, times: Mapping[int, int], failure: Failure) -> None:
        """Its numbers begin anew with each process: which messages those were, nobody knows."""

    def put(self, emission: Emission) -> None:
        """Check an emit, and keep it until `next_tuple` has returned."""
        self._sender.check(emission.stream, emission.record, emission.task)
        self._emissions.append(emission._replace(number=self._count))
        self._count += 1
        self.rest.end()  # it may come from ack or fail, with a collector that the spout has kept

    def _ask(self, limit: int) -> Raised | None:
        """Call next_tuple until `limit` emissions wait. Returns what it has raised."""
        while not self.exhausted and len(self._emissions) < limit:
            before = len(self._emissions)
            try:
                self._next_tuple()
            except RAISED as error:
                return blame(self.task, "next_tuple", error)
            if len(self._emissions) == before:
                break
        return None

    def _next_tuple(self) -> None:
        if self.injection is None:
            self.spout.next_tuple(_Collector(self))
            return
        before = len(self._emissions)
        self.injection.before_call()
        self.spout.next_tuple(_Collector(self))
        self.injection.after_call(
            (emission.record, self.outlets.outlet(emission.stream).spec.schema)
            for emission in islice(self._emissions, before, None)
        )

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
        if not self._reports.tracked:  # as Storm without ackers: done as soon as it is sent
            ids = [emission.message_id for emission in emissions]
            self._tell_acked([id for id in ids if id is not None])

    def _message_ids(self, released: Released) -> list[Any]:
        return [emission.message_id for emission in released.payloads]

    def message_id(self, replay: Replay) -> Any:
        return replay.payload.message_id

    def values(self, replay: Replay) -> dict[str, Any]:
        emission = replay.payload
        schema = self.outlets.outlet(emission.stream).spec.schema
        (values,) = schema.rows([emission.record])
        return dict(zip(schema.fields, values, strict=True))

    def letter_payload(self, replay: Replay, letter: DeadLetter) -> Any:
        return replay.payload._replace(stream=DEAD_LETTERS, record=letter, task=None)


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
