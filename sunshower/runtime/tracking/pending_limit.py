"""How many trees a spout task may have open: a fixed number, or the congestion control's limit."""

from __future__ import annotations

from math import inf

from sunshower.config import Config
from sunshower.runtime.tracking.congestion_control import CongestionControl
from sunshower.runtime.tracking.pending import F64, Pending


class PendingLimit:
    """Sets `pending.limit`, which is constant if Config.spout_pending is a number."""

    def __init__(self, config: Config, pending: Pending) -> None:
        self.may_be_held = False  # a bolt downstream may keep tuples before it acks any
        self._pending = pending
        self._slots = config.spout_slots
        self._window_s = config.window_s
        self._moved_s = 0.0  # when a tree was last opened or completed
        self._congestion: CongestionControl | None = None
        if config.spout_pending == "auto":
            self._congestion = CongestionControl(config, config.spout_slots)
            self._apply()

    @property
    def adapts(self) -> bool:
        """Whether congestion control sets the limit."""
        return self._congestion is not None

    def lift(self) -> None:
        """Remove the limit: the spout decides by itself how many trees are open."""
        self._congestion, self._pending.limit = None, self._slots

    def opened(self, now: float) -> None:
        """Trees were opened."""
        self._moved_s = now

    def completed(self, now: float, latencies_s: F64, *, reached: bool) -> None:
        """Trees completed; `reached`: whether the limit was reached before they did."""
        self._moved_s = now
        if self._congestion is not None and len(latencies_s):
            mean_s = float(latencies_s.mean())
            self._congestion.completed(now, len(latencies_s), mean_s, reached)
            self._apply()

    def timed_out(self, now: float) -> None:
        """Some trees timed out."""
        if self._congestion is not None:
            self._congestion.timed_out(now)
            self._apply()

    def stalls_s(self, *, is_blocked: bool) -> float:
        """Return when to call `look` if no tree is opened or completed before; ∞ for never.

        `is_blocked`: the receivers have no credit, so more open trees would not help.
        """
        if self._congestion is None or not self.may_be_held or self._pending.room or is_blocked:
            return inf
        return self._moved_s + self._window_s

    def look(self, now: float, *, is_blocked: bool) -> None:
        """Raise the limit where a bolt seems to wait for more tuples before it acks any."""
        if self._congestion is not None and now >= self.stalls_s(is_blocked=is_blocked):
            self._congestion.stalled()
            self._moved_s = now
            self._apply()

    def _apply(self) -> None:
        assert self._congestion is not None
        self._pending.limit = self._congestion.limit
