"""The port of operators: how a stage processes the rows of a batch, part by part.

A stage consists of the operators between two repartitionings. They run in one bolt and pass rows on
by direct calls. An operator has an object for each attempt of each batch. On an ordinary stream a
batch is what one call of the bolt processes. Storm:
org.apache.storm.trident.planner.TridentProcessor, SubtopologyBolt.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

if TYPE_CHECKING:
    from sunshower.topologies.components import Context


Rows = Sequence[Any]  # tuples of values, in the order of the input's fields; or its records
Emit = Callable[[Rows], None]  # to all readers of this operator's output


class Attempt(NamedTuple):
    """One attempt at a batch, and the message id of its tree. Attempt numbers of a txid only grow,
    also over restarts. The epoch grows with each life of the coordinator. So a later attempt has
    the greater (epoch, txid, attempt), and a store can refuse writes of an earlier one."""

    txid: int  #: of the batch: 1, 2, 3 …, committed in this order
    attempt: int  #: 0, 1, 2 …
    epoch: int  #: of the coordinator's life: 1, 2, 3 …


class Operator:
    """One step of a stage. Without its own methods it passes rows on, and keeps nothing."""

    #: Whether `finish` belongs to the commit phase: it writes a state.
    commits: bool = False
    #: Whether what it emits is the same, however the rows are distributed among its tasks. False is
    #: the safe answer: then a transactional state behind a shuffle and this operator is refused.
    by_row = False
    #: Whether it writes where a preview does not look, so that its rows cannot be shown.
    writes_outside = False
    #: Whether the rows may be an Arrow table.
    takes_tables = False
    #: Whether what it emits is one.
    makes_tables = False
    #: Whether the rows that it emits have the values of the fields of those that they come from.
    keeps_values = False
    #: Whether it reads updates of running totals, see updates.py, instead of their rows.
    reads_updates = False
    #: Whether its rows replace nothing, though those that it reads may be running totals. True is
    #: right for what user code makes of many rows.
    ends_lineage = True
    #: What it is, for errors, if nobody knows which earlier row one of its rows replaces.
    blocks_lineage = ""

    def prepare(self, context: Context) -> None:
        """Called once per task."""

    def start(self, attempt: Attempt) -> Any:
        """The operator's object for one attempt of a batch, before its first rows."""
        return None

    def process(self, batch: Any, source: int, rows: Rows, emit: Emit) -> None:
        """Process rows of a batch from input `source`. An exception fails the batch."""
        emit(rows)

    def finish(self, batch: Any, attempt: Attempt, emit: Emit) -> None:
        """All rows of the batch have arrived in this task, and earlier nodes have finished. If the
        operator `commits`, it is called in the commit phase, in txid order."""

    def cleanup(self) -> None:
        """Called when the topology stops."""


class Gathering(Operator):
    """Gathers the rows of a batch in a list, which `finish` gets."""

    def start(self, attempt: Attempt) -> Any:
        return []

    def process(self, batch: Any, source: int, rows: Rows, emit: Emit) -> None:
        batch.extend(rows)


class Passing(Operator):
    """Passes rows on to its readers, or to another stage."""

    by_row = keeps_values = True
    ends_lineage = False

    def __init__(self, *, tables: bool = False) -> None:
        self.takes_tables = self.makes_tables = tables


@runtime_checkable
class Keyed(Protocol):
    """An operator with a value for each key, which can be queried between two batches."""

    @property
    def by(self) -> tuple[str, ...]:
        """The fields of the key."""

    def stored(self, keys: Sequence[Any]) -> list[Any]:
        """The committed values of keys; None where there is none."""

    def stored_items(self) -> Iterator[tuple[Any, Any]]:
        """All keys and committed values, in no order."""
