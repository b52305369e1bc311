"""Calls user code when the partitions of a task change."""

from __future__ import annotations

from collections.abc import Collection

from sunshower.kafka.partitions.ports import Partition, PartitionOwner


class RebalanceListener:
    """Subclass it, and give an instance in `KafkaOptions(listener=…)`; each task has a copy.

    An exception stops the task, which is tried again, as for any error of a spout.
    Kafka: org.apache.kafka.clients.consumer.ConsumerRebalanceListener
    """

    def assigned(self, partitions: Collection[Partition]) -> None:
        """Called before the first record of these is read; again if that could not begin."""

    def revoked(self, partitions: Collection[Partition], *, lost: bool) -> None:
        """Called when these are read no more; all that is processed of them is committed, unless
        they are `lost`: then another task or process may read them already."""


class NoPartitions:
    """Implements the port `PartitionOwner` for a sharing whose `look` was never called."""

    def assigned(self, partitions: Collection[Partition]) -> None: ...

    def revoked(self, partitions: Collection[Partition], *, lost: bool) -> None: ...


class ListenedOwner:
    """Implements the port `PartitionOwner`: passes on to `owner`, and calls the listener."""

    def __init__(self, owner: PartitionOwner, listener: RebalanceListener) -> None:
        self._owner, self._listener = owner, listener

    def assigned(self, partitions: Collection[Partition]) -> None:
        self._listener.assigned(partitions)
        self._owner.assigned(partitions)

    def revoked(self, partitions: Collection[Partition], *, lost: bool) -> None:
        try:
            self._owner.revoked(partitions, lost=lost)
        finally:
            self._listener.revoked(partitions, lost=lost)
