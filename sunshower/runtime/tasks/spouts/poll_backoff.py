"""Back-off for polling a source without new records: a fraction of the time without any."""

from __future__ import annotations

_SHARE = 1 / 16  # the next record waits at most this share of the gap before it
_SHORTEST_S = 0.001


class PollBackoff:
    """The poll back-off of one spout task: up to `longest_s` (`idle_poll_s`)."""

    def __init__(self, longest_s: float) -> None:
        self.until_s = 0.0
        self._shortest_s = _SHORTEST_S
        self._since_s: float | None = None  # the first poll without a record
        self._longest_s = longest_s

    def share_worker(self, spouts: int) -> None:
        """Poll so much less often that all spout tasks of a worker together poll 1,000 times a
        second at most: a poll that finds nothing costs up to 0.1 ms."""
        self._shortest_s = _SHORTEST_S * spouts

    def begin(self, now: float) -> None:
        """The source had nothing: wait for a share of the time since it first had nothing."""
        if self._since_s is None:
            self._since_s = now
        idle_s = now - self._since_s
        self.until_s = now + min(max(self._shortest_s, _SHARE * idle_s), self._longest_s)

    def end(self) -> None:
        """The source had records: poll again at once."""
        self.until_s, self._since_s = 0.0, None
