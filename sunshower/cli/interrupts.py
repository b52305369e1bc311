"""Ctrl-C and SIGTERM: the first one asks for an orderly end, the second one insists."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any, Self

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupts:
    """While entered: a first signal sets `asked`, a second one raises KeyboardInterrupt.

    Before `be_patient` is called there is nothing to finish, and the first one raises already.
    """

    def __init__(self) -> None:
        self._patient = False
        self._asked = threading.Event()
        self._before: dict[signal.Signals, Any] = {}

    @property
    def asked(self) -> bool:
        """Whether an orderly end is wanted."""
        return self._asked.is_set()

    def wait(self, seconds: float) -> None:
        """Do nothing for a while; shorter when somebody asks for the end."""
        if self.asked:
            threading.Event().wait(seconds)  # a second signal raises out of it
        else:
            self._asked.wait(seconds)

    def be_patient(self) -> None:
        """From now on the first signal only asks. Takes the signals back if Ray has taken them."""
        self._patient = True
        self._listen()

    def __enter__(self) -> Self:
        self._before = {number: signal.getsignal(number) for number in _SIGNALS}
        self._listen()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _listen(self) -> None:
        for number in _SIGNALS:
            signal.signal(number, self._hear)

    def _hear(self, number: int, frame: FrameType | None) -> None:
        if not self._patient or self.asked:
            raise KeyboardInterrupt
        self._asked.set()
