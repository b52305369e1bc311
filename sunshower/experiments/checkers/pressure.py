"""Back-pressure checker: how many trees each spout task had open at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from sunshower.experiments.checkers.checker import CheckResult
from sunshower.experiments.evidence.event_history import History
from sunshower.experiments.evidence.facts import Facts
from sunshower.runtime.events.event_log import What
from sunshower.runtime.tracking.ids import incarnations_of


@dataclass(frozen=True)
class BoundedPending:
    """At most `limit` trees are open for each spout task; None: its `spout_pending`."""

    limit: int | None = None
    name: ClassVar[str] = "bounded-pending"

    def check(self, history: History, facts: Facts) -> CheckResult:
        limit = facts.pending_max if self.limit is None else self.limit
        peaks = pending_peaks(history)
        if not peaks:
            return CheckResult("", unknown=["nothing was emitted"])
        worst = max(peaks, key=peaks.__getitem__)
        spout = facts.spouts[worst % len(facts.spouts)]
        reason = f"{history.name(spout)} had {peaks[worst]:,} trees open, and {limit:,} are allowed"
        return CheckResult(
            f"at most {peaks[worst]:,} trees were open at once, and {limit:,} are allowed",
            [reason] if peaks[worst] > limit else (),
            figures={"pending_max": peaks[worst]},
        )


def pending_peaks(history: History) -> dict[int, int]:
    """Return incarnation → the maximum of its open trees."""
    kinds = [history.rows(what) for what in (What.EMITTED, What.COMPLETED, What.FAILED)]
    incarnations = incarnations_of(np.concatenate([rows.roots for rows in kinds]))
    order = np.concatenate([rows.order for rows in kinds])
    change = np.repeat([1, -1, -1], [len(rows) for rows in kinds])
    peaks: dict[int, int] = {}
    by_time = np.argsort(order, kind="stable")
    incarnations, change = incarnations[by_time], change[by_time]
    for incarnation in np.unique(incarnations).tolist():
        peaks[incarnation] = int(np.cumsum(change[incarnations == incarnation]).max())
    return peaks
