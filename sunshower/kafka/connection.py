"""Tells whether all brokers are away, from what librdkafka reports about its connections."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import closing
from typing import Any

from sunshower.errors import KafkaError, KafkaUnreachable
from sunshower.kafka.metadata import KafkaDirectory, as_ours

_REASONS = {"_TRANSPORT", "_RESOLVE", "_TIMED_OUT"}


class Connection:
    """The connections of one client. `hear` is its `error_cb`, or called by it.

    A client that is cut off from all brokers raises nothing: a consumer has no messages, a producer
    keeps its queue. `check` raises instead, so that the task pauses and says what it waits for.
    """

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._settings = settings
        self._address = str(settings.get("bootstrap.servers"))
        self._is_cut = False  # all brokers were away when they were last heard of
        self._reason: Any = None  # what the client said of the last connection that failed
        self._thread: threading.Thread | None = None  # asks until a broker answers
        self._is_closed = False

    def hear(self, error: Any) -> None:
        """Note an error that the client reports about itself."""
        if error.name() == "_ALL_BROKERS_DOWN":
            self._is_cut = True
            self._reason = self._reason or error
        elif error.name() in _REASONS:
            self._reason = error

    def check(self) -> None:
        """Raise KafkaUnreachable if all brokers are away. It does not block: from the first call
        on another thread asks them, until there is an answer."""
        if not self._is_cut:
            return
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._ask, name="kafka-outage", daemon=True)
            self._thread.start()
        raise as_ours(self._reason, "anything", self._address)

    def close(self) -> None:
        """Let the thread end, if there is one."""
        self._is_closed = True

    def _ask(self) -> None:
        """With a client of its own: that of the task may be closed meanwhile."""
        with closing(KafkaDirectory(self._settings)) as directory:
            while not self._is_closed:
                try:
                    directory.topics()
                except KafkaUnreachable:
                    continue  # that took two seconds at least
                except KafkaError:
                    break  # a refusal is an answer
                break
        self._is_cut, self._reason = False, None
