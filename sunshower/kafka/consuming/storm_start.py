"""The start position rule of Storm's first Kafka spout: three cases, and a limit.

stored   written by           forced to the start   begins
none     –                    no, yes               at the end; at the start
yes      another deployment   yes                   at the start
yes      any other case                             at the stored offset

If that is too far behind the end (or the start, if forced), it begins there instead. Storm only
logs this; here the caller gets the skipped offsets.

Storm: org/apache/storm/kafka/PartitionManager.java (the constructor)
"""

from __future__ import annotations

import json
from typing import NamedTuple

from sunshower.kafka.partitions.ports import Committed


class Start(NamedTuple):
    """The offset to begin at, and the range [first, end) that is skipped, if any."""

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
    """`topology` is the id of this deployment; `from_start` is Storm's forceFromStart.

    `earliest` is the partition's first offset, `latest` the next one to be written.
    """
    wished = earliest if from_start else latest
    if stored is None or (from_start and writer(stored) != topology):
        return Start(wished)
    if max_offset_behind is not None and wished - stored.offset > max_offset_behind:
        return Start(wished, (stored.offset, wished))
    return Start(stored.offset)


def writer(committed: Committed) -> str | None:
    """The id of the deployment that wrote the offset, if the metadata contain it."""
    try:
        found = json.loads(committed.metadata)
    except ValueError:
        return None
    id = found.get("topologyId") if isinstance(found, dict) else None
    return id if isinstance(id, str) else None
