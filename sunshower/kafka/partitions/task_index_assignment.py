"""Shares partitions among the spout's tasks by their index, without a consumer group."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from sunshower.clock import Clock
from sunshower.errors import ConfigError
from sunshower.kafka.consuming.subscription import TopicSubscription
from sunshower.kafka.partitions.ports import Directory, Partition, RebalanceListener

_LOG = logging.getLogger("sunshower.kafka")


class ByIndex:
    """The port `PartitionSharing` with Storm's rule: task i of n takes each n-th, from i on.

    Tasks find new topics and partitions every `refresh_s`. They refresh at different times, so two
    tasks may read a partition for up to that time.
    Raises ConfigError for an index that is out of range.
    """

    later_is_new = True
    is_settled = True

    def __init__(
        self,
        subscription: TopicSubscription,
        directory: Directory,
        clock: Clock,
        index: int,
        tasks: int,
        *,
        refresh_s: float,
    ) -> None:
        modulo((), tasks, index)
        self._subscription = subscription
        self._directory = directory
        self._clock = clock
        self._index, self._tasks = index, tasks
        self._refresh_s = refresh_s
        self._look_s = 0.0
        self._held: frozenset[Partition] = frozenset()
        self._warned = False

    def look(self, owner: RebalanceListener) -> None:
        now_s = self._clock.now()
        if now_s < self._look_s:
            return
        found = self._subscription.found(self._directory)
        mine = frozenset(modulo(found, self._tasks, self._index))
        if len(found) < self._tasks and not self._warned:
            self._warned = True
            _LOG.warning(
                "%d tasks share the %d partitions of %s: some have nothing to do",
                self._tasks,
                len(found),
                self._subscription.name,
            )
        if mine != self._held:
            self._change(owner, mine)
        self._look_s = self._clock.now() + self._refresh_s  # after an error: retried at once

    def refresh(self) -> None:
        self._look_s = 0.0

    def _change(self, owner: RebalanceListener, mine: frozenset[Partition]) -> None:
        if gone := self._held - mine:
            self._held -= gone
            owner.revoked(gone, lost=False)
        if new := mine - self._held:
            owner.assigned(new)
        self._held = mine

    def leave(self, owner: RebalanceListener) -> None:
        gone, self._held = self._held, frozenset()
        if gone:
            owner.revoked(gone, lost=False)


def modulo(partitions: Iterable[Partition], tasks: int, index: int) -> tuple[Partition, ...]:
    """The partitions of task `index` of `tasks`: each `tasks`-th in sorted order, from `index` on.

    Raises ConfigError for an index that is out of range.
    """
    if not 0 <= index < tasks:
        raise ConfigError(
            f"task {index} of {tasks} cannot take partitions: the index must be from 0 to "
            f"{tasks - 1}, the number of tasks less one"
        )
    return tuple(sorted(partitions)[index::tasks])
