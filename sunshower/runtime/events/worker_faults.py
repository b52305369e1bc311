"""Applies injected faults to one worker: to its tasks, its ackers and its outgoing packets."""

from __future__ import annotations

import numpy as np

from sunshower.clock import Clock
from sunshower.runtime.events.injected_faults import ANY, WELL, Fate, InjectedFaults, Link, fate
from sunshower.runtime.events.task_faults import faults_of, slowness
from sunshower.runtime.plan import Plan
from sunshower.runtime.tasks.supervision import Supervised
from sunshower.runtime.wiring import Wired


class WorkerFaults:
    """The injected faults that one worker knows; `generator` draws the chances."""

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
        self._injected = InjectedFaults()
        self._expirations = 0  # the highest number so far
        self._links: dict[int, tuple[Link, ...]] = {}  # peer → faulty links to it

    def begin(self, injected: InjectedFaults) -> None:
        """Set the faults at the start of a life; past expirations do not apply to it."""
        self._expirations = max(self._expirations, injected.expirations)
        self.desired_state(injected)

    def desired_state(self, injected: InjectedFaults) -> bool:
        """Replace the injected faults. Returns whether all pending trees must time out."""
        if injected == self._injected:
            return False
        self._injected, self._links = injected, {}
        tasks: list[Supervised] = [*self._wired.spouts.values(), *self._wired.bolts.values()]
        for task in tasks:
            place = (task.task, self._clock, self._generator)
            task.instrument.faults = faults_of(injected, *place)
        here = {task.id: task for task in self._plan.tasks_on(self._worker)}
        for acker in self._wired.ackers.values():
            acker.slow_s = slowness(injected, here[acker.task])
        known, self._expirations = self._expirations, max(self._expirations, injected.expirations)
        return self._expirations > known

    def fate(self, peer: int) -> Fate:
        """Draw what happens to a packet sent to `peer` now."""
        if not self._injected.links:
            return WELL
        if peer not in self._links:
            self._links[peer] = self._links_to(peer)
        links = self._links[peer]
        return fate(links, self._generator) if links else WELL

    def _links_to(self, peer: int) -> tuple[Link, ...]:
        here, there = ({t.component for t in self._plan.tasks_on(w)} for w in (self._worker, peer))
        return tuple(
            link
            for link in self._injected.links
            if (link.source == ANY or link.source in here)
            and (link.target == ANY or link.target in there)
        )
