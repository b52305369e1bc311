"""Which task of a worker is run next, and what becomes of what its user code raises.

Downstream tasks go first, so little waits inside; after so many bolts in a row a spout has its turn
all the same. A task is run when it has something to do and its receivers have room for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from sunshower.clock import Clock
from sunshower.config import Config
from sunshower.runtime.batch import Batch, join
from sunshower.runtime.bolt_task import BoltTask
from sunshower.runtime.calls import Calls
from sunshower.runtime.history import What
from sunshower.runtime.lanes import Lane
from sunshower.runtime.mutation import process_unchanged
from sunshower.runtime.opening import Opening
from sunshower.runtime.relay import Relay
from sunshower.runtime.spout_task import SpoutTask
from sunshower.runtime.usercode import Raised, failure_of
from sunshower.runtime.wiring import Wired

_BOLTS_BEFORE_SPOUT = 8  # slices of bolts in a row before a spout gets one


class Slices:
    """The work of one worker, a slice at a time."""

    def __init__(
        self,
        wired: Wired,
        config: Config,
        call: Calls,
        clock: Clock,
        opening: Opening,
        lanes: Mapping[int, Lane],
        relay: Relay,
    ) -> None:
        self._inboxes = wired.inboxes
        self._bolts = list(reversed(wired.bolts.values()))  # downstream first
        self._spouts = list(wired.spouts.values())
        self._config = config
        self._call = call
        self._clock = clock
        self._opening = opening
        self._lanes = lanes
        self._relay = relay
        self._bolt_turns = 0
        self._wired = False  # whether all others have said hello once

    def tick(self, now: float) -> None:
        """Call the ticks that are due."""
        for ticker in self._opening.tickers:
            task = ticker.task
            if ticker.take(now) and task.supervision.runs:
                self._call(task.task, "tick", partial(task.hear, "tick", task.tick))
                self._pass_on_postponed(task)

    def run_one(self, now: float) -> bool:
        """Run one bolt, or each spout that may emit. Returns whether anything was done."""
        turns, self._bolt_turns = self._bolt_turns, 0
        if turns == _BOLTS_BEFORE_SPOUT:
            return self._run_spouts(now) or self._run_bolt()
        if self._run_bolt():
            self._bolt_turns = turns + 1
            return True
        return self._run_spouts(now)

    def may_emit(self, spout: SpoutTask) -> bool:
        """Whether the others have room for what the spout might emit, and all are there."""
        if not self._wired:
            self._wired = all(lane.peer_incarnation is not None for lane in self._lanes.values())
        may = self._wired and spout.active and not spout.supervision.waits
        return may and not spout.done and not spout.outlets.full

    def _run_bolt(self) -> bool:
        """The bolt furthest downstream that has something to do and room for what comes of it."""
        for bolt in self._bolts:
            inbox = self._inboxes[bolt.task.id]
            if not inbox.entries or bolt.outlets.full or bolt.supervision.waits:
                continue
            limit = self._call.limit(bolt)
            entries = inbox.take_several(limit) if bolt.joins else [inbox.take(limit)]
            batch = join([entry[0] for entry in entries])
            before = self._clock.now()
            self._process(bolt, batch)
            bolt.service.measure(len(batch), self._clock.now() - before)
            for part, origin, seq in entries:
                origin.processed(len(part), seq, bolt.service.window)
            self._pass_on_postponed(bolt)
            return True
        return False

    def _process(self, bolt: BoltTask, batch: Batch) -> None:
        if bolt.supervision.is_quarantined:
            bolt.refuse(batch, bolt.supervision.failure)
            return
        if bolt.scribe is not None:
            bolt.scribe.note_edges(What.DELIVERED, bolt.task.id, batch.roots, batch.edges)
        process = partial(process_unchanged, bolt) if self._config.check_mutation else bolt.process
        try:
            self._call(bolt.task, "the processing", partial(process, batch), batch.roots)
        except Raised as raised:  # not where a single input could be blamed: all of them are
            bolt.supervision.note(raised)
            bolt.refuse(batch, failure_of(bolt.task, raised.__cause__ or raised))

    def _run_spouts(self, now: float) -> bool:
        worked = False
        for spout in self._spouts:
            if self.may_emit(spout) and self._run_spout(spout, now):
                worked = True
        return worked

    def _run_spout(self, spout: SpoutTask, now: float) -> bool:
        if spout.next_emit_s > now:
            return False
        limit = min(spout.service.slice_records, spout.outlets.window)
        try:
            if spout.behind and self._call(spout.task, "records or tables", spout.skip):
                spout.rest.end()
                return True
            emitted: int = self._call(spout.task, "the emitting", partial(_emit, spout, now, limit))
        except Raised as raised:
            spout.supervision.raised(raised, self._clock.now())
            self._opening.waiting.append(spout)
            return True
        if spout.supervision.in_a_row:
            spout.supervision.went_well(now, progress=emitted > 0)
        if emitted:
            spout.service.measure(emitted, self._clock.now() - now)
            spout.rest.end()
        else:
            spout.rest.begin(now)
        return emitted > 0

    def _pass_on_postponed(self, bolt: Any) -> None:
        if roots := getattr(bolt, "postponed", None):
            self._relay.postpone(np.array(roots, np.uint64))
            bolt.postponed = []


def _emit(spout: SpoutTask, now: float, limit: int) -> int:
    emitted = spout.emit(now, limit)
    if spout.injection is not None:
        spout.injection.slow_down(emitted)
    return emitted
