"""Operators of exactly-once batches that publish, or wait for work outside their task.

The port of all operators is `sunshower/topologies/operators/port.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

from sunshower.topologies.operators.port import Attempt, Operator
from sunshower.trident.coordination.attempts import SourceTime
from sunshower.trident.states.counted import CountedIn


class Publishing(Operator):
    """An operator that stages its output by txid and publishes it once the batch is committed.
    `succeeded` follows soon after the commit, but a crash may prevent the call. A later call then
    covers the batch, and a new task can ask `counted`, which `GroupBuilder.freeze` sets."""

    publishes: bool = True  # False: this one has nothing to publish
    counted: CountedIn | None = None

    def succeeded(self, txid: int) -> None:
        """The batches up to `txid` are committed."""
        raise NotImplementedError


def publishing(operator: Operator) -> Publishing | None:
    """The operator, if it publishes."""
    return operator if isinstance(operator, Publishing) and operator.publishes else None


class Timed(Operator):
    """An operator that needs to know how far the sources are in event time."""

    def note_times(self, batch: Any, times: Mapping[str, SourceTime]) -> None:
        """Called before `finish`: those of all sources upstream at the end of the batch."""
        raise NotImplementedError


@runtime_checkable
class Waiting(Protocol):
    """An operator whose results come from outside its task, such as Spark. The task polls `ready`
    several times a second and processes other batches meanwhile. It resets the timeout of the
    batch's tree."""

    def ready(self, batch: Any, attempt: Attempt) -> bool:
        """Whether `finish` would return at once. Called repeatedly once `finish` may run; the first
        call starts the work. An exception fails the batch."""

    def give_up(self, batch: Any) -> None:
        """The attempt is over, finished or not: stop the work that was started for it."""
