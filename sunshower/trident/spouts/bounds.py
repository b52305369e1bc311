"""How much one task puts into one batch: records, bytes and time, whichever is reached first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sunshower.arguments import COUNT, SECONDS, check_all
from sunshower.clock import Clock


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """Of each task's share of a batch. A single record may exceed `bytes`; nothing else does.

    `seconds` is how long rows are waited for and read, at most. Raises ConfigError.
    """

    records: int = 50_000
    bytes: int = 16 << 20  # of what is read, before anything is made of it
    seconds: float = 0.5

    def __post_init__(self) -> None:
        check_all(self, {"records": COUNT, "bytes": COUNT, "seconds": SECONDS}, "Bounds: ")


class Room:
    """Takes the rows of one batch in, and says how much may still come. See the port `Rows`."""

    def __init__(self, bounds: Bounds, clock: Clock) -> None:
        self.rows: list[Any] = []
        self.records = bounds.records  # left
        self.bytes = bounds.bytes  # left
        self._clock = clock
        self._until_s = clock.now() + bounds.seconds

    def emit(self, rows: Sequence[Any], read_bytes: int = 0) -> None:
        """Rows, and how many bytes they were made of."""
        self.rows += rows
        self.records -= len(rows)
        self.bytes -= read_bytes

    @property
    def seconds(self) -> float:
        """Left; 0 at least."""
        return max(self._until_s - self._clock.now(), 0.0)

    @property
    def full(self) -> bool:
        """Whether one bound is reached."""
        return self.records <= 0 or self.bytes <= 0 or not self.seconds
