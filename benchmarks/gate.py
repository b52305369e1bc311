"""The starting gate: a file tells all processes of a run when to begin, on one monotonic clock."""

from __future__ import annotations

import time
import uuid
from math import inf
from pathlib import Path

POLL_S = 0.005  # how often those who wait look; nobody begins later than this after the start


class Gate:
    """Shut until `open`. It may travel to any process of this machine.

    Time is taken from the first record that a source hands out, not from the gate, so what a
    process still needs to wake up is nobody's cost.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / f"gate-{uuid.uuid4().hex}"
        self._start_s: float | None = None

    def open(self, in_s: float = 0.2) -> None:
        """Let everybody begin `in_s` from now."""
        draft = self._path.with_suffix(".draft")
        draft.write_text(repr(time.monotonic() + in_s), encoding="ascii")
        draft.rename(self._path)

    @property
    def start_s(self) -> float:
        """The moment, on the monotonic clock; infinite as long as it is not known."""
        if self._start_s is None:
            try:
                self._start_s = float(self._path.read_text(encoding="ascii"))
            except FileNotFoundError:
                return inf
        return self._start_s

    @property
    def is_open(self) -> bool:
        """Whether the moment has come."""
        return time.monotonic() >= self.start_s

    def wait(self) -> None:
        """Sleep until the moment has come."""
        while not self.is_open:
            time.sleep(POLL_S)
