"""Captures what Python code in a worker prints, as lines for the log of the topology.

print ──PrintedStream──▶ PrintedLines ──take──▶ LogCapture (`runtime/events/log_lines.py`)
"""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import replace
from time import time
from typing import Any, TextIO

from sunshower.runtime.events.log_lines import LINE_BYTES, LogLine, Place
from sunshower.secret import without_secrets
from sunshower.texts import clip

_WAITING_MAX = 1000  # lines that were not taken yet; the oldest are dropped
_STORED_MAX = 5  # lines of one source line until `take`; LogCapture admits no more
# Functions that print for their callers, and those whose output is not that of user code: a record
# of `logging` is captured before a handler prints it, and sinks have their own output.
_PRINTERS = {"traceback", "warnings", "pprint"}
_NOT_USER_CODE = {"logging", "sunshower.texts", "sunshower.actors.output"}


class PrintedLines:
    """The lines that a process prints, from `install` on."""

    def __init__(self, worker: int, place: Callable[[int | None], Place]) -> None:
        """`place`: the task whose user code runs in the thread with this id."""
        self._worker, self._place = worker, place
        self._printed: deque[tuple[str, LogLine | None]] = deque(maxlen=_WAITING_MAX)
        self._unfinished: dict[tuple[str, int], str] = {}  # stream, thread → no newline yet
        self._counts: dict[str, int] = {}  # source → lines printed since the last `take`
        self._lock = threading.RLock()  # of _printed and _counts

    def install(self) -> None:
        """Note each line that Python code writes to the standard output and the standard error."""
        sys.stdout = PrintedStream("stdout", sys.stdout, self)
        sys.stderr = PrintedStream("stderr", sys.stderr, self)

    def note(self, stream: str, text: str) -> None:
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
                    self._keep(stream, source, line, is_trace, thread)

    def _keep(self, stream: str, source: str, text: str, is_trace: bool, thread: int) -> None:
        continues = is_trace and not text.startswith("Traceback ") and self._printed
        if continues and self._printed[-1][0] == source:
            if (last := self._printed[-1][1]) is not None:
                together = clip(f"{last.text}\n{without_secrets(text)}", LINE_BYTES)
                self._printed[-1] = source, replace(last, text=together)
            return
        self._counts[source] = count = self._counts.get(source, 0) + 1
        if count > _STORED_MAX:  # it is counted only
            self._printed.append((source, None))
            return
        component, task = self._place(thread) or ("", None)
        level = "info" if stream == "stdout" else "warning"
        text = clip(without_secrets(text), LINE_BYTES)
        line = LogLine(time(), level, "output", text, component, task, self._worker, stream)
        self._printed.append((source, line))

    def take(self) -> list[tuple[str, LogLine | None]]:
        """What was printed since the last call: source lines with their lines, the first five of
        each; None stands for a further one."""
        with self._lock:
            printed = [*self._printed]
            self._printed.clear()
            self._counts.clear()
        return printed


class PrintedStream:
    """A standard stream of a worker: what is written is noted, too, for the log of the topology."""

    def __init__(self, name: str, stream: TextIO, lines: PrintedLines) -> None:
        self._name, self._stream, self._lines = name, stream, lines

    def write(self, text: str) -> int:
        """As of the stream."""
        count = self._stream.write(text)
        try:  # noqa: SIM105 (suppress() is slower)
            self._lines.note(self._name, text)
        except Exception:  # noqa: S110 (a print of user code never fails by this)
            pass
        return count

    def writelines(self, lines: Iterable[str]) -> None:
        """As of the stream."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
