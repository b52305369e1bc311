"""Which task of a worker is run next, and what becomes of what its user code raises.

A task is ready when it has something to do, its receivers have room for it, and it is not paused.
Three slices of four go to the ready task furthest downstream, readers of dead letters first:
so little waits inside, and what was just made is still in the cache. Every fourth slice goes to the
task whose turn it is: no ready task waits longer than four slices for each task of the worker.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from math import inf
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
from sunshower.runtime.renewal import Renewals
from sunshower.runtime.spout_task import SpoutTask
from sunshower.runtime.usercode import Raised
from sunshower.runtime.wiring import Wired

_FAIR_SLICE = 4  # one slice of so many goes to the task whose turn it is


@dataclass(slots=True)
class _Work:
    """What some inputs have cost a bolt so far, in one slice or in several."""

    inputs: int = 0
    seconds: float = 0.0
    waited_s: float = 0.0

    def add(self, inputs: int, seconds: float, waited_s: float) -> None:
        self.inputs += inputs
        self.seconds += seconds
        self.waited_s += waited_s


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
        self._failed_trees = wired.failed_trees
        self._renewals = Renewals(call, opening.context_of)
        self._order = _order(wired)
        names = [None if bolt is None else bolt.task.component for bolt in self._order]
        self._places = {  # component → where its tasks stand in the order, side by side
            name: (names.index(name), names.index(name) + names.count(name)) for name in names
        }
        self._slices = 0  # since the last one that went round
        self._turn = 0  # the place in the round of who is asked first
        self._work: dict[int, _Work] = {}  # bolt task → of an input that goes on yielding
        self._waits_since: dict[int, float] = {}  # bolt task → since when its inputs wait
        self._spouts = list(wired.spouts.values())
        self._config = config
        self._call = call
        self._clock = clock
        for bolt in wired.bolts.values():
            bolt.clock = clock
        self._opening = opening
        self._lanes = lanes
        self._relay = relay
        self._wired = False  # whether all others have said hello once

    def tick(self, now: float) -> None:
        """Call the ticks that are due."""
        for ticker in self._opening.tickers:
            task = ticker.task
            if ticker.take(now) and task.supervision.runs:
                self._call(task.task, "tick", partial(task.hear, "tick", task.tick))
                self._pass_on_postponed(task)

    def run_one(self, now: float) -> bool:
        """Run the next task that is ready: one bolt, or each spout that may emit. Returns whether
        anything was done."""
        order = self._order
        self._slices += 1
        if self._slices >= _FAIR_SLICE:
            self._slices = 0
            self._turn = (self._turn + 1) % len(order)
            order = [*order[self._turn :], *order[: self._turn]]
        for bolt in order:
            if bolt is None:
                if self._run_spouts(now):
                    return True
            elif self._run_bolt(bolt):
                self._rotate_siblings(bolt)
                return True
        return False

    def _rotate_siblings(self, bolt: BoltTask) -> None:
        """The other tasks of its component are asked before it the next time."""
        order, start, end = self._order, *self._places[bolt.task.component]
        if end - start > 1:
            order[start:end] = [*(one for one in order[start:end] if one is not bolt), bolt]

    def may_emit(self, spout: SpoutTask) -> bool:
        """Whether the others have room for what the spout might emit, and all are there."""
        if not self._wired:
            self._wired = all(lane.peer_incarnation is not None for lane in self._lanes.values())
        may = self._wired and spout.active and not spout.supervision.waits
        return may and not spout.done and not spout.outlets.full

    def next_probe_s(self) -> float:
        """When a paused bolt that has inputs is to try one of them; ∞ if none is."""
        bolts = (b for b in self._order if b is not None and b.supervision.wait is not None)
        paused = (b for b in bolts if not b.supervision.waits and self._has_work(b))
        return min((b.supervision.resumes_s for b in paused if not b.outlets.full), default=inf)

    def _has_work(self, bolt: BoltTask) -> bool:
        return bool(self._inboxes[bolt.task.id].entries) or bolt.unfinished is not None

    def _run_bolt(self, bolt: BoltTask) -> bool:
        """A slice of work of a bolt, if it is ready."""
        care = bolt.supervision
        if not self._has_work(bolt) or care.waits:
            return False
        before = self._clock.now()
        taken, bolt.flush_s = 0, 0.0
        since_s = self._waits_since.setdefault(bolt.task.id, before)
        if bolt.outlets.full or before < care.resumes_s:
            return False
        self._failed_trees.turn(before)
        if bolt.unfinished is not None:
            taken = self._go_on(bolt)
        elif care.wait is None or self._renewals.begin(bolt):
            taken = self._take(bolt)
            self._renewals.end(bolt)
        now = self._clock.now()
        work = self._work.setdefault(bolt.task.id, _Work())
        work.add(taken, max(0.0, now - before - bolt.flush_s), before - since_s)
        if care.begin_pause(now) != -inf:
            care.check_doubt(now)
            del self._work[bolt.task.id]
        elif bolt.unfinished is None:
            bolt.service.measure(now, max(work.inputs, 1), work.seconds, work.waited_s)
            del self._work[bolt.task.id]
        if self._has_work(bolt):
            self._waits_since[bolt.task.id] = now
        else:
            del self._waits_since[bolt.task.id]
        self._pass_on_postponed(bolt)
        return True

    def _take(self, bolt: BoltTask) -> int:
        """Process what has come, but for what belongs to failed trees. Returns how many inputs."""
        inbox = self._inboxes[bolt.task.id]
        limit = 1 if self._renewals.is_on(bolt) else self._call.limit(bolt)
        entries = inbox.take_several(limit) if bolt.joins else [inbox.take(limit)]
        batch = join([entry[0] for entry in entries])
        living = self._failed_trees.living(batch)
        bolt.expired += len(batch) - len(living)
        rest = self._process(bolt, living) if len(living) else None
        if rest is not None:
            ((_, origin, seq),) = entries
            rest.is_recorded = True
            inbox.put_back(rest, origin, seq)
            entries = [(batch.split(len(batch) - len(rest))[0], origin, None)]
        for part, origin, seq in entries:
            origin.processed(len(part), seq, bolt.service.window)
        return sum(len(part) for part, _, _ in entries)

    def _go_on(self, bolt: BoltTask) -> int:
        """The next piece of an input that goes on yielding; it is dropped if its tree has failed.
        Returns 0: the input was counted before."""
        batch = bolt.unfinished
        assert batch is not None
        if not len(self._failed_trees.living(batch)):
            bolt.expired += 1
            bolt.drop_unfinished()
        else:
            self._guard(bolt, bolt.go_on, batch)
        return 0

    def _process(self, bolt: BoltTask, batch: Batch) -> Batch | None:
        if bolt.supervision.is_quarantined:
            bolt.refuse(batch, bolt.supervision.failure)
            return None
        if bolt.scribe is not None and not batch.is_recorded:
            bolt.scribe.note_edges(What.DELIVERED, bolt.task.id, batch.roots, batch.edges)
        process = partial(process_unchanged, bolt) if self._config.check_mutation else bolt.process
        return self._guard(bolt, partial(process, batch), batch)

    def _guard(
        self, bolt: BoltTask, call: Callable[[], Batch | None], batch: Batch
    ) -> Batch | None:
        try:
            return self._call(bolt.task, "the processing", call, batch.roots)
        except Raised as raised:  # not where a single input could be blamed: all of them are
            bolt.supervision.note(raised)
            bolt.refuse(batch, bolt.failure(raised.__cause__ or raised))
            return None

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
        replayed = spout.replays.replayed
        try:
            if spout.behind and self._call(spout.task, "records or tables", spout.skip):
                spout.rest.end()
                return True
            emitted: int = self._call(spout.task, "the emitting", partial(_emit, spout, now, limit))
        except Raised as raised:
            self._opening.wait_for(spout, raised)
            return True
        if spout.supervision.in_a_row or spout.supervision.wait is not None:
            fresh = emitted - (spout.replays.replayed - replayed)
            if fresh or not emitted:  # replays alone say nothing of the source
                spout.supervision.went_well(now, progress=fresh > 0)
        if emitted:
            spout.supervision.proven = True
            ended = self._clock.now()
            spout.service.measure(ended, emitted, ended - now)
            spout.rest.end()
        else:
            spout.rest.begin(now)
        return emitted > 0

    def _pass_on_postponed(self, bolt: Any) -> None:
        if roots := getattr(bolt, "postponed", None):
            self._relay.postpone(np.array(roots, np.uint64))
            bolt.postponed = []


def _order(wired: Wired) -> list[BoltTask | None]:
    """Readers of dead letters, then downstream first; None stands for all spouts."""
    readers = wired.letter_readers
    letters = [bolt for id, bolt in wired.bolts.items() if id in readers]
    others = [bolt for id, bolt in reversed(wired.bolts.items()) if id not in readers]
    return [*letters, *others, None]


def _emit(spout: SpoutTask, now: float, limit: int) -> int:
    emitted = spout.emit(now, limit)
    if spout.injection is not None:
        spout.injection.slow_down(emitted)
    return emitted
