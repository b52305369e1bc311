"""Keeps the last failure of each cause and component, for the statistics."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from sunshower.failures import Cause, Failure
from sunshower.texts import clip

_KEPT = 8  # causes and components of one spout task
_TEXT_BYTES = 2048  # of a traceback; statistics are sent four times a second


class FailureSamples:
    """The newest failure of each cause and component, of the last eight of these."""

    def __init__(self) -> None:
        self._newest: dict[tuple[Cause, str], Failure] = {}

    def add(self, failures: Iterable[Failure]) -> None:
        """Note failures, in their order."""
        for failure in failures:
            place = (failure.cause, failure.component)
            self._newest.pop(place, None)  # so that the newest is the last
            self._newest[place] = failure
        while len(self._newest) > _KEPT:
            del self._newest[next(iter(self._newest))]

    def newest(self) -> tuple[Failure, ...]:
        """These failures, the newest first, with clipped texts."""
        return tuple(_clipped(failure) for failure in reversed(self._newest.values()))


def _clipped(failure: Failure) -> Failure:
    return replace(
        failure,
        reason=clip(failure.reason, _TEXT_BYTES),
        traceback=clip(failure.traceback, _TEXT_BYTES),
    )
