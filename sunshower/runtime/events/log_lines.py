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

from sunshower.runtime.events.log_limit import RateLimitedLog
from sunshower.secret import without_secrets
from sunshower.texts import clip

LINE_BYTES = 4096
FAILURES_LOGGER = "sunshower.failures"  # for what statistics report, too: it is not captured
_WAITING_MAX = 1000  # records of one worker that were not sent yet; the oldest are dropped


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

        def make(*given: Any, **named: Any) -> logging.LogRecord:
            record = before(*given, **named)
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
        found = []
        while self._lines:
            source, line = self._lines.popleft()
            place = f"{source} ({line.component})" if line.component else source
            if self._limit.admits(place, now):
                found.append(line)
        for source, output in printed:
            if self._limit.admits(f"{source} (printed)", now) and output is not None:
                found.append(output)
        found.sort(key=lambda line: line.time)
        left_out = self._limit.take(now)
        found += [
            LogLine(wall_s, "warning", "repeated", text, worker=self._worker) for text in left_out
        ]
        return found
