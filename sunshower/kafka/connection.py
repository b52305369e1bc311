"""Tells whether all brokers are away, from what librdkafka reports about its connections."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sunshower.kafka.metadata import as_ours

_PROBE_S = 1.0  # to wait for an answer while all brokers are away
_REASONS = {"_TRANSPORT", "_RESOLVE", "_TIMED_OUT"}


class Connection:
    """The connections of one client. `hear` is its `error_cb`, or called by it.

    A client that is cut off from all brokers raises nothing: a consumer has no messages, a producer
    keeps its queue. `check` raises instead, so that the task pauses and says what it waits for.
    """

    def __init__(self, address: str) -> None:
        self._address = address
        self._is_cut = False  # all brokers were away when they were last heard of
        self._reason: Any = None  # what the client said of the last connection that failed

    def hear(self, error: Any) -> None:
        """Note an error that the client reports about itself."""
        if error.name() == "_ALL_BROKERS_DOWN":
            self._is_cut = True
            self._reason = self._reason or error
        elif error.name() in _REASONS:
            self._reason = error

    def check(self, list_topics: Callable[..., object]) -> None:
        """Raise KafkaUnreachable if all brokers are away, within a second. `list_topics` is the
        client's; it is called only after the client has reported that all brokers are away."""
        if not self._is_cut:
            return
        from confluent_kafka import KafkaException

        try:
            list_topics(timeout=_PROBE_S)
        except KafkaException as error:
            raise as_ours(self._reason or error.args[0], "anything", self._address) from error
        self._is_cut, self._reason = False, None
