"""The port of operators: what a stage does with the rows of a batch, part by part.

A stage is the operators between two repartitionings; they run in one bolt, one after the other, and
hand rows on by a call. An operator has a state of its own for each attempt of each batch.
Storm: org.apache.storm.trident.planner.TridentProcessor, SubtopologyBolt.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, cast, runtime_checkable

from sunshower.topologies.components import Context
from sunshower.trident.attempts import Attempt

if TYPE_CHECKING:
    from sunshower.trident.states.counted import CountedIn

Rows = Sequence[Any]  # tuples of values, in the order of the input's fields; or its records
Emit = Callable[[Rows], None]  # to all that read this operator's output


class Operator(Protocol):
    """One step of a stage."""

    commits: bool  # whether `finish` belongs into the commit phase: it writes a state

    def prepare(self, context: Context) -> None:
        """Called once per task."""

    def start(self, attempt: Attempt) -> Any:
        """What this operator has of one attempt of a batch, before its first rows."""

    def process(self, batch: Any, source: int, rows: Rows, emit: Emit) -> None:
        """Take in rows of a batch from input number `source`. What it raises fails the batch."""

    def finish(self, batch: Any, attempt: Attempt, emit: Emit) -> None:
        """All rows of the batch are in, in this task, and those before it in the stage are done.

        Of an operator that `commits`: when the master says so, batch after batch in their order.
        """

    def cleanup(self) -> None:
        """Called when the topology stops."""


class Publishing(Operator, Protocol):
    """One that keeps what it makes to itself, by txid, and shows what is committed.

    It is told so soon, and perhaps not: a death may take the word along. Then a later word stands
    for it, and who opens it can ask `counted`, which the planner has set.
    """

    publishes: bool
    counted: CountedIn | None

    def succeeded(self, txid: int) -> None:
        """The batches up to this one are committed."""


def publishing(operator: Operator) -> Publishing | None:
    """The operator, if it is one that publishes."""
    return cast("Publishing", operator) if getattr(operator, "publishes", False) else None


@runtime_checkable
class Waiting(Protocol):
    """An operator whose `finish` must not keep its task waiting for somebody else's work.

    Its task looks again a few times a second, and goes on with other batches meanwhile; the trees
    of the batch do not time out.
    """

    def ready(self, batch: Any, attempt: Attempt) -> bool:
        """Whether `finish` would return at once. Asked until it says yes, when `finish` could be
        called otherwise: the first time is the time to begin. What it raises fails the batch."""

    def give_up(self, batch: Any) -> None:
        """This attempt is over, finished or not: stop what was begun for it."""
