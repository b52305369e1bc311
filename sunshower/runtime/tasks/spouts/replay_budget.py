"""Limits the share of replays among the records that a spout emits, as a token bucket.

While the source has new records, replays take at most a set share of the emits. Each new record
earns tokens for replays, which can be saved up to a small burst. If the source has nothing now, or
failed messages hold all places of `spout_pending`, replays may use all the room, because no new
record waits behind them.
"""

from __future__ import annotations

_BURST = 64.0  # replays that can be saved up; at least what one new record earns


class ReplayBudget:
    """The replay budget of one spout task."""

    def __init__(self, share: float) -> None:
        self._share = share
        self._earned = share / (1 - share) if share < 1 else 0.0  # replays for each new record
        self._saved_max = max(_BURST, self._earned)
        self._saved = 0.0

    def replays(self, due: int, limit: int, room: int) -> int:
        """How many of `due` replays to emit among `limit` records.

        `room`: how many new records may be emitted beside them, if the source has them.
        """
        if self._share == 1 or room <= 0:
            return min(due, limit)
        # r replays and limit − r fresh records:  r ≤ saved + (limit − r) · earned
        fair = self._saved * (1 - self._share) + limit * self._share
        return min(due, limit, int(min(fair, self._saved + room * self._earned) + 1e-9))

    def spend(self, replays: int, fresh: int) -> None:
        """Account for the emits. The balance does not become negative."""
        saved = self._saved + fresh * self._earned - replays
        self._saved = min(max(saved, 0.0), self._saved_max)
