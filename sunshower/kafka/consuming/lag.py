"""Lag and progress per partition, and the metrics derived from them.

Offsets are those of the next message, as in Kafka: a partition that is settled to its end has
`contiguous == end`. Offsets without a message (compacted records, transaction markers) count as
messages, as in Kafka's own tools.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import nan

from sunshower.kafka.partitions.ports import Partition


@dataclass(frozen=True)
class Lag:
    """The progress of a group in a partition, as the brokers report it."""

    partition: Partition
    committed: int | None  # None: the group has no committed offset here
    begin: int  # the earliest retained offset
    end: int  # of the log (the high watermark)
    # Below it no transaction is open: a reader of committed transactions (the default) stops here.
    last_stable: int | None = None
    metadata: str = ""  # committed with the offset

    @property
    def lag(self) -> int:
        """Messages left to read, from the committed offset or else from `begin`."""
        at = self.begin if self.committed is None else max(self.committed, self.begin)
        return max(self.end - at, 0)

    @property
    def removed(self) -> int:
        """Messages that the brokers deleted before the group committed them."""
        return 0 if self.committed is None else max(self.begin - self.committed, 0)


@dataclass(frozen=True)
class PartitionStatus:
    """The progress of a partition, as the task that reads it sees it."""

    committed: int | None = None
    contiguous: int = 0  # all below are settled: the next offset to commit
    emitted: int = 0  # all below were emitted at least once
    end: int | None = None  # None: not known yet
    holes: int = 0  # open offsets from `contiguous` on that lie below a settled one
    waiting: int = 0  # failed, waiting to be emitted again
    paused: bool = False

    @property
    def lag(self) -> int:
        """Messages known to exist that are not settled yet."""
        return max((self.emitted if self.end is None else self.end) - self.contiguous, 0)


def figures(
    standings: Mapping[Partition, PartitionStatus], *, is_known: bool = True
) -> dict[str, float]:
    """A spout's metrics: sums, and each figure of each partition under `topic[0]/…`. The sum of the
    lags is NaN unless `is_known`: where the partitions end has been told."""
    all_of = standings.values()
    sums: dict[str, float] = {
        "lag": sum(one.lag for one in all_of) if is_known else nan,
        "holes": sum(one.holes for one in all_of),
        "waiting": sum(one.waiting for one in all_of),
        "paused": sum(one.paused for one in all_of),
    }
    return sums | {
        f"{partition}/{name}": float(value)
        for partition, one in sorted(standings.items())
        for name, value in (*vars(one).items(), ("lag", one.lag))
        if value is not None
    }


def total(lags: Iterable[Lag]) -> int:
    """The lag over all partitions."""
    return sum(one.lag for one in lags)
