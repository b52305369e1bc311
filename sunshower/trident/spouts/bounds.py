"""Limits on one task's share of a batch: what is declared, and what batches process in time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sunshower.arguments import COUNT, SECONDS, check_all
from sunshower.clock import Clock

_GOAL_S, _LONG_S = 5.0, 10.0  # a sixth, and a third, of the default message timeout
_FIRST = 100  # a record may take 0.3 s then
_GROWTH_MAX, _SHRINKING_MAX = 20, 0.5  # from one batch to the next


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """Limits of each task's share of a batch; the first that is reached ends it. Only a single
    record may exceed `bytes`. `seconds` limits the time to wait for rows and read them. Raises
    ConfigError."""

    records: int = 50_000
    bytes: int = 16 << 20  #: as read from the source
    seconds: float = 0.5

    def __post_init__(self) -> None:
        check_all(self, {"records": COUNT, "bytes": COUNT, "seconds": SECONDS}, "Bounds: ")


class Room:
    """Collects the rows of one batch and tracks what its bounds still allow (port `Rows`)."""

    def __init__(self, bounds: Bounds, clock: Clock, records_max: int | None = None) -> None:
        self.rows: list[Any] = []
        self.filled: set[str] = set()  # partitions that are known to have emitted rows
        most = bounds.records if records_max is None else min(records_max, bounds.records)
        self.records = most  # left
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


class ShareSize:
    """Finds how many records a task's share may have, so that a batch is committed in 5 s to 10 s.

    A batch that takes longer than the message timeout is emitted again, of a transactional spout
    with the same rows, so it might never be committed. The first share is small. After each commit
    the limit follows from the time that the batch has taken since its rows were read.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.records_max = _FIRST
        self._active: dict[int, tuple[int, float]] = {}  # txid → records, when they had been read

    def read(self, txid: int, records: int) -> None:
        """The share of a batch was read, perhaps again."""
        self._active[txid] = (records, self._clock.now())

    def committed(self, txid: int) -> None:
        """The batch, and all before it, are committed."""
        records, read_s = self._active.get(txid, (0, 0.0))
        self._active = {one: kept for one, kept in self._active.items() if one > txid}
        if not records:
            return
        change = _GOAL_S / max(self._clock.now() - read_s, _GOAL_S / _GROWTH_MAX)
        fits = int(records * max(change, _SHRINKING_MAX))
        if (
            change >= 1.0
        ):  # a share that the source has not filled proves nothing about a larger one
            self.records_max = max(self.records_max, fits)
        elif change < _GOAL_S / _LONG_S:
            self.records_max = max(min(self.records_max, fits), _FIRST)
