"""The deadlines of one spout task: overdue trees, and trees that a crash may have affected.

A tree has `message_timeout_s`; with a progress deadline (progress_deadlines.py), the acker is asked
first. Trees that a crash may have affected fail if they are still pending after a grace period.
Deadlines stop while a downstream component waits for a dependency: an outage of ten minutes must
not count as a timeout.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf

import numpy as np

from sunshower.config import Config
from sunshower.failures import Cause, Failure
from sunshower.runtime.tracking.ids import NO_IDS, U64, slots_of
from sunshower.runtime.tracking.pending import F64, Pending
from sunshower.runtime.tracking.progress_deadlines import ProgressDeadline
from sunshower.runtime.tracking.reports import Reports


@dataclass(frozen=True, slots=True)
class Sweep:
    """Of `roots`, those still pending at `due_s` have failed."""

    due_s: float
    roots: U64
    failure: Failure


class Deadlines:
    """Finds overdue trees in `pending`; the caller releases them."""

    def __init__(self, config: Config, pending: Pending, reports: Reports) -> None:
        self._config = config
        self._pending = pending
        self._reports = reports
        self._sweeps: list[Sweep] = []  # not due yet
        self._held_s: float | None = None  # the time at which deadlines stopped
        self.slowest = ""  # the master's description of where tuples wait longest
        self._progress = ProgressDeadline(config)

    @property
    def next_s(self) -> float:
        """The time of the next deadline or sweep."""
        due_s = inf if self.held else self._pending.next_deadline_s
        return min([due_s, *(sweep.due_s for sweep in self._sweeps)]) if self._sweeps else due_s

    @property
    def held(self) -> bool:
        """Whether deadlines are stopped."""
        return self._held_s is not None

    def hold(self, held: bool, now: float) -> None:
        """Stop the deadlines, or resume them."""
        if held and self._held_s is None:
            self._held_s = now
        elif not held and self._held_s is not None:
            self._pending.shift(now - self._held_s)
            self._progress.held(self._held_s, now)
            self._held_s = None

    def stopped_for(self, seconds: float, now: float) -> None:
        """This process was stopped: verdicts that arrived meanwhile are not read yet."""
        self._sweeps = [replace(sweep, due_s=sweep.due_s + seconds) for sweep in self._sweeps]
        if not self.held:
            self.hold(True, now - seconds)
            self.hold(False, now)

    def overdue(self, now: float) -> U64:
        """Return the trees that have timed out by `now`; ask the ackers about others."""
        if self.held:
            return NO_IDS
        due = self._pending.expired(now)
        if len(due):
            due, asking = self._progress.overdue(self._pending, due, now)
            self._reports.ask(asking)
        return due

    def heard_of(self, roots: U64, ages_s: F64, now: float) -> U64:
        """Apply an acker's answer about ages; return the trees that have failed."""
        return self._progress.heard(self._pending, roots, ages_s, now)

    def postpone(self, roots: U64, now: float) -> None:
        """Give these trees a full timeout again."""
        self._pending.postpone(roots, now + self._config.message_timeout_s)
        self._progress.postponed(roots)

    def extend(self, roots: U64) -> None:
        """These trees, and no others, may be pending as long as they make progress."""
        self._progress.unlimited = roots

    def sweep(self, now: float, failure: Failure, residues: set[int] | None, stride: int) -> None:
        """Start a grace period for the trees pending now; see SpoutTask.sweep."""
        roots = self._pending.all_roots()
        if residues is not None:
            roots = roots[np.isin(slots_of(roots) % stride, sorted(residues))]
        if len(roots):
            self._sweeps.append(Sweep(now + self._config.sweep_grace_s, roots, failure))

    def ripe(self, now: float) -> list[Sweep]:
        """Return each sweep whose grace period is over, once."""
        ripe = [sweep for sweep in self._sweeps if sweep.due_s <= now]
        if ripe:
            self._sweeps = [sweep for sweep in self._sweeps if sweep.due_s > now]
        return ripe

    def missed(self, what: str) -> Failure:
        """The failure of trees without `what` in time: a "verdict", or "progress"."""
        limit_s = self._config.message_timeout_s
        if what == "verdict":
            limit_s = self._config.message_timeout_max_s or limit_s
        reason = f"no {what} within {limit_s:g} s"
        if self.slowest:
            reason = f"{reason}; {self.slowest}"
        return Failure(Cause.TIMEOUT, reason=reason)
