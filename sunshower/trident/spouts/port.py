"""The port of batch spouts: one coordinator that says what a batch is, emitters that read it.

The coordinator is asked in the bolt `$spoutcoord-…` (one task), and its `is_ready` and `is_last` on
an instance of its own in `$mastercoord-…`; the emitters are in the tasks of the spout's own bolt.
Storm: org.apache.storm.trident.spout.ITridentSpout, ICommitterTridentSpout.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, Protocol

from sunshower.stores.tree import Tree
from sunshower.topologies.components import Context
from sunshower.trident.attempts import Attempt


class SpoutKind(Enum):
    """What a spout promises of a txid that is emitted again."""

    TRANSACTIONAL = "transactional"  # the very same rows
    OPAQUE = "opaque"  # perhaps others, but each row is in one committed batch
    NON_TRANSACTIONAL = "non-transactional"  # nothing


class Rows(Protocol):
    """Where an emitter puts the rows of a batch."""

    def emit(self, rows: Sequence[Any]) -> None:
        """Rows of the spout's record type, as many at a time as there are."""


class Coordinator(Protocol):
    """Says what each batch is made of. All metadata are plain values that JSON carries."""

    def initialize(self, txid: int, previous: Any, current: Any) -> Any:
        """The metadata of batch `txid`.

        `previous` are those of the greatest txid below that is kept; `current` those of an earlier
        attempt of this very txid; None: there are none.
        """

    def success(self, txid: int) -> None:
        """Batch `txid` is committed, and will never be asked for again."""

    def is_ready(self, txid: int) -> bool:
        """Whether a new batch may begin now; the master's instance is asked."""

    def is_last(self, metadata: Any) -> bool:
        """Whether there will never be rows after the batch with these metadata, once it is
        committed: then the topology may end. The master's instance is asked."""

    def close(self) -> None:
        """Let go of what it holds."""


class Emitter(Protocol):
    """Reads one task's share of each batch."""

    def emit_batch(self, attempt: Attempt, metadata: Any, rows: Rows) -> None:
        """Emit this task's share of a batch. What it raises fails the batch at once."""

    def commit(self, attempt: Attempt) -> None:
        """In the commit phase, for a spout that `commits`: keep where the next batch begins."""

    def success(self, attempt: Attempt) -> None:
        """The batch is committed; what was kept for those before it can go."""

    def close(self) -> None:
        """Let go of what it holds."""

    def figures(self) -> Mapping[str, float]:
        """As Spout.figures: the lag, for one."""


class TridentSpout(Protocol):
    """A source of batches. It is a value: pickled, copied, and opened in each task."""

    @property
    def emits(self) -> Any:
        """Its record type, or the names of its fields."""

    @property
    def kind(self) -> SpoutKind:
        """What it promises."""

    @property
    def commits(self) -> bool:
        """Whether its emitters have a part in the commit phase."""

    @property
    def parallelism_max(self) -> int | None:
        """How many tasks its emitter can have; None: any number."""

    def coordinator(self, tree: Tree, path: str, context: Context) -> Coordinator:
        """A coordinator; what it wants to keep itself goes below `path` (…/coordinator)."""

    def emitter(self, tree: Tree, path: str, context: Context) -> Emitter:
        """An emitter; what it keeps is below `path` (…/user/<partition>/<txid>)."""
