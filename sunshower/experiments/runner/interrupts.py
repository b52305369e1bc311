"""Handles Ctrl-C and SIGTERM: the first one begins an orderly end, the second ends at once."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any, Self

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupts:
    """While entered, the first signal sets `requested`, and the second raises KeyboardInterrupt.

    Before `defer` is called there is nothing to finish, and the first signal raises, too.
    """

    def __init__(self) -> None:
        self._deferred = False
        self._requested = threading.Event()
        self._before: dict[signal.Signals, Any] = {}

    @property
    def requested(self) -> bool:
        """Whether an orderly end was requested."""
        return self._requested.is_set()

    def wait(self, seconds: float) -> None:
        """Sleep for `seconds`, or until an orderly end is requested."""
        if self.requested:
            threading.Event().wait(seconds)  # a second signal raises here
        else:
            self._requested.wait(seconds)

    def wait_for_request(self) -> None:
        """Sleep until an orderly end is requested."""
        self._requested.wait()

    def defer(self) -> None:
        """Make the first signal only set `requested`. Installs the handlers again: Ray may have
        replaced them."""
        self._deferred = True
        self._install()

    def __enter__(self) -> Self:
        self._before = {number: signal.getsignal(number) for number in _SIGNALS}
        self._install()
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _install(self) -> None:
        for number in _SIGNALS:
            signal.signal(number, self._handle)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if not self._deferred or self.requested:
            raise KeyboardInterrupt
        self._requested.set()
