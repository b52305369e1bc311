"""Partitioned spouts of rows in memory: a transactional one, and one whose repeats differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from sunshower.errors import TopologyError
from sunshower.trident.spouts.bounds import Bounds, Room
from sunshower.trident.spouts.port import OpaquePartitionedSpout, PartitionedSpout


class Item(NamedTuple):
    """A numbered row."""

    number: int  # 0 … total - 1
    key: int  # number % keys


def items(total: int, keys: int = 16) -> list[Item]:
    """Numbered rows, in which every loss and every repeat can be found."""
    return [Item(number, number % keys) for number in range(total)]


class _Rows:
    """Partition i of n has rows i, i + n, … A batch takes at most `size` rows of each partition."""

    def __init__(
        self,
        rows: Sequence[Any],
        size: int = 1_000,
        *,
        partitions: int = 1,
        type: type[Any] | None = None,
        fields: Sequence[str] | None = None,
        bounds: Bounds | None = None,
    ) -> None:
        if size < 1 or partitions < 1:
            raise TopologyError(
                f"batches of {size} rows from {partitions} partitions: there must be 1 at least"
            )
        self.emits = type or fields or (rows[0].__class__ if rows else None)
        self.bounds = bounds or Bounds()
        self._size = size
        self._parts = {str(part): [*rows[part::partitions]] for part in range(partitions)}
        self._times: Counter[tuple[str, int]] = Counter()

    def partitions(self) -> Sequence[str]:
        return [*self._parts]

    def _emit(self, partition: str, last: Any, size: int, room: Room) -> Any:
        first = last["end"] if last else 0
        rows = self._parts[partition][first : first + max(min(size, room.records), 1)]
        room.emit(rows)
        return {"first": first, "end": first + len(rows)}

    def is_end(self, partition: str, metadata: Any) -> bool:
        ended: bool = metadata["end"] >= len(self._parts[partition])
        return ended


class RowBatches(_Rows, PartitionedSpout):
    """Rows of a list; `type` or `fields` declares what they are."""

    def emit_new(self, partition: str, last: Any, room: Room) -> Any:
        return self._emit(partition, last, self._size, room)

    def emit_again(self, partition: str, metadata: Any, room: Room) -> None:
        room.emit(self._parts[partition][metadata["first"] : metadata["end"]])


class OpaqueRowBatches(_Rows, OpaquePartitionedSpout):
    """The same rows, but a repeated batch has more or fewer of them than the first attempt, as
    with an opaque spout."""

    def emit_new(self, partition: str, last: Any, room: Room) -> Any:
        first = last["end"] if last else 0
        self._times[partition, first] += 1
        again = self._times[partition, first] - 1
        size = self._size if not again else 1 + (first + 3 * again) % (2 * self._size)
        return self._emit(partition, last, size, room)
