"""Records events of traced trees in one worker: the most recent trees, bounded in bytes.

    Instrument ──events of traced roots──▶ TraceRecorder ──when a client asks──▶ tuple_traces.py

The events are those of event_log.py. A root says whether it is traced (ids.py), so all workers
record the same trees. Nothing is sent until a client asks: statistics travel four times a second,
and these records would be most of them. The answer needs no slice of the worker's loop, so it comes
while user code hangs, too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sunshower.clock import Clock
from sunshower.failures import Failure
from sunshower.runtime.events.event_log import What
from sunshower.runtime.events.trace_choice import TREES_AT_ONCE
from sunshower.runtime.tracking.ids import NO_IDS, U64, traced_of
from sunshower.runtime.tracking.pending import Released
from sunshower.runtime.transport.batch import Batch
from sunshower.secret import without_secrets
from sunshower.texts import clip, describe

TREES_MAX = TREES_AT_ONCE
BYTES_MAX = 1 << 22
EDGES_MAX = 500  # of one tree in one worker
TEXT_BYTES = 512  # of a record, a message id, or the reason of a failure
_STEPS_MAX = 8  # of one edge
_STEP_BYTES = 150  # about what a step takes in memory, without its text
_DESCRIBED_BYTES = 1 << 14  # before secrets are taken out: one that is cut is not recognised
_ROWS_SHOWN = 3  # of a shared batch
_CLOCK_READS = 5  # that a process is paused in each of them is unlikely


class TraceStep(NamedTuple):
    """An event of a tree, or of one of its edges.

    `detail`: of EMITTED (number, attempt), of SENT the target, of REFUSED and FAILED the cause;
    `text`: of EMITTED the message id, of SENT the record, of FAILED the reason.
    """

    what: What
    at_s: float
    task: int
    detail: Any = None
    text: str = ""


@dataclass(slots=True)
class RecordedTree:
    """What one worker knows of one tree."""

    steps: list[TraceStep] = field(default_factory=list)  # of the spout
    edges: dict[int, list[TraceStep]] = field(default_factory=dict)
    dropped: int = 0  # edges beyond the limit
    size: int = 0  # in bytes, about

    def copy(self) -> RecordedTree:
        """A copy that does not change; another thread may add to the tree meanwhile."""
        edges = {edge: steps.copy() for edge, steps in self.edges.copy().items()}
        return RecordedTree(self.steps.copy(), edges, self.dropped, self.size)


@dataclass(frozen=True)
class WorkerTraces:
    """The answer of a worker to a client; add `epoch_s` to a time of its trees for Unix time."""

    worker: int
    epoch_s: float
    trees: dict[int, RecordedTree]  # by root


def unix_offset(unix_time: Callable[[], float], clock: Clock) -> float:
    """What to add to a time of `clock` for Unix time, in seconds.

    A pause of this process between the two reads makes a difference too small, never too large.
    """
    return max(unix_time() - clock.now() for _ in range(_CLOCK_READS))


class TraceRecorder:
    """The recorder of one worker process; `clock`: for the times of the steps."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self._trees: dict[int, RecordedTree] = {}  # the oldest first
        self._size = 0
        self._delivered: tuple[U64, list[int]] = NO_IDS, []  # roots, and which are traced

    def trees(self, root: int | None = None) -> dict[int, RecordedTree]:
        """All recorded trees by root, or the one with this root. Another thread may call it."""
        trees = self._trees.copy()  # at once, unlike an iteration
        if root is not None:
            trees = {root: trees[root]} if root in trees else {}
        return {root: tree.copy() for root, tree in trees.items()}

    # ---- called by the Instrument -------------------------------------------------------------

    def emitted(self, task: int, root: int, number: int, attempt: int, message_id: Any) -> None:
        """A spout task emits a traced root."""
        step = (self.clock.now(), task, (number, attempt), _shown(message_id))
        self._add(root, TraceStep(What.EMITTED, *step))

    def completed(self, task: int, released: Released) -> None:
        """These trees are complete."""
        now = self.clock.now()
        for at in traced_of(released.roots):
            self._add(int(released.roots[at]), TraceStep(What.COMPLETED, now, task))

    def failed(self, task: int, released: Released, failures: Sequence[Failure]) -> None:
        """These trees have failed."""
        now = self.clock.now()
        for at in traced_of(released.roots):
            failure = failures[at]
            step = TraceStep(
                What.FAILED, now, task, failure.cause.value, clip(str(failure), TEXT_BYTES)
            )
            self._add(int(released.roots[at]), step)

    def note_edges(
        self,
        what: What,
        task: int,
        roots: U64,
        edges: U64,
        detail: Any = None,
        batch: Batch | None = None,
    ) -> None:
        """Something happened to edges; `batch`: which holds the records of SENT edges."""
        traced = self._traced(what, roots)
        if not traced:
            return
        now, whole = self.clock.now(), ""
        if batch is not None and batch.shared:
            whole = _shown_rows(batch)
        pairs = zip(traced, roots[traced].tolist(), edges[traced].tolist(), strict=True)
        for at, root, edge in pairs:
            tree = self._trees.get(root) or self._new_tree(root)
            steps = tree.edges.get(edge)
            if steps is None:
                if len(tree.edges) >= EDGES_MAX:
                    tree.dropped += what is What.SENT
                    continue
                steps = tree.edges[edge] = []
            if len(steps) < _STEPS_MAX:
                text = whole if batch is None or batch.shared else _shown(_record_of(batch, at))
                steps.append(TraceStep(what, now, task, detail, text))
                size = _STEP_BYTES + len(text)
                tree.size += size
                self._size += size
        self._drop_oldest()

    # ---- helpers ------------------------------------------------------------------------------

    def _traced(self, what: What, roots: U64) -> list[int]:
        """The positions of traced roots. The inputs of a batch are usually settled together."""
        if what is What.DELIVERED:
            self._delivered = roots, traced_of(roots)
            return self._delivered[1]
        return self._delivered[1] if roots is self._delivered[0] else traced_of(roots)

    def _add(self, root: int, step: TraceStep) -> None:
        tree = self._trees.get(root) or self._new_tree(root)
        if len(tree.steps) < _STEPS_MAX:
            tree.steps.append(step)
            tree.size += _STEP_BYTES + len(step.text)
            self._size += _STEP_BYTES + len(step.text)
        self._drop_oldest()

    def _new_tree(self, root: int) -> RecordedTree:
        self._size += _STEP_BYTES
        tree = self._trees[root] = RecordedTree(size=_STEP_BYTES)
        return tree

    def _drop_oldest(self) -> None:
        while len(self._trees) > TREES_MAX or self._size > BYTES_MAX:
            self._size -= self._trees.pop(next(iter(self._trees))).size


def _record_of(batch: Batch, at: int) -> Any:
    """The record of the anchor at position `at`."""
    index = at
    if batch.offsets is not None:
        index = int(batch.offsets.searchsorted(at, "right")) - 1
    return batch.records.slice(index, 1).to_pylist()[0] if batch.is_table else batch.records[index]


def _shown_rows(batch: Batch) -> str:
    """The first records of a batch, and how many it has."""
    first = batch.records[:_ROWS_SHOWN]
    rows = first.to_pylist() if batch.is_table else list(first)
    more = len(batch) - len(rows)
    shown = _shown(rows[0] if len(rows) == 1 else rows)
    return f"{shown} and {more:,} more" if more else shown


def _shown(value: Any) -> str:
    """The repr of a value, without secrets and clipped."""
    return clip(without_secrets(describe(value, _DESCRIBED_BYTES)), TEXT_BYTES)
