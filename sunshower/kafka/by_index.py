"""Who shares the partitions: the tasks of the spout, by their index, without any group."""

from __future__ import annotations

import logging

from sunshower.clock import Clock
from sunshower.kafka.assignment import idle, modulo
from sunshower.kafka.partitions import Directory, Owner, Partition
from sunshower.kafka.subscription import Subscription

_LOG = logging.getLogger("sunshower.kafka")


class ByIndex:
    """See the port `Sharing`. Storm's rule: of n tasks, task i takes each n-th, from i on.

    The tasks look at different moments, so that for as long a partition may be read by two. Topics
    and partitions that are new are found every `refresh_s`.
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
        self._look_s = self._clock.now() + self._refresh_s  # after an error, at once

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
