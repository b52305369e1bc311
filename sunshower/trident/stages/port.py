"""The port of operators: how a stage processes the rows of a batch, part by part.

A stage consists of the operators between two repartitionings. They run in one bolt and pass rows on
by direct calls. An operator has an object for each attempt of each batch. Storm:
org.apache.storm.trident.planner.TridentProcessor, SubtopologyBolt.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, cast, runtime_checkable

from sunshower.topologies.components import Context
from sunshower.trident.coordination.attempts import Attempt
from sunshower.trident.states.counted import CountedIn

Rows = Sequence[Any]  # tuples of values, in the order of the input's fields; or its records
Emit = Callable[[Rows], None]  # to all readers of this operator's output


class Operator(Protocol):
    """One step of a stage."""

    commits: bool  # whether `finish` belongs to the commit phase: it writes a state

    def prepare(self, context: Context) -> None:
        """Called once per task."""

    def start(self, attempt: Attempt) -> Any:
        """The operator's object for one attempt of a batch, before its first rows."""

    def process(self, batch: Any, source: int, rows: Rows, emit: Emit) -> None:
        """Process rows of a batch from input `source`. An exception fails the batch."""

    def finish(self, batch: Any, attempt: Attempt, emit: Emit) -> None:
        """All rows of the batch have arrived in this task, and earlier nodes have finished. If the
        operator `commits`, it is called in the commit phase, in txid order."""

    def cleanup(self) -> None:
        """Called when the topology stops."""


class Publishing(Operator, Protocol):
    """An operator that stages its output by txid and publishes it once the batch is committed.
    `succeeded` follows soon after the commit, but a crash may prevent the call. A later call then
    covers the batch, and a new task can ask `counted`, which `GroupBuilder.freeze` sets."""

    publishes: bool
    counted: CountedIn | None

    def succeeded(self, txid: int) -> None:
        """The batches up to `txid` are committed."""


def publishing(operator: Operator) -> Publishing | None:
    """The operator, if it publishes."""
    return cast("Publishing", operator) if getattr(operator, "publishes", False) else None


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
