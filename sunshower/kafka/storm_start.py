"""Where Storm's first Kafka spout begins to read a partition: three cases, and a limit.

stored   written by           asked for the start   begins
none     –                    no, yes               at the end; at the start
there    another deployment   yes                   at the start
there    any other case                             where it is stored

Then, if that is too far behind the end (or the start, if that was asked for), it begins there
instead. Storm says so in its log alone; here it is told which offsets are passed over.

Storm: org/apache/storm/kafka/PartitionManager.java (the constructor)
"""

from __future__ import annotations

import json
from typing import NamedTuple

from sunshower.kafka.partitions import Committed


class Start(NamedTuple):
    """Where to begin, and what is passed over by that: first, and first not."""

    offset: int
    skipped: tuple[int, int] | None = None


def storm_start(
    stored: Committed | None,
    topology: str,
    *,
    earliest: int,
    latest: int,
    from_start: bool = False,
    max_offset_behind: int | None = None,
) -> Start:
    """`topology` is the id of this deployment, `from_start` Storm's forceFromStart.

    `earliest` and `latest` are what the partition has: its first offset, and the next to come.
    """
    wished = earliest if from_start else latest
    if stored is None or (from_start and writer(stored) != topology):
        return Start(wished)
    if max_offset_behind is not None and wished - stored.offset > max_offset_behind:
        return Start(wished, (stored.offset, wished))
    return Start(stored.offset)


def writer(committed: Committed) -> str | None:
    """The id of the deployment that wrote it, if the metadata tell it."""
    try:
        found = json.loads(committed.metadata)
    except ValueError:
        return None
    id = found.get("topologyId") if isinstance(found, dict) else None
    return id if isinstance(id, str) else None
