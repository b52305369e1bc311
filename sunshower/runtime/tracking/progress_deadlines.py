"""Progress deadlines: a tree stays pending while reports on it arrive, up to a hard maximum.

The trees of records have one if `message_timeout_max_s` is set; those of watermarks always, without
a maximum, because they may have all rows of many windows. Ackers do not report the progress of
young trees to spouts: that would cost a message for each report. When a deadline comes, the spout
asks the acker shard for the tree's age (the time since the last report on it), and moves the
deadline:

    due ──asked──▶ waiting for the answer ──an age──▶ now − age + timeout, at most emit + max
             ▲            │                              └── is over: TIMEOUT
             │            ├── none within sweep_grace_s (a packet was lost): asked again
             └────────────┘
                          └── emit + max is over: TIMEOUT

So a tree without progress fails one round trip after its deadline. A lost question or answer costs
sweep_grace_s; only an answer, or emit + max, fails a tree. A sweep fails the trees of a crashed
shard (deadlines.py). Packets carry ages, not times, because the clocks of two machines differ.
Storm only has resetTimeout, which here too gives a full timeout again, whatever the maximum.
"""

from __future__ import annotations

import numpy as np

from sunshower.config import Config
from sunshower.runtime.tracking.ids import NO_IDS, U64
from sunshower.runtime.tracking.pending import F64, Pending


class ProgressDeadline:
    """The spout's side: chooses the overdue trees to ask about, and applies the answers."""

    def __init__(self, config: Config) -> None:
        self._timeout_s = config.message_timeout_s
        self._grace_s = config.sweep_grace_s
        self._max_s = config.message_timeout_max_s or config.message_timeout_s
        self.unlimited = NO_IDS  # trees without a maximum
        self._asked = NO_IDS
        self._holds: list[tuple[float, float]] = []  # periods in which deadlines were stopped

    def held(self, from_s: float, to_s: float) -> None:
        """Deadlines were stopped: that period does not count for any tree."""
        ends = np.array([end for _, end in self._holds])
        matters = self._after(ends, self._max_s) > from_s  # to a tree that is pending now
        self._holds = [one for one, kept in zip(self._holds, matters, strict=True) if kept]
        self._holds.append((from_s, to_s))

    def _ends_s(self, pending: Pending, roots: U64) -> F64:
        ends_s = self._after(pending.emitted_s(roots), self._max_s)
        ends_s[np.isin(roots, self.unlimited)] = np.inf
        return ends_s

    def _after(self, since_s: F64, seconds: float) -> F64:
        """`seconds` after `since_s`, not counting the periods in which deadlines were stopped."""
        held_s = np.zeros(len(since_s))
        for from_s, to_s in self._holds:
            held_s += np.maximum(0.0, to_s - np.maximum(from_s, since_s))
        return since_s + seconds + held_s

    def overdue(self, pending: Pending, due: U64, now: float) -> tuple[U64, U64]:
        """Split the trees whose deadline has come into (failed, to ask about).

        A tree whose question was not answered is asked about again.
        """
        ends_s = self._ends_s(pending, due)
        over = ends_s <= now
        asking = due[~over]
        self._forget(due)
        self._asked = np.concatenate((pending.live(self._asked), asking))
        pending.postpone(asking, np.minimum(now + self._grace_s, ends_s[~over]))
        return due[over], asking

    def heard(self, pending: Pending, roots: U64, ages_s: F64, now: float) -> U64:
        """Apply an acker's answer (∞: an unknown tree). Returns the trees that have failed.

        Answers that are no longer expected are ignored.
        """
        waiting = np.isin(roots, pending.live(self._asked))
        roots, ages_s = roots[waiting], ages_s[waiting]
        self._forget(roots)
        deadlines_s = np.minimum(
            self._after(now - ages_s, self._timeout_s), self._ends_s(pending, roots)
        )
        lives = deadlines_s > now
        pending.postpone(roots[lives], deadlines_s[lives])
        return roots[~lives]

    def postponed(self, roots: U64) -> None:
        """Ignore answers for these trees, which were given more time."""
        self._forget(roots)

    def _forget(self, roots: U64) -> None:
        self._asked = self._asked[~np.isin(self._asked, roots)]
