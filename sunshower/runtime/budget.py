"""How many replays a spout may emit: failures must not become a storm.

While the source has fresh records, replays take at most a set share of what is emitted. It is a
running count: what fresh records have earned may be spent later, up to a small burst. Where the
source has nothing now, or failed messages hold every place, replays may use all the room: nobody
waits behind them.
"""

from __future__ import annotations

_BURST = 64.0  # replays that may be saved up; what one fresh record earns in any case


class Budget:
    """The replay budget of one spout task."""

    def __init__(self, share: float) -> None:
        self._share = share
        self._earned = share / (1 - share) if share < 1 else 0.0  # replays for each fresh record
        self._saved_max = max(_BURST, self._earned)
        self._saved = 0.0

    def replays(self, due: int, limit: int, room: int) -> int:
        """How many of `due` replays to emit among `limit` records.

        `room`: how many fresh records may be emitted beside them, if the source has them.
        """
        if self._share == 1 or room <= 0:
            return min(due, limit)
        # r replays and limit − r fresh records:  r ≤ saved + (limit − r) · earned
        fair = self._saved * (1 - self._share) + limit * self._share
        return min(due, limit, int(min(fair, self._saved + room * self._earned) + 1e-9))

    def spend(self, replays: int, fresh: int) -> None:
        """So many were emitted. What was emitted because nobody waited behind is no debt."""
        saved = self._saved + fresh * self._earned - replays
        self._saved = min(max(saved, 0.0), self._saved_max)
