"""Back-off for polling a source without new records: 1 ms, doubled up to `idle_poll_s`."""

from __future__ import annotations

_FIRST_S = 0.001


class PollBackoff:
    """The poll back-off of one spout task."""

    def __init__(self, longest_s: float) -> None:
        self.until_s = 0.0
        self._next_s = _FIRST_S
        self._longest_s = longest_s

    def begin(self, now: float) -> None:
        """The source had nothing: double the wait."""
        self.until_s = now + self._next_s
        self._next_s = min(2 * self._next_s, self._longest_s)

    def end(self) -> None:
        """The source had records: reset the wait."""
        self.until_s, self._next_s = 0.0, _FIRST_S
