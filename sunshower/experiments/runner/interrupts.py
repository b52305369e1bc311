"""Handles Ctrl-C, SIGTERM and SIGHUP: the first one begins an orderly end, the second ends at once.

A terminal that is closed sends SIGHUP, several times perhaps: a second SIGHUP changes nothing.
SIGQUIT ends at once. Python's default for both would leave the processes of Ray behind.
"""

from __future__ import annotations

import signal
import time
from contextlib import suppress
from queue import Empty, SimpleQueue
from types import FrameType
from typing import Any, Self

from sunshower.errors import forget_signals, noting

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


class Interrupts:
    """While entered, the first signal sets `requested`, and the second raises KeyboardInterrupt.

    Before `defer` is called there is nothing to finish, and the first signal raises, too.
    """

    def __init__(self) -> None:
        self._deferred = False
        self.requested = False  # an orderly end was requested
        self.signal: int | None = None  # by this signal
        # Not a threading.Event: `set` in a signal handler blocks for ever if it interrupts `wait`
        # while that holds the Event's lock. SimpleQueue.put is reentrant (Python's queue module).
        self._wakes = SimpleQueue[None]()
        self._before: dict[signal.Signals, Any] = {}

    def wait(self, seconds: float) -> None:
        """Sleep for `seconds`, or until an orderly end is requested."""
        if self.requested:
            time.sleep(seconds)  # a second signal raises here
        else:
            with suppress(Empty):
                self._wakes.get(timeout=seconds)

    def wait_for_request(self) -> None:
        """Sleep until an orderly end is requested."""
        if not self.requested:
            self._wakes.get()

    def defer(self) -> None:
        """Make the first signal only set `requested`. Installs the handlers again: Ray may have
        replaced them."""
        self._deferred = True
        self._install()

    def __enter__(self) -> Self:
        before = {number: signal.getsignal(number) for number in _SIGNALS}
        if before[signal.SIGHUP] is signal.SIG_IGN:  # by nohup
            del before[signal.SIGHUP]
        self._before = before
        self._install()
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        forget_signals()

    def _install(self) -> None:
        handle = noting(self._handle)  # what it raises is no error of user code
        for number in self._before:
            signal.signal(number, handle)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGHUP and self.requested:
            return
        if not self._deferred or self.requested or number == signal.SIGQUIT:
            raise KeyboardInterrupt
        self.requested, self.signal = True, number
        self._wakes.put(None)
