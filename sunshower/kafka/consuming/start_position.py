"""Decides at which offset a task starts to read a partition: docs/KAFKA.md has the table.

Offsets that retention deleted after the commit are skipped and reported, and so are those that
`behind_max` passes over. Storm: org.apache.storm.kafka.spout.KafkaSpout (doSeek),
FirstPollOffsetStrategy
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from sunshower.arguments import Values
from sunshower.errors import BadOffset
from sunshower.kafka.consuming.consumer import Consumer
from sunshower.kafka.partitions.ports import Committed, Partition, RetainedOffsets

_LOG = logging.getLogger("sunshower.kafka")
_SHOWN_MAX = 3  # partitions in a warning


class StartPosition(Enum):
    """Where a task begins to read a partition; see the table in docs/KAFKA.md."""

    EARLIEST = "earliest"
    LATEST = "latest"
    UNCOMMITTED_EARLIEST = "uncommitted earliest"
    UNCOMMITTED_LATEST = "uncommitted latest"
    NONE = "none"
    STORM = "storm"
    STORM_FORCED = "storm, forced"

    @property
    def by_anyone(self) -> bool:
        """Whether it continues at the committed offset of any deployment."""
        return self.value.startswith("uncommitted") or self is StartPosition.NONE

    @property
    def from_end(self) -> bool:
        """Whether it begins at the end if there is no committed offset to continue at."""
        return self in (StartPosition.LATEST, StartPosition.UNCOMMITTED_LATEST, StartPosition.STORM)


_TIME = Values(int, "a whole number", least=0)


@dataclass(frozen=True)
class StartTime:
    """Begin at the first message with this timestamp or a later one: milliseconds since 1970."""

    timestamp_ms: int
    by_anyone = from_end = False

    def __post_init__(self) -> None:
        _TIME.check("StartTime: timestamp_ms", self.timestamp_ms)


Where = StartPosition | StartTime


class Start(NamedTuple):
    """The offset to begin at, and the range [first, end) that is skipped, if any."""

    offset: int
    skipped: tuple[int, int] | None = None

    @property
    def first(self) -> int:
        return self.skipped[0] if self.skipped else self.offset


def find_start(
    where: Where,
    stored: Committed | None,
    deployment: str,
    retained: RetainedOffsets,
    *,
    stamped: int | None = None,
    behind_max: int | None = None,
) -> Start:
    """The start of a partition. `stamped`: the offset of `StartTime`; None if no message is so
    late."""
    earliest, latest = retained
    if where in (StartPosition.STORM, StartPosition.STORM_FORCED):
        forced = where is StartPosition.STORM_FORCED
        start = storm_start(stored, deployment, earliest if forced else latest, forced, behind_max)
        return start if start.skipped else within(start.offset, retained, where)
    if stored is not None and (where.by_anyone or writer(stored) == deployment):
        offset = stored.offset
    elif isinstance(where, StartTime):
        offset = latest if stamped is None else stamped
    else:
        offset = latest if where.from_end else earliest
    start = within(offset, retained, where)
    if behind_max is not None and latest - start.offset > behind_max:
        return Start(latest - behind_max, (start.first, latest - behind_max))
    return start


def check_start(
    where: Where, partition: Partition, offset: int | None, retained: RetainedOffsets
) -> None:
    """Raise BadOffset for `StartPosition.NONE` unless `offset` is in the partition, or its end.

    Source: org/apache/kafka/clients/consumer/OffsetResetStrategy.java (NONE)
    """
    earliest, latest = retained
    if where is not StartPosition.NONE or (offset is not None and earliest <= offset <= latest):
        return
    problem = "no offset is committed"
    if offset is not None:
        problem = f"offset {offset} was to be read next; retention has removed it, or the topic "
        problem += "was cut or recreated"
    raise BadOffset(
        f"{partition}: {problem}, and first=StartPosition.NONE begins nowhere else. The partition "
        f"has the offsets from {earliest} up to {latest}: commit one of them for the group, or say "
        "where to begin, such as first=StartPosition.UNCOMMITTED_EARLIEST"
    )


def within(offset: int, retained: RetainedOffsets, where: Where) -> Start:
    """`offset` if it is retained; deleted ones before are skipped. An offset beyond the end means
    that the topic was recreated: start as if nothing had been committed, and report what a start
    at the end passes over."""
    earliest, latest = retained
    if offset < earliest:
        return Start(earliest, (offset, earliest))
    if offset > latest:
        if where.from_end and earliest < latest:
            return Start(latest, (earliest, latest))
        return Start(earliest)
    return Start(offset)


def storm_start(
    stored: Committed | None,
    deployment: str,
    wished: int,
    forced: bool = False,
    behind_max: int | None = None,
) -> Start:
    """The rule of Storm's first Kafka spout, STORM above; `wished`: the end, or the start if
    `forced`.

    If the committed offset is too far behind `wished`, it begins there instead. Storm only logs
    that.
    Source: org/apache/storm/kafka/PartitionManager.java (the constructor)
    """
    if stored is None or (forced and writer(stored) != deployment):
        return Start(wished)
    if behind_max is not None and wished - stored.offset > behind_max:
        return Start(wished, (stored.offset, wished))
    return Start(stored.offset)


def writer(committed: Committed) -> str | None:
    """The id of the deployment that wrote the offset, if the metadata contain it."""
    id = committed.fields.get("topologyId")
    return id if isinstance(id, str) else None


# ---- start finder ------------------------------------------------------------------------------


class StartFinder:
    """Finds the offsets at which a deployment begins, from the option `first`, stored offsets, and
    what the brokers have. Its methods raise BadOffset, and KafkaError without an answer."""

    def __init__(
        self, consumer: Consumer, first: Where, deployment: str, behind_max: int | None = None
    ) -> None:
        self._consumer = consumer
        self._first, self._deployment, self._behind_max = first, deployment, behind_max
        self.recreated = 0  # partitions that were begun anew
        # Partitions that an earlier start has stored: the stored position, and where it begins now.
        self._ignored: dict[Partition, tuple[int, int]] = {}
        self._reported = 0  # how many of these

    def continues(self, stored: Committed) -> bool:
        """Whether a start continues at this offset."""
        return self._first.by_anyone or writer(stored) == self._deployment

    def find(
        self,
        partition: Partition,
        stored: Committed | None,
        retained: RetainedOffsets,
        *,
        new: bool = False,
    ) -> Start:
        """Where to begin. `new`: the partition was created after the first start, so without a
        stored offset it is read from its beginning."""
        where = StartPosition.EARLIEST if new and stored is None else self._first
        stamped = None
        if isinstance(where, StartTime):
            stamped = self._consumer.since(partition, where.timestamp_ms)
        check_start(where, partition, stored and stored.offset, retained)
        return find_start(
            where,
            stored,
            self._deployment,
            retained,
            stamped=stamped,
            behind_max=self._behind_max,
        )

    def find_anew(
        self,
        partition: Partition,
        former: int,
        retained: RetainedOffsets,
        *,
        new: bool = False,
    ) -> Start:
        """Where to begin in a topic that was created again; `former`: where the former one was
        read. What a start at the end passes over counts as skipped."""
        if self._first is StartPosition.NONE:
            raise BadOffset(
                f"{partition}: its topic was deleted and created again, the former one was read up "
                f"to offset {former}, and first=StartPosition.NONE begins nowhere else: commit an "
                "offset for the group while nothing reads, or say where to begin, such as "
                "first=StartPosition.UNCOMMITTED_EARLIEST"
            )
        start = self.find(partition, None, retained, new=new)
        passes_over = self._first.from_end and not new and retained.earliest < start.offset
        if start.skipped is None and passes_over:
            start = Start(start.offset, (retained.earliest, start.offset))
        self.recreated += 1
        _LOG.warning(
            "%s: its topic was deleted and created again; the former one was read up to offset %d, "
            "the new one is read from %d (first=%s)",
            *(partition, former, start.offset, self._first),
        )
        return start

    def note_ignored(
        self, partition: Partition, stored: int, start: int, retained: RetainedOffsets
    ) -> None:
        """Note that a partition begins at `start`, and not where an earlier start has stored."""
        is_same = start == stored or stored < start == retained.earliest
        if not is_same and partition not in self._ignored:
            self._ignored[partition] = stored, start

    def report_ignored(self) -> None:
        """Log one warning of the positions that were noted since the last one, if there are any."""
        ignored = [*self._ignored.items()][self._reported :]
        if not ignored:
            return
        self._reported = len(self._ignored)
        shown = [
            f"{partition} begins at offset {start}, and the stored position is {stored}"
            for partition, (stored, start) in ignored[:_SHOWN_MAX]
        ]
        if len(ignored) > _SHOWN_MAX:
            shown.append(f"and {len(ignored) - _SHOWN_MAX} more partitions")
        effects = []
        if any(start < stored for _, (stored, start) in ignored):
            effects.append(
                "messages before the stored position are processed again, and results that are "
                "stored count them twice"
            )
        if any(start > stored for _, (stored, start) in ignored):
            effects.append("messages between the two are not processed")
        continuing = StartPosition.UNCOMMITTED_EARLIEST
        if self._first.from_end:
            continuing = StartPosition.UNCOMMITTED_LATEST
        _LOG.warning(
            "an earlier start of this topology has stored positions, and first=%s does not "
            "continue there: %s. So %s. To continue at each start, give first=%s",
            *(self._first, "; ".join(shown), ", and ".join(effects), continuing),
        )
