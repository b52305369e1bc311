"""What `sunshower logs` shows: a line for each event, and what workers log and print.

logging, print ──LogCapture──▶ heartbeat thread ──▶ TopologyLog of the master ──▶ client
"""

from __future__ import annotations

import logging
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import PurePath
from time import time
from typing import Any, TextIO

from sunshower.runtime.events.log_limit import RateLimitedLog
from sunshower.secret import without_secrets
from sunshower.texts import clip

LINE_BYTES = 4096
FAILURES_LOGGER = "sunshower.failures"  # for what statistics report, too: it is not captured
_WAITING_MAX = 1000  # records of one worker that were not sent yet; the oldest are dropped
_PRINTED_MAX = 5  # lines of one source line that are stored until `take`, which admits no more
# Functions that print for their callers, and those whose output is not that of user code: a record
# of `logging` is captured before a handler prints it, and sinks have their own output.
_PRINTERS = {"traceback", "warnings", "pprint"}
_NOT_USER_CODE = {"logging", "sunshower.texts", "sunshower.actors.output"}


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
        self._printed: deque[tuple[str, LogLine | None]] = deque(maxlen=_WAITING_MAX)
        self._unfinished: dict[tuple[str, int], str] = {}  # stream, thread → no newline yet
        self._counts: dict[str, int] = {}  # source → lines printed since the last `take`
        self._lock = threading.RLock()  # of _printed and _counts
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

    def capture_output(self) -> None:
        """Note each line that Python code writes to the standard output and the standard error."""
        sys.stdout = PrintedStream("stdout", sys.stdout, self)
        sys.stderr = PrintedStream("stderr", sys.stderr, self)

    def note_printed(self, stream: str, text: str) -> None:
        """Keep the complete lines of what the caller of the caller has written to `stream` until
        `take`. Any thread may call it. Lines of one traceback are kept together."""
        thread = threading.get_ident()
        before = self._unfinished.get((stream, thread), "")
        if "\n" not in text:
            self._unfinished[stream, thread] = (before + text)[-LINE_BYTES:]
            return
        *lines, self._unfinished[stream, thread] = (before + text).split("\n")
        frame = sys._getframe(2)
        is_trace = False
        while (module := frame.f_globals.get("__name__")) in _PRINTERS and frame.f_back is not None:
            is_trace, frame = is_trace or module == "traceback", frame.f_back
        if module in _NOT_USER_CODE:
            return
        source = f"{frame.f_code.co_filename.rpartition('/')[2]}:{frame.f_lineno}"
        with self._lock:
            for line in lines:
                if line and not line.isspace():
                    self._keep_printed(stream, source, line, is_trace, thread)

    def _keep_printed(
        self, stream: str, source: str, text: str, is_trace: bool, thread: int
    ) -> None:
        continues = is_trace and not text.startswith("Traceback ") and self._printed
        if continues and self._printed[-1][0] == source:
            if (last := self._printed[-1][1]) is not None:
                together = clip(f"{last.text}\n{without_secrets(text)}", LINE_BYTES)
                self._printed[-1] = source, replace(last, text=together)
            return
        self._counts[source] = count = self._counts.get(source, 0) + 1
        if count > _PRINTED_MAX:  # it is counted only
            self._printed.append((source, None))
            return
        component, task = self._place(thread) or ("", None)
        level = "info" if stream == "stdout" else "warning"
        text = clip(without_secrets(text), LINE_BYTES)
        line = LogLine(time(), level, "output", text, component, task, self._worker, stream)
        self._printed.append((source, line))

    def take(self, now: float, wall_s: float) -> list[LogLine]:
        """The lines since the last call, at most five of each source line in ten seconds, and
        then the count of the others. One thread calls it."""
        found = []
        with self._lock:
            printed = [*self._printed]
            self._printed.clear()
            self._counts.clear()
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


class PrintedStream:
    """A standard stream of a worker: what is written is noted, too, for the log of the topology."""

    def __init__(self, name: str, stream: TextIO, capture: LogCapture) -> None:
        self._name, self._stream, self._capture = name, stream, capture

    def write(self, text: str) -> int:
        """As of the stream."""
        count = self._stream.write(text)
        try:  # noqa: SIM105 (suppress() is slower)
            self._capture.note_printed(self._name, text)
        except Exception:  # noqa: S110 (a print of user code never fails by this)
            pass
        return count

    def writelines(self, lines: Iterable[str]) -> None:
        """As of the stream."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
