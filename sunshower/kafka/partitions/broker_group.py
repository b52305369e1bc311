"""Shares partitions among the members of a consumer group on the brokers, through librdkafka.

librdkafka finds the coordinator, joins, assigns if it leads the group (range, round robin, or
cooperative sticky), sends heartbeats, and calls back on changes while it is polled.
"""

from __future__ import annotations

from math import inf
from typing import Any

from sunshower.clock import Clock
from sunshower.errors import user_errors
from sunshower.kafka.consuming.consumer import Consumer, ours
from sunshower.kafka.consuming.subscription import TopicSubscription
from sunshower.kafka.partitions.ports import SETTLES_S, Directory, RebalanceListener


class BrokerGroup:
    """Implements the port `PartitionSharing`; it calls `owner` also while the consumer is polled.

    An exception within the client's poll would lose the polled messages. So an error of `owner`
    is kept, and the next `look` raises it and joins the group again.
    For a pattern, this looks up the matching topics every `refresh_s` and subscribes to their
    names: the client's own patterns have another syntax, and match Kafka's internal topics.
    """

    later_is_new = False

    def __init__(
        self,
        subscription: TopicSubscription,
        consumer: Consumer,
        directory: Directory,
        clock: Clock,
        *,
        refresh_s: float,
    ) -> None:
        self._subscription = subscription
        self._directory = directory
        self._clock = clock
        self._refresh_s = refresh_s
        self._look_s = 0.0  # the time of the next lookup of the pattern
        self._topics: list[str] = []  # the client's subscription
        self._consumer = consumer
        consumer.grouped = True
        consumer.eager = "cooperative" not in consumer.strategy
        self._owner: RebalanceListener | None = None
        self._error: BaseException | None = None
        self._assigned_s = inf  # when the group assigned partitions last; inf: it divides them now

    @property
    def is_settled(self) -> bool:
        return self._clock.now() - self._assigned_s >= SETTLES_S

    def look(self, owner: RebalanceListener) -> None:
        if self._error is not None:
            error, self._error = self._error, None
            self._topics, self._look_s = [], 0.0
            self._consumer.client.unsubscribe()
            raise error
        named = self._subscription.pattern is None
        if (self._topics and named) or self._clock.now() < self._look_s:
            return
        topics = sorted(self._subscription.names(self._directory))
        self._look_s = self._clock.now() + self._refresh_s
        if topics != self._topics:
            self._owner, self._topics = owner, topics
            self._subscribe(topics)

    def refresh(self) -> None:
        self._look_s = 0.0

    def _subscribe(self, topics: list[str]) -> None:
        if not topics:
            self._consumer.client.unsubscribe()
            self._assigned_s = self._clock.now()
        else:
            self._consumer.client.subscribe(
                topics,
                on_assign=self._assigned,
                on_revoke=self._revoked,
                on_lost=self._lost,
            )

    def leave(self, owner: RebalanceListener) -> None:
        """Do nothing: closing the consumer leaves the group, which revokes the partitions."""

    def _assigned(self, client: Any, partitions: list[Any]) -> None:
        self._assigned_s = self._clock.now()
        if self._owner is None:
            return
        try:
            self._owner.assigned(ours(partitions))
        except user_errors() as error:
            self._error = error

    def _revoked(self, client: Any, partitions: list[Any]) -> None:
        # A rebalance that began before the group expelled this member is served after it; an
        # expelled member has no id, and others may read its partitions already.
        self._give_back(partitions, lost=not client.memberid())

    def _lost(self, client: Any, partitions: list[Any]) -> None:
        self._give_back(partitions, lost=True)

    def _give_back(self, partitions: list[Any], *, lost: bool) -> None:
        self._assigned_s = inf
        if self._owner is None:
            return
        try:
            self._owner.revoked(ours(partitions), lost=lost)
        except user_errors() as error:
            self._error = error
