"""The deadlines of one spout task: which trees are overdue now, and what a death has touched.

A tree is given `message_timeout_s`; where progress counts, what is overdue is asked about first
(progress.py). What a death may have touched has a grace of its own (sweeps.py). Deadlines stand
still while a component downstream waits for a dependency: an outage of ten minutes must not be
charged as a timeout.
"""

from __future__ import annotations

from math import inf

import numpy as np

from sunshower.config import Config
from sunshower.failures import Cause, Failure
from sunshower.runtime.ids import NO_IDS, U64, slots_of
from sunshower.runtime.pending import F64, Pending
from sunshower.runtime.progress import ProgressDeadline
from sunshower.runtime.reports import Reports
from sunshower.runtime.sweeps import Sweep, Sweeps


class Deadlines:
    """Looks at `pending`; whoever asks releases what has failed."""

    def __init__(self, config: Config, pending: Pending, reports: Reports) -> None:
        longest_s = config.message_timeout_max_s
        self._config = config
        self._pending = pending
        self._reports = reports
        self._sweeps = Sweeps(config.sweep_grace_s)
        self._held_s: float | None = None  # since when deadlines stand still
        self.slowest = ""  # where tuples wait longest, as the master knows it
        self._progress = None if longest_s is None else ProgressDeadline(config, longest_s)

    @property
    def next_s(self) -> float:
        """The time of the next deadline or sweep."""
        due_s = inf if self.held else self._pending.next_deadline_s
        return min(due_s, self._sweeps.due_s)

    @property
    def held(self) -> bool:
        """Whether deadlines stand still."""
        return self._held_s is not None

    def hold(self, held: bool, now: float) -> None:
        """From now on deadlines stand still, or go on."""
        if held and self._held_s is None:
            self._held_s = now
        elif not held and self._held_s is not None:
            self._pending.shift(now - self._held_s)
            if self._progress is not None:
                self._progress.held(self._held_s, now)
            self._held_s = None

    def overdue(self, now: float) -> U64:
        """The trees that have failed by now; of some others the ackers are asked."""
        if self.held:
            return NO_IDS
        due = self._pending.expired(now)
        if len(due) and self._progress is not None:
            due, asking = self._progress.overdue(self._pending, due, now)
            self._reports.ask(asking)
        return due

    def heard_of(self, roots: U64, ages_s: F64, now: float) -> U64:
        """An acker's answer to what was asked. The trees that have failed."""
        if self._progress is None:
            return NO_IDS
        return self._progress.heard(self._pending, roots, ages_s, now)

    def postpone(self, roots: U64, now: float) -> None:
        """Give trees a full timeout again."""
        self._pending.postpone(roots, now + self._config.message_timeout_s)
        if self._progress is not None:
            self._progress.postponed(roots)

    def sweep(self, now: float, failure: Failure, residues: set[int] | None, stride: int) -> None:
        """Wait a grace for what is pending now; see SpoutTask.sweep."""
        roots = self._pending.all_roots()
        if residues is not None:
            roots = roots[np.isin(slots_of(roots) % stride, sorted(residues))]
        self._sweeps.mark(now, roots, failure)

    def ripe(self, now: float) -> list[Sweep]:
        """The sweeps whose grace is over; each once."""
        return self._sweeps.ripe(now)

    @property
    def missed(self) -> Failure:
        """The failure of what is overdue."""
        config = self._config
        reason = f"no verdict within {config.message_timeout_s:g} s"
        if config.message_timeout_max_s is not None:
            reason = (
                f"no progress within {config.message_timeout_s:g} s, or no verdict within "
                f"{config.message_timeout_max_s:g} s"
            )
        if self.slowest:
            reason = f"{reason}; {self.slowest}"
        return Failure(Cause.TIMEOUT, reason=reason)
