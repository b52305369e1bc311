"""Grace periods: trees that a crash may have affected fail if still pending when it is over."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from sunshower.failures import Failure
from sunshower.runtime.tracking.ids import U64


@dataclass(frozen=True, slots=True)
class Sweep:
    """Of `roots`, those still pending at `due_s` have failed."""

    due_s: float
    roots: U64
    failure: Failure


class GracePeriods:
    """The sweeps of one spout task that are not due yet."""

    def __init__(self, grace_s: float) -> None:
        self._grace_s = grace_s
        self.due_s = inf  # when the next sweep is due
        self._marked: list[Sweep] = []

    def mark(self, now: float, roots: U64, failure: Failure) -> None:
        """Start a grace period for trees of which a crashed process may have held a part."""
        if len(roots):
            self._marked.append(Sweep(now + self._grace_s, roots, failure))
            self.due_s = min(self.due_s, now + self._grace_s)

    def ripe(self, now: float) -> list[Sweep]:
        """Remove and return the sweeps that are due."""
        if not self._marked:
            return []
        ripe = [sweep for sweep in self._marked if sweep.due_s <= now]
        self._marked = [sweep for sweep in self._marked if sweep.due_s > now]
        self.due_s = min((sweep.due_s for sweep in self._marked), default=inf)
        return ripe
