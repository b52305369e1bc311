"""What `sunshower logs` shows: a line for each event, and what workers log and print.

logging, print ──LogCapture──▶ heartbeat thread ──▶ TopologyLog of the master ──▶ client
"""

from __future__ import annotations

import logging
import traceback
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from sunshower.secret import without_secrets
from sunshower.texts import clip, printable

LINE_BYTES = 4096
FAILURES_LOGGER = "sunshower.failures"  # for what statistics report, too: it is not captured
_WAITING_MAX = 1000  # records of one worker that were not sent yet; the oldest are dropped


# ---- log limit -----------------------------------------------------------------------------------
# Rate-limits log lines: a few per place and interval, then a count of those left out.
#
# Storm: topology.max.error.report.per.interval (5), topology.error.throttle.interval.secs (10) in
# org.apache.storm.executor.error.ReportError, which does not count what it leaves out.

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


# ---- log lines -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class LogLine:
    """One event. `task` is its index in the component; `count`: how often it has happened."""

    time: float  # in Unix time
    level: str  # of `logging`, in lower case
    event: str
    text: str
    component: str = ""  # empty: of no component, or not known
    task: int | None = None
    worker: int | None = None
    logger: str = ""  # of a record of `logging`; of what was printed: stdout or stderr
    count: int = 1
    number: int = 0  # grows in the log of a topology; set by its master


Place = tuple[str, int] | None  # a component and the index of a task, or neither


class LogCapture:
    """The records that a worker's process logs, from `install` on.

    A record factory and no handler: a handler of the root logger would change what
    `logging.basicConfig` does in user code, and what is printed without it.
    """

    def __init__(self, worker: int, place: Callable[[int | None], Place]) -> None:
        """`place`: the task whose user code runs in the thread with this id."""
        self._worker, self._place = worker, place
        self._lines: deque[tuple[str, LogLine]] = deque(maxlen=_WAITING_MAX)  # with their sources
        self._limit = RateLimitedLog("lines")

    def install(self) -> None:
        """Capture each record that a logger of this process makes."""
        before = logging.getLogRecordFactory()

        def make(*arguments: Any, **named: Any) -> logging.LogRecord:
            record = before(*arguments, **named)
            with suppress(Exception):  # a log call of user code never fails by this
                self.note(record)
            return record

        logging.setLogRecordFactory(make)

    def note(self, record: logging.LogRecord) -> None:
        """Keep a record until `take`. Any thread may call it."""
        if record.name is None or record.name == FAILURES_LOGGER:  # None: it is filled in later
            return
        try:
            text = record.getMessage()
        except Exception:  # the handler of the user reports wrong arguments
            text = str(record.msg)
        if record.exc_info and record.exc_info[1] is not None:
            text += "\n" + "".join(traceback.format_exception(record.exc_info[1])).rstrip()
        component, task = self._place(record.thread) or ("", None)
        line = LogLine(
            record.created,
            record.levelname.lower(),
            "log",
            clip(without_secrets(text), LINE_BYTES),
            component,
            task,
            self._worker,
            record.name,
        )
        self._lines.append((f"{PurePath(record.pathname).name}:{record.lineno}", line))

    def take(
        self, now: float, wall_s: float, printed: Iterable[tuple[str, LogLine | None]] = ()
    ) -> list[LogLine]:
        """The lines since the last call, at most five of each source line in ten seconds, and
        then the count of the others. One thread calls it.

        `printed`: source lines, with what each has printed, or None where it is only counted.
        """
        lines = []
        while self._lines:
            source, line = self._lines.popleft()
            place = f"{source} ({line.component})" if line.component else source
            if self._limit.admits(place, now):
                lines.append(line)
        for source, output in printed:
            if self._limit.admits(f"{source} (printed)", now) and output is not None:
                lines.append(output)
        lines.sort(key=lambda line: line.time)
        left_out = self._limit.take(now)
        lines += [
            LogLine(wall_s, "warning", "repeated", text, worker=self._worker) for text in left_out
        ]
        return lines
