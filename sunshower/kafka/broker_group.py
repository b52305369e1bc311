"""Who shares the partitions: the members of a group that the brokers keep, by librdkafka.

It finds the coordinator, joins, has the leader assign (by range, round robin, or cooperatively
sticky), sends heartbeats, and is told of changes while it is polled.
"""

from __future__ import annotations

from typing import Any

from sunshower.kafka.consumer import Consumer, ours
from sunshower.kafka.partitions import Owner
from sunshower.kafka.subscription import Subscription


class BrokerGroup:
    """See the port `Sharing`; `owner` is told while the consumer is polled, too.

    What it raises is kept, and raised by the next `look`, which joins the group anew: what is
    raised within the client's poll would take messages along.
    """

    def __init__(self, subscription: Subscription, consumer: Consumer) -> None:
        pattern = subscription.pattern
        self._topics = [f"^({pattern})$"] if pattern is not None else [*subscription.topics]
        self._consumer = consumer
        consumer.grouped = True
        consumer.eager = "cooperative" not in consumer.strategy
        self._owner: Owner | None = None
        self._joined = False
        self._error: Exception | None = None

    def look(self, owner: Owner) -> None:
        if self._error is not None:
            error, self._error, self._joined = self._error, None, False
            self._consumer.client.unsubscribe()
            raise error
        if not self._joined:
            self._owner, self._joined = owner, True
            self._consumer.client.subscribe(
                self._topics,
                on_assign=self._assigned,
                on_revoke=self._revoked,
                on_lost=self._lost,
            )

    def leave(self, owner: Owner) -> None:
        """Closing the consumer leaves the group: `owner` is told by it."""

    def _assigned(self, client: Any, partitions: list[Any]) -> None:
        if self._owner is None:
            return
        try:
            self._owner.assigned(ours(partitions))
        except Exception as error:
            self._error = error

    def _revoked(self, client: Any, partitions: list[Any]) -> None:
        self._give_back(partitions, lost=False)

    def _lost(self, client: Any, partitions: list[Any]) -> None:
        self._give_back(partitions, lost=True)

    def _give_back(self, partitions: list[Any], *, lost: bool) -> None:
        if self._owner is None:
            return
        try:
            self._owner.revoked(ours(partitions), lost=lost)
        except Exception as error:
            self._error = error
