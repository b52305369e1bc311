"""Pressure: how many trees each spout task had open at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from sunshower.faults.checkers.port import Weighed
from sunshower.faults.facts import Facts
from sunshower.faults.history import History
from sunshower.runtime.history import What
from sunshower.runtime.ids import incarnations_of


@dataclass(frozen=True)
class BoundedPending:
    """Never more than `limit` trees are open, per spout task; None: its `spout_pending`."""

    limit: int | None = None
    name: ClassVar[str] = "bounded-pending"

    def check(self, history: History, facts: Facts) -> Weighed:
        limit = facts.pending_max if self.limit is None else self.limit
        peaks = pending_peaks(history)
        if not peaks:
            return Weighed("", unknown=["nothing was emitted"])
        worst = max(peaks, key=peaks.__getitem__)
        spout = facts.spouts[worst % len(facts.spouts)]
        said = f"{history.name(spout)} had {peaks[worst]:,} trees open, and {limit:,} are allowed"
        return Weighed(
            f"at most {peaks[worst]:,} trees were open at once, and {limit:,} are allowed",
            [said] if peaks[worst] > limit else (),
            figures={"pending_max": peaks[worst]},
        )


def pending_peaks(history: History) -> dict[int, int]:
    """Incarnation → how many of its trees were open at once, at most."""
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
