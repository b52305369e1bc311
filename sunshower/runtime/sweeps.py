"""What a death may have touched has a grace to be completed all the same; then it has failed."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from sunshower.failures import Failure
from sunshower.runtime.ids import U64


@dataclass(frozen=True, slots=True)
class Sweep:
    """Those of `roots` still pending at `due_s` have failed."""

    due_s: float
    roots: U64
    failure: Failure


class Sweeps:
    """The sweeps of one spout task that are not due yet."""

    def __init__(self, grace_s: float) -> None:
        self._grace_s = grace_s
        self.due_s = inf  # when the next one is due
        self._marked: list[Sweep] = []

    def mark(self, now: float, roots: U64, failure: Failure) -> None:
        """Somebody died who may have held a part of these trees."""
        if len(roots):
            self._marked.append(Sweep(now + self._grace_s, roots, failure))
            self.due_s = min(self.due_s, now + self._grace_s)

    def ripe(self, now: float) -> list[Sweep]:
        """Those that are due; they are not kept."""
        if not self._marked:
            return []
        ripe = [sweep for sweep in self._marked if sweep.due_s <= now]
        self._marked = [sweep for sweep in self._marked if sweep.due_s > now]
        self.due_s = min((sweep.due_s for sweep in self._marked), default=inf)
        return ripe
