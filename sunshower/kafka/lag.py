"""How far each partition is read: figures, and what follows from them.

All offsets are those of the next message, as Kafka counts: a partition that is settled to its end
has `contiguous == end`. Offsets that hold no message (compacted away, or a transaction's marker)
count as messages here, as they do in Kafka's own tools.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from sunshower.kafka.partitions import Partition


@dataclass(frozen=True)
class Lag:
    """A partition and a group, as the brokers know them."""

    partition: Partition
    committed: int | None  # None: the group has committed nothing here
    begin: int  # the oldest offset that is still there
    end: int
    metadata: str = ""  # what was committed with the offset

    @property
    def lag(self) -> int:
        """How many are still to be read: from what is committed, else from the oldest one."""
        at = self.begin if self.committed is None else max(self.committed, self.begin)
        return max(self.end - at, 0)

    @property
    def removed(self) -> int:
        """How many the brokers have removed before the group had committed them."""
        return 0 if self.committed is None else max(self.begin - self.committed, 0)


@dataclass(frozen=True)
class Standing:
    """A partition as the task sees it that reads it."""

    committed: int | None = None
    contiguous: int = 0  # all below are settled: what will be committed next
    emitted: int = 0  # all below were emitted at least once
    end: int | None = None  # None: not known yet
    holes: int = 0  # offsets from `contiguous` on that are open, below one that is settled
    waiting: int = 0  # failed, and waiting to be emitted again
    paused: bool = False

    @property
    def lag(self) -> int:
        """How many are not settled yet, of those that are known to be there."""
        return max((self.emitted if self.end is None else self.end) - self.contiguous, 0)


def figures(standings: Mapping[Partition, Standing]) -> dict[str, float]:
    """What a spout shows of its partitions: sums, and each figure of each under `topic[0]/…`."""
    all_of = standings.values()
    sums: dict[str, float] = {
        "lag": sum(one.lag for one in all_of),
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
    """How many are still to be read, over all partitions."""
    return sum(one.lag for one in lags)
