"""Rate-limits log lines: a few per place and interval, then a count of those left out.

Storm: topology.max.error.report.per.interval (5), topology.error.throttle.interval.secs (10) in
org.apache.storm.executor.error.ReportError, which does not count what it leaves out.
"""

from __future__ import annotations

from dataclasses import dataclass

from sunshower.texts import clip, printable

_MOST = 5
_INTERVAL_S = 10.0


@dataclass(slots=True)
class _Interval:
    end_s: float
    admitted: int = 0
    left_out: int = 0


class RateLimitedLog:
    """At most five lines per place in ten seconds. `what` names what is counted."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._lines: list[str] = []
        self._intervals: dict[str, _Interval] = {}

    def admits(self, place: str, now: float) -> bool:
        """Whether a line about `place` may be logged at `now`; if not, count it as left out."""
        interval = self._intervals.get(place)
        if interval is None or now >= interval.end_s:
            self._close(place)
            interval = self._intervals[place] = _Interval(now + _INTERVAL_S)
        if interval.admitted < _MOST:
            interval.admitted += 1
            return True
        interval.left_out += 1
        return False

    def say(self, line: str) -> None:
        """Add a line that was admitted; it is clipped, and its control characters are escaped."""
        self._lines.append(clip(printable(line)))

    def take(self, now: float) -> list[str]:
        """Return the lines to log by `now`, with counts of those left out in past intervals."""
        for place in [p for p, interval in self._intervals.items() if now >= interval.end_s]:
            self._close(place)
        lines, self._lines = self._lines, []
        return lines

    def _close(self, place: str) -> None:
        interval = self._intervals.pop(place, None)
        if interval is not None and interval.left_out:
            where = f" in {place}" if place else ""
            self._lines.append(
                f"{interval.left_out:,} more {self._what}{where} within {_INTERVAL_S:g} s"
            )
