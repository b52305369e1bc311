"""Limits on one task's share of a batch: records, bytes and seconds, whichever is reached first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sunshower.arguments import COUNT, SECONDS, check_all
from sunshower.clock import Clock


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """Limits of each task's share of a batch. Only a single record may exceed `bytes`. `seconds`
    limits the time to wait for rows and read them. Raises ConfigError."""

    records: int = 50_000
    bytes: int = 16 << 20  #: as read from the source
    seconds: float = 0.5

    def __post_init__(self) -> None:
        check_all(self, {"records": COUNT, "bytes": COUNT, "seconds": SECONDS}, "Bounds: ")


class Room:
    """Collects the rows of one batch and tracks what its bounds still allow (port `Rows`)."""

    def __init__(self, bounds: Bounds, clock: Clock) -> None:
        self.rows: list[Any] = []
        self.filled: set[str] = set()  # partitions that are known to have emitted rows
        self.records = bounds.records  # left
        self.bytes = bounds.bytes  # left
        self._clock = clock
        self._until_s = clock.now() + bounds.seconds

    def emit(self, rows: Sequence[Any], read_bytes: int = 0) -> None:
        """Add rows that were read from `read_bytes` bytes."""
        self.rows += rows
        self.records -= len(rows)
        self.bytes -= read_bytes

    @property
    def seconds(self) -> float:
        """The time left, at least 0."""
        return max(self._until_s - self._clock.now(), 0.0)

    @property
    def full(self) -> bool:
        """Whether a bound is reached."""
        return self.records <= 0 or self.bytes <= 0 or not self.seconds
