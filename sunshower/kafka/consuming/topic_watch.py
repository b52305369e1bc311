"""Asks in the background for the ids of topics, so that a topic that was created again is noticed.

A client goes on reading at its offset in a topic that was deleted and created again under the same
name, without an error or an event, if the new topic has that offset. Only its id differs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future, ThreadPoolExecutor

from sunshower.clock import Clock

EVERY_S = 1.0
Ask = Callable[[Collection[str]], Mapping[str, str]]


class TopicWatch:
    """One request at a time. `ask` is `Directory.topic_ids`, called in a thread."""

    def __init__(self, ask: Ask, clock: Clock) -> None:
        self.ask = ask
        self._clock = clock
        self._thread = ThreadPoolExecutor(1, "topic-ids")
        self._request: Future[Mapping[str, str]] | None = None
        self._due_s = 0.0

    @property
    def is_due(self) -> bool:
        """Whether no request is under way, and the last one is some time ago."""
        return self._request is None and self._clock.now() >= self._due_s

    @property
    def is_idle(self) -> bool:
        """Whether no request is under way."""
        return self._request is None

    def begin(self, topics: Collection[str]) -> None:
        """Start a request; none may be under way."""
        self._due_s = self._clock.now() + EVERY_S
        self._request = self._thread.submit(self.ask, topics)

    def answer(self) -> Mapping[str, str] | None:
        """The answer to the request, once; None as long as there is none. Raises what the request
        has raised."""
        if self._request is None or not self._request.done():
            return None
        request, self._request = self._request, None
        return request.result()

    def close(self) -> None:
        """Stop the thread without waiting."""
        self._thread.shutdown(wait=False, cancel_futures=True)
