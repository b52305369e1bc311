"""Decides at which offset a task starts to read a partition.

             committed by this deployment   committed by another   nothing committed
EARLIEST     committed offset               the first offset       the first offset
LATEST       committed offset               the end                the end
UNCOMMITTED_EARLIEST, UNCOMMITTED_LATEST: the committed offset of any deployment; else as above
a time       committed offset               the first message of that time or later, or the end
STORM_…      the rule of Storm's first spout, see storm_start.py; _FORCED: from the start

A partition that is created while tasks read by index is read from its first offset.
A deployment is one declaration of the topology: a restarted one continues at its offsets.
Where the start may be the end, it is committed at once, so that a restarted task continues there.
Stores without metadata (PlainOffsets) count as written by this deployment.
Offsets that retention deleted after the commit are skipped and reported, and so are those that
`behind_max` passes over.
Storm: org.apache.storm.kafka.spout.KafkaSpout (doSeek), FirstPollOffsetStrategy
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from sunshower.arguments import Values
from sunshower.kafka.consuming.storm_start import Start, storm_start, writer
from sunshower.kafka.partitions.ports import Committed


class First(Enum):
    """Where to begin; see the table above."""

    EARLIEST = "earliest"
    LATEST = "latest"
    UNCOMMITTED_EARLIEST = "uncommitted earliest"
    UNCOMMITTED_LATEST = "uncommitted latest"
    STORM = "storm"
    STORM_FORCED = "storm, forced"

    @property
    def from_end(self) -> bool:
        """Whether it begins at the end if there is no committed offset to continue at."""
        return self in (First.LATEST, First.UNCOMMITTED_LATEST, First.STORM)


_TIME = Values(int, "a whole number", least=0)


@dataclass(frozen=True)
class Since:
    """Begin at the first message with this timestamp or a later one: milliseconds since 1970."""

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
    """The start of a partition. `stamped`: the offset of `Since`; None if no message is so late."""
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
    """`offset` if it is in range; deleted offsets before `earliest` are skipped. An offset beyond
    the end means that the topic was recreated: start as if nothing had been committed, and report
    what a start at the end passes over."""
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
