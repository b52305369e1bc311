"""What the havoc of an experiment means for one worker: its links now, its tasks' share of it."""

from __future__ import annotations

import numpy as np

from sunshower.runtime.havoc import ANY, WELL, Fate, Havoc, Link, fate
from sunshower.runtime.plan import Plan


class Disturbances:
    """The havoc that one worker knows of; chance comes from `generator`."""

    def __init__(self, plan: Plan, worker: int, generator: np.random.Generator) -> None:
        self.havoc = Havoc()
        self._plan = plan
        self._worker = worker
        self._generator = generator
        self._links: dict[int, tuple[Link, ...]] = {}  # peer → bad links to it

    def fate(self, peer: int) -> Fate:
        """What becomes of a packet that leaves for `peer` now."""
        if not self.havoc.links:
            return WELL
        if peer not in self._links:
            self._links[peer] = self._links_to(peer)
        links = self._links[peer]
        return fate(links, self._generator) if links else WELL

    def wish(self, havoc: Havoc) -> None:
        """From now on this, instead of what was."""
        if havoc != self.havoc:
            self.havoc, self._links = havoc, {}

    def _links_to(self, peer: int) -> tuple[Link, ...]:
        here, there = ({t.component for t in self._plan.tasks_on(w)} for w in (self._worker, peer))
        return tuple(
            link
            for link in self.havoc.links
            if (link.source == ANY or link.source in here)
            and (link.target == ANY or link.target in there)
        )
