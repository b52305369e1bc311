"""Detects an outage of all brokers from the errors that librdkafka reports."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import closing
from typing import Any
from weakref import WeakMethod

from sunshower.errors import KafkaError, KafkaUnreachable
from sunshower.kafka.partitions.broker_metadata import KafkaDirectory, as_ours

_REASONS = {"_TRANSPORT", "_RESOLVE", "_TIMED_OUT"}


def weakly(method: Callable[..., None]) -> Callable[..., None]:
    """A callback that calls a method as long as its object lives.

    A client keeps its callbacks. An object that has a client, and is its callback, would stay, with
    the client's threads and sockets, until a garbage collection, which workers run seldom.
    """
    found = WeakMethod(method)

    def call(*arguments: Any) -> None:
        if (alive := found()) is not None:
            alive(*arguments)

    return call


class Connection:
    """The connections of one client. `on_error` is its `error_cb`, or called by it.

    A client without any connection raises nothing: a consumer returns no messages, a producer
    fills its queue. `check` raises instead, so that the task pauses and reports the outage.
    """

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._settings = settings
        self._address = str(settings.get("bootstrap.servers"))
        self._is_cut = False  # all brokers were down at the last report
        self._reason: Any = None  # the reported error of the last failed connection
        self._thread: threading.Thread | None = None  # sends requests until a broker answers
        self._is_closed = False

    def on_error(self, error: Any) -> None:
        """Record an error that the client reports about its connections."""
        if error.name() == "_ALL_BROKERS_DOWN":
            self._is_cut = True
            self._reason = self._reason or error
        elif error.name() in _REASONS:
            self._reason = error

    @property
    def is_cut(self) -> bool:
        """Whether all brokers were down at the last report."""
        return self._is_cut

    def check(self) -> None:
        """Raise KafkaUnreachable if all brokers are down. It does not block: the first call starts
        a thread that sends requests until there is an answer."""
        if not self._is_cut:
            return
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._ask, name="kafka-outage", daemon=True)
            self._thread.start()
        raise as_ours(self._reason, "anything", self._address)

    def close(self) -> None:
        """Let the thread end, if it runs."""
        self._is_closed = True

    def _ask(self) -> None:
        """Send requests with a separate client: the task may close its own meanwhile."""
        with closing(KafkaDirectory(self._settings)) as directory:
            while not self._is_closed:
                try:
                    directory.topics()
                except KafkaUnreachable:
                    continue  # the request took at least two seconds
                except KafkaError:
                    break  # a broker answered
                break
        self._is_cut, self._reason = False, None
