"""Shares partitions among the spout's tasks by their index, without a consumer group."""

from __future__ import annotations

import logging

from sunshower.clock import Clock
from sunshower.kafka.consuming.subscription import Subscription
from sunshower.kafka.partitions.assignment import idle, modulo
from sunshower.kafka.partitions.ports import Directory, Owner, Partition

_LOG = logging.getLogger("sunshower.kafka")


class ByIndex:
    """Implements the port `Sharing` with Storm's rule: task i of n takes each n-th, from i on.

    Tasks find new topics and partitions every `refresh_s`. They refresh at different times, so two
    tasks may read a partition for up to that time.
    Raises ConfigError for an index that is out of range.
    """

    later_is_new = True

    def __init__(
        self,
        subscription: Subscription,
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

    def look(self, owner: Owner) -> None:
        now_s = self._clock.now()
        if now_s < self._look_s:
            return
        found = self._subscription.found(self._directory)
        mine = frozenset(modulo(found, self._tasks, self._index))
        if idle(found, self._tasks) and not self._warned:
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

    def _change(self, owner: Owner, mine: frozenset[Partition]) -> None:
        if gone := self._held - mine:
            self._held -= gone
            owner.revoked(gone, lost=False)
        if new := mine - self._held:
            owner.assigned(new)
        self._held = mine

    def leave(self, owner: Owner) -> None:
        gone, self._held = self._held, frozenset()
        if gone:
            owner.revoked(gone, lost=False)
