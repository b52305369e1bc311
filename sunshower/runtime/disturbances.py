"""What the havoc of an experiment means for one worker: its tasks' share of it, and its links."""

from __future__ import annotations

import numpy as np

from sunshower.clock import Clock
from sunshower.runtime.havoc import ANY, WELL, Fate, Havoc, Link, fate
from sunshower.runtime.injection import injection_of, slowness
from sunshower.runtime.plan import Plan
from sunshower.runtime.supervision import Supervised
from sunshower.runtime.wiring import Wired


class Disturbances:
    """The havoc that one worker knows of; chance comes from `generator`."""

    def __init__(
        self,
        plan: Plan,
        worker: int,
        wired: Wired,
        clock: Clock,
        generator: np.random.Generator,
    ) -> None:
        self._plan = plan
        self._worker = worker
        self._wired = wired
        self._clock = clock
        self._generator = generator
        self._havoc = Havoc()
        self._expirations = 0  # the highest number so far
        self._links: dict[int, tuple[Link, ...]] = {}  # peer → bad links to it

    def begin(self, havoc: Havoc) -> None:
        """What a new life finds: what had to time out before it has done so without it."""
        self._expirations = max(self._expirations, havoc.expirations)
        self.wish(havoc)

    def wish(self, havoc: Havoc) -> bool:
        """From now on this, instead of what was. Returns whether all that is pending is to time
        out."""
        if havoc == self._havoc:
            return False
        self._havoc, self._links = havoc, {}
        tasks: list[Supervised] = [*self._wired.spouts.values(), *self._wired.bolts.values()]
        for task in tasks:
            task.injection = injection_of(havoc, task.task, self._clock, self._generator)
        place = {task.id: task for task in self._plan.tasks_on(self._worker)}
        for acker in self._wired.ackers.values():
            acker.slow_s = slowness(havoc, place[acker.task])
        known, self._expirations = self._expirations, max(self._expirations, havoc.expirations)
        return self._expirations > known

    def fate(self, peer: int) -> Fate:
        """What becomes of a packet that leaves for `peer` now."""
        if not self._havoc.links:
            return WELL
        if peer not in self._links:
            self._links[peer] = self._links_to(peer)
        links = self._links[peer]
        return fate(links, self._generator) if links else WELL

    def _links_to(self, peer: int) -> tuple[Link, ...]:
        here, there = ({t.component for t in self._plan.tasks_on(w)} for w in (self._worker, peer))
        return tuple(
            link
            for link in self._havoc.links
            if (link.source == ANY or link.source in here)
            and (link.target == ANY or link.target in there)
        )
