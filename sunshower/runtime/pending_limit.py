"""How many trees a spout task may have open: a number, or what congestion control has found."""

from __future__ import annotations

from math import inf

from sunshower.config import Config
from sunshower.runtime.congestion import Congestion
from sunshower.runtime.pending import F64, Pending


class PendingLimit:
    """Keeps `pending.limit`. With a number in Config.spout_pending it stays at that."""

    def __init__(self, config: Config, pending: Pending) -> None:
        self.may_be_held = False  # a bolt downstream may keep tuples before it acks any
        self._pending = pending
        self._slots = config.spout_slots
        self._window_s = config.window_s
        self._moved_s = 0.0  # when a tree was opened or completed last
        self._congestion: Congestion | None = None
        if config.spout_pending == "auto":
            self._congestion = Congestion(config, config.spout_slots)
            self._apply()

    @property
    def adapts(self) -> bool:
        """Whether it is found by congestion control."""
        return self._congestion is not None

    def lift(self) -> None:
        """The spout decides by itself how much is open."""
        self._congestion, self._pending.limit = None, self._slots

    def opened(self, now: float) -> None:
        """Trees were opened."""
        self._moved_s = now

    def completed(self, now: float, latencies_s: F64, *, reached: bool) -> None:
        """Trees are done; `reached`: whether there was no room before they were."""
        self._moved_s = now
        if self._congestion is not None and len(latencies_s):
            mean_s = float(latencies_s.mean())
            self._congestion.completed(now, len(latencies_s), mean_s, reached)
            self._apply()

    def timed_out(self, now: float) -> None:
        """Some trees have reached their deadline."""
        if self._congestion is not None:
            self._congestion.timed_out(now)
            self._apply()

    def stalls_s(self, *, is_blocked: bool) -> float:
        """When to call `look`, if no tree is opened or completed before; ∞ for never.

        `is_blocked`: the receivers have no room, so more open trees would not help.
        """
        if self._congestion is None or not self.may_be_held or self._pending.room or is_blocked:
            return inf
        return self._moved_s + self._window_s

    def look(self, now: float, *, is_blocked: bool) -> None:
        """Open more where a bolt seems to wait for more before it acks any."""
        if self._congestion is not None and now >= self.stalls_s(is_blocked=is_blocked):
            self._congestion.stalled()
            self._moved_s = now
            self._apply()

    def _apply(self) -> None:
        assert self._congestion is not None
        self._pending.limit = self._congestion.limit
