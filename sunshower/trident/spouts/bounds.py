"""Limits one task's share of a batch: declared bounds, and a size that adapts to the time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, NamedTuple

from sunshower.arguments import COUNT, SECONDS, check_all
from sunshower.clock import Clock

_FIRST_S = 0.3  # a record may take so long in the first batch: 100 of them in 30 s
_GROWTH_MAX, _SHRINKING_MAX = 20, 0.5  # from one batch to the next
_STEEP = 1.5  # times as long, for twice the records
_LEAST_S = 1e-3  # of a batch


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


class RowsPart(NamedTuple):
    """Rows of one partition that were emitted one after the other."""

    partition: str | None  # None: not known
    end: int  # how many rows there are up to here, those of earlier parts included


class Room:
    """Collects the rows of one batch and tracks what its bounds still allow (port `Rows`)."""

    def __init__(self, bounds: Bounds, clock: Clock, records_max: int | None = None) -> None:
        self.rows: list[Any] = []
        self.filled: set[str] = set()  # partitions that are known to have emitted rows
        self.partition: str | None = None  # that of the rows emitted next, for windows
        self.parts: list[RowsPart] = []
        self.anew: set[str] = set()  # partitions that begin anew: event times before do not count
        self.refused: list[str] = []  # why some records of the batch cannot be emitted
        limit = bounds.records if records_max is None else min(records_max, bounds.records)
        self.records = limit  # left
        self.bytes = bounds.bytes  # left
        self._clock = clock
        self._until_s = clock.now() + bounds.seconds

    def emit(self, rows: Sequence[Any], read_bytes: int = 0) -> None:
        """Add rows that were read from `read_bytes` bytes."""
        self.rows += rows
        if rows:
            self.parts.append(RowsPart(self.partition, len(self.rows)))
        self.records -= len(rows)
        self.bytes -= read_bytes

    def refuse(self, reason: str) -> None:
        """A record of the batch cannot be emitted, in no attempt. The batch fails, and the others
        are put aside if it is skipped."""
        self.refused.append(reason)
        self.records -= 1

    @property
    def seconds(self) -> float:
        """The time left, at least 0."""
        return max(self._until_s - self._clock.now(), 0.0)

    @property
    def full(self) -> bool:
        """Whether a bound is reached."""
        return self.records <= 0 or self.bytes <= 0 or not self.seconds


class _Share(NamedTuple):
    rows: int
    limit: int  # with which it was read
    read_s: float  # when


class ShareSize:
    """Finds how many records of its source a task may read for a batch, so that the batch is
    committed within a sixth to a third of `timeout_s`, the time in which it has to be.

    A batch that takes longer is emitted again, of a transactional spout with the same rows, so it
    might never be committed. The first limit is small. After each commit the next one follows from
    the time that the batch has taken since its rows were read.
    """

    def __init__(self, clock: Clock, timeout_s: float) -> None:
        self._clock = clock
        self._goal_s, self._long_s = timeout_s / 6, timeout_s / 3
        self.records_max = self._first = max(1, int(timeout_s / _FIRST_S))
        self._active: dict[int, _Share] = {}  # by txid
        self._doubles_below_s = inf  # a batch that takes longer than the goal, and less than this

    def begin(self, attempt: int) -> int:
        """The limit for a batch that is about to be read. Each further attempt halves it."""
        if attempt:
            self.records_max = max(self.records_max // 2, 1)
        return self.records_max

    def read(self, txid: int, rows: int) -> None:
        """So many rows of a batch were read, perhaps again."""
        self._active[txid] = _Share(rows, self.records_max, self._clock.now())

    def committed(self, txid: int) -> None:
        """The batch, and all before it, are committed."""
        share = self._active.get(txid)
        self._active = {
            other: other_share for other, other_share in self._active.items() if other > txid
        }
        if share is None or not share.rows:
            return
        took_s = max(self._clock.now() - share.read_s, _LEAST_S)
        change = self._goal_s / took_s
        is_full = share.rows >= share.limit
        if took_s < self._goal_s:
            # A source may make many rows of a record, or few; or it had nothing more to read.
            fits = share.limit * change if is_full else share.rows * change
            fits = min(fits, share.limit * _GROWTH_MAX)
            self.records_max = max(self.records_max, int(fits))
            self._doubles_below_s = inf
        elif took_s >= self._long_s:
            fits = share.limit * max(change, _SHRINKING_MAX)
            least = min(share.limit, self._first)  # perhaps it is not the rows that take so long
            self.records_max = max(min(self.records_max, int(fits)), least)
            self._doubles_below_s = 0.0
        elif is_full and share.limit == self.records_max and took_s < self._doubles_below_s:
            # Perhaps most of the time does not depend on the rows: twice as many will show it.
            self.records_max *= 2
            self._doubles_below_s = took_s * _STEEP
