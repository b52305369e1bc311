"""Progress deadlines: a tree lives as long as something is heard of it, up to a hard maximum.

On with `message_timeout_max_s`. Spouts do not hear of progress while a tree is young: that would
cost a message for each report. When a deadline comes, the spout asks the acker shard how long ago
the tree was last heard of, and moves the deadline:

    due ──asked──▶ waiting for the answer ──an age──▶ now − age + timeout, at most emit + max
             ▲            │                              └── is over: TIMEOUT
             │            ├── none within sweep_grace_s (a packet was lost): asked again
             └────────────┘
                          └── emit + max is over: TIMEOUT

So a tree without progress fails at its deadline plus the way there and back. A lost question or
answer costs sweep_grace_s and nothing else; only an answer, or emit + max, fails a tree. The trees
of a shard that died are failed by the sweep (sweeps.py). Ages travel, not times: the clocks of two
machines differ. Storm has no such thing: there only resetTimeout, which here too is
a full timeout again, whatever the maximum.
"""

from __future__ import annotations

import numpy as np

from sunshower.config import Config
from sunshower.runtime.ids import NO_IDS, U64
from sunshower.runtime.pending import F64, Pending


class ProgressDeadline:
    """The spout's side: which overdue trees are asked about, and what follows from the answers."""

    def __init__(self, config: Config, max_s: float) -> None:
        self._timeout_s = config.message_timeout_s
        self._grace_s = config.sweep_grace_s
        self._max_s = max_s
        self._asked = NO_IDS
        self._hold_s = (0.0, 0.0)  # from when to when deadlines last stood still

    def held(self, from_s: float, to_s: float) -> None:
        """Deadlines stood still: that time counts neither for the tree nor for its silence."""
        self._hold_s = (from_s, to_s)

    def _after(self, since_s: F64, seconds: float) -> F64:
        """`seconds` after `since_s`, not counting the time in which deadlines stood still."""
        from_s, to_s = self._hold_s
        return since_s + seconds + np.maximum(0.0, to_s - np.maximum(from_s, since_s))

    def overdue(self, pending: Pending, due: U64, now: float) -> tuple[U64, U64]:
        """(trees that have failed, trees to ask about) of those whose deadline has come.

        A tree whose question was not answered is asked about again."""
        ends_s = self._after(pending.emitted_s(due), self._max_s)
        over = ends_s <= now
        asking = due[~over]
        self._forget(due)
        self._asked = np.concatenate((pending.live(self._asked), asking))
        pending.postpone(asking, np.minimum(now + self._grace_s, ends_s[~over]))
        return due[over], asking

    def heard(self, pending: Pending, roots: U64, ages_s: F64, now: float) -> U64:
        """The acker's answer; an age is infinite for a tree unknown to it. The trees that failed.

        Answers that nobody waits for any more are ignored.
        """
        waiting = np.isin(roots, pending.live(self._asked))
        roots, ages_s = roots[waiting], ages_s[waiting]
        self._forget(roots)
        deadlines_s = np.minimum(
            self._after(now - ages_s, self._timeout_s),
            self._after(pending.emitted_s(roots), self._max_s),
        )
        lives = deadlines_s > now
        pending.postpone(roots[lives], deadlines_s[lives])
        return roots[~lives]

    def postponed(self, roots: U64) -> None:
        """Somebody gave these more time: their answers come too late to take it away."""
        self._forget(roots)

    def _forget(self, roots: U64) -> None:
        self._asked = self._asked[~np.isin(self._asked, roots)]
