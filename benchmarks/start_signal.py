"""The start signal: a file tells all processes of a run when to begin, on the monotonic clock."""

from __future__ import annotations

import time
import uuid
from math import inf
from pathlib import Path

POLL_S = 0.005  # between two checks for the signal: the latest begin after the start time


class StartSignal:
    """A start time that `send` sets. Any process of this machine can receive a copy.

    A run's time begins with the first record that a source emits, not with this start time, so the
    polling of the processes is not measured.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / f"start-{uuid.uuid4().hex}"
        self._start_s: float | None = None

    def send(self, in_s: float = 0.2) -> None:
        """Set the start time: `in_s` from now."""
        draft = self._path.with_suffix(".draft")
        draft.write_text(repr(time.monotonic() + in_s), encoding="ascii")
        draft.rename(self._path)

    @property
    def start_s(self) -> float:
        """The start time on the monotonic clock; infinite until it is set."""
        if self._start_s is None:
            try:
                self._start_s = float(self._path.read_text(encoding="ascii"))
            except FileNotFoundError:
                return inf
        return self._start_s

    @property
    def has_started(self) -> bool:
        """Whether the start time has come."""
        return time.monotonic() >= self.start_s

    def wait(self) -> None:
        """Sleep until the start time."""
        while not self.has_started:
            time.sleep(POLL_S)
