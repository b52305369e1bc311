"""Where a partition is read from, when a task takes it over.

             committed by this deployment   committed by another   nothing committed
EARLIEST     where it is committed          the first offset       the first offset
LATEST       where it is committed          the end                the end
UNCOMMITTED_EARLIEST, UNCOMMITTED_LATEST: where it is committed, by whomever; else as above
a time       where it is committed          the first message of that time or later, or the end
STORM_…      Storm's first spout, whose rule stands in storm_start.py; _FORCED: from the start

A partition that is added while the tasks read by index has nothing but news: it is read from its
first offset.
A deployment is one declaration of the topology: what is started again goes on where it was.
Where it may be the end, it is committed at once: a task that dies goes on there.
Offsets that have no place for who wrote them (PlainOffsets) count as this deployment's.
What has been removed since it was committed cannot be read: that is a gap, and so is what
`behind_max` lets it pass over.
Storm: org.apache.storm.kafka.spout.KafkaSpout (doSeek), FirstPollOffsetStrategy
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from sunshower.arguments import Values
from sunshower.kafka.partitions import Committed
from sunshower.kafka.storm_start import Start, storm_start, writer


class First(Enum):
    """Where to begin; the table above."""

    EARLIEST = "earliest"
    LATEST = "latest"
    UNCOMMITTED_EARLIEST = "uncommitted earliest"
    UNCOMMITTED_LATEST = "uncommitted latest"
    STORM = "storm"
    STORM_FORCED = "storm, forced"

    @property
    def from_end(self) -> bool:
        """Whether it goes to the end where there is no place to go on at."""
        return self in (First.LATEST, First.UNCOMMITTED_LATEST, First.STORM)


_TIME = Values(int, "a whole number", least=0)


@dataclass(frozen=True)
class Since:
    """Begin at the first message of that time or later: milliseconds since 1970."""

    timestamp_ms: int
    from_end = False

    def __post_init__(self) -> None:
        _TIME.check("Since: timestamp_ms", self.timestamp_ms)


Where = First | Since


def begin(
    where: Where,
    stored: Committed | None,
    deployment: str,
    earliest: int,
    latest: int,
    *,
    stamped: int | None = None,
    behind_max: int | None = None,
) -> Start:
    """`stamped`: the offset of `Since`, None where no message is so late."""
    if where in (First.STORM, First.STORM_FORCED):
        start = storm_start(
            stored,
            deployment,
            earliest=earliest,
            latest=latest,
            from_start=where is First.STORM_FORCED,
            max_offset_behind=behind_max,
        )
        return start if start.skipped else within(start.offset, earliest, latest, where)
    offset = _first(where, stored, deployment, earliest, latest, stamped)
    start = within(offset, earliest, latest, where)
    if behind_max is not None and latest - start.offset > behind_max:
        first = start.skipped[0] if start.skipped else start.offset
        return Start(latest - behind_max, (first, latest - behind_max))
    return start


def within(offset: int, earliest: int, latest: int, where: Where) -> Start:
    """The same place, if it is there; what has been removed is skipped. Beyond the end, the topic
    is another one: there it begins as if nothing had been committed, and what the end passes over
    is skipped."""
    if offset < earliest:
        return Start(earliest, (offset, earliest))
    if offset > latest:
        if where.from_end and earliest < latest:
            return Start(latest, (earliest, latest))
        return Start(earliest)
    return Start(offset)


def _first(
    where: Where,
    stored: Committed | None,
    deployment: str,
    earliest: int,
    latest: int,
    stamped: int | None,
) -> int:
    by_anyone = where in (First.UNCOMMITTED_EARLIEST, First.UNCOMMITTED_LATEST)
    if stored is not None and (by_anyone or writer(stored) == deployment):
        return stored.offset
    if isinstance(where, Since):
        return latest if stamped is None else stamped
    return latest if where.from_end else earliest
