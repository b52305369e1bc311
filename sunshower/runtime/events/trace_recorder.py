"""Records events of traced trees in one worker: the most recent trees, bounded in bytes.

    Instrument ──events of traced roots──▶ TraceRecorder ──when a client asks──▶ `assemble`

The events are those of event_log.py. A root says whether it is traced (ids.py), so all workers
record the same trees. Nothing is sent until a client asks: statistics travel four times a second,
and these records would be most of them. The answer needs no slice of the worker's loop, so it comes
while user code hangs, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sunshower.clock import Clock
from sunshower.errors import ConfigError
from sunshower.failures import Cause, Failure
from sunshower.runtime.events.event_log import What
from sunshower.runtime.plan import Plan
from sunshower.runtime.tracking.batch import Batch
from sunshower.runtime.tracking.ids import NO_IDS, U64, traced_of
from sunshower.runtime.tracking.pending import Released
from sunshower.secret import without_secrets
from sunshower.texts import clip, describe

# A storm of failures must not slow the topology down, and the recorders keep few trees anyway.
TREES_AT_ONCE = 1000
TREES_PER_S = 100.0
# ---- trace recorder ------------------------------------------------------------------------------

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
    index = batch.index_of(at)
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


# ---- tuple traces --------------------------------------------------------------------------------
# A recorded tuple tree as data, combined from the records of all workers.
#
# The parent of an edge is the input that its task received last before it sent the edge. If
# several tuples of one tree reach the same task before it sends, that need not be the one that the
# output was made from: reports to ackers do not say it, nor does the trace.

ROOT_DIGITS = 16
_Found = tuple[int, float, TraceStep]  # a worker, the Unix time, and what happened


@dataclass(frozen=True)
class TraceHop:
    """One edge: a record that a task has sent to another. Times are Unix time, in seconds; None:
    it did not happen, or was not recorded."""

    edge: str  # 16 hexadecimal digits
    parent: str | None  # the edge of the input that it was made from; None: it is the spout's
    source: str  # the task that sent it, such as `split[0]`
    target: str  # the task that it was sent to
    worker: int | None  # of the target; None: it was not delivered
    sent_s: float | None
    delivered_s: float | None  # when its processing began
    acked_s: float | None
    refused_s: float | None
    cause: str | None  # why it was refused
    record: str  # its repr, clipped to 512 bytes


@dataclass(frozen=True)
class TupleTrace:
    """One attempt of one message, and its tree. Times as in TraceHop."""

    root: str  # 16 hexadecimal digits
    outcome: str  # complete, failed, open, or unknown if the spout's worker has died
    message_id: str  # its repr, clipped
    number: int | None  # of the message within its spout task
    spout: str  # the task, such as `lines[0]`
    worker: int | None  # of the spout task
    attempt: int | None  # 1: emitted for the first time
    emitted_s: float | None
    ended_s: float | None
    cause: str | None  # why the tree failed
    reason: str
    hops: tuple[TraceHop, ...]  # by time
    dropped: int  # edges that were not recorded, because the tree has too many

    @property
    def latency_s(self) -> float | None:
        """From the emit to the end."""
        if self.emitted_s is None or self.ended_s is None:
            return None
        return self.ended_s - self.emitted_s

    @property
    def begun_s(self) -> float:
        """When it was emitted, or the first that is known of it."""
        times = [self.emitted_s, self.ended_s]
        times += [time for hop in self.hops for time in (hop.sent_s, hop.delivered_s)]
        return min((time for time in times if time is not None), default=0.0)


@dataclass(frozen=True)
class Traces:
    """All recorded trees of a topology, the latest first."""

    trees: tuple[TupleTrace, ...]
    silent: tuple[int, ...]  # workers that did not answer: what they have recorded is missing

    @property
    def failed(self) -> tuple[TupleTrace, ...]:
        """Those that have failed."""
        return tuple(tree for tree in self.trees if tree.outcome == "failed")

    @property
    def slowest(self) -> tuple[TupleTrace, ...]:
        """Those that have ended, the slowest first."""
        ended = [tree for tree in self.trees if tree.latency_s is not None]
        return tuple(sorted(ended, key=lambda tree: -(tree.latency_s or 0.0)))


NO_TRACES = Traces((), ())


def root_number(root: str) -> int:
    """The number of a root that is given as text. Raises ConfigError."""
    try:
        number = int(root, 16)
    except ValueError:
        number = -1
    if not 0 <= number < 1 << 4 * ROOT_DIGITS or len(root) > ROOT_DIGITS:
        raise ConfigError(
            f"{root!r:.60} is not a valid root of a tree: that has {ROOT_DIGITS} hexadecimal digits"
        )
    return number


def assemble(plan: Plan, answers: Iterable[WorkerTraces]) -> Traces:
    """The trees that the workers of a topology have recorded."""
    answers = list(answers)
    names = plan.task_names
    parts: dict[int, list[tuple[WorkerTraces, RecordedTree]]] = {}
    for answer in answers:
        for root, tree in answer.trees.items():
            parts.setdefault(root, []).append((answer, tree))
    trees = [_trace(plan, names, root, tree_parts) for root, tree_parts in parts.items()]
    trees.sort(key=lambda tree: -tree.begun_s)
    workers = {answer.worker for answer in answers}
    return Traces(tuple(trees), tuple(worker for worker in plan.workers if worker not in workers))


def _trace(
    plan: Plan,
    names: dict[int, str],
    root: int,
    parts: Sequence[tuple[WorkerTraces, RecordedTree]],
) -> TupleTrace:
    steps: dict[What, _Found] = {}
    edges: dict[int, list[_Found]] = {}
    for answer, tree in parts:
        for step in tree.steps:
            steps.setdefault(step.what, (answer.worker, step.at_s + answer.epoch_s, step))
        for edge, edge_steps in tree.edges.items():
            timed_steps = edges.setdefault(edge, [])
            timed_steps += [
                (answer.worker, step.at_s + answer.epoch_s, step) for step in edge_steps
            ]
    spout = plan.spouts[(root >> 48) % len(plan.spouts)]  # see ids.py
    emitted = steps.get(What.EMITTED)
    ended = steps.get(What.COMPLETED) or steps.get(What.FAILED)
    number, attempt = emitted[2].detail if emitted else (None, None)
    failure = ended[2] if ended and ended[2].what is What.FAILED else None
    outcome = "open" if emitted else "unknown"
    if ended:
        outcome = "failed" if failure else "complete"
    return TupleTrace(
        root=f"{root:0{ROOT_DIGITS}x}",
        outcome=outcome,
        message_id=emitted[2].text if emitted else "",
        number=number,
        spout=names[spout.id],
        worker=emitted[0] if emitted else None,
        attempt=attempt,
        emitted_s=emitted[1] if emitted else None,
        ended_s=ended[1] if ended else None,
        cause=failure.detail if failure else None,
        reason=failure.text if failure else "",
        hops=_hops(names, spout.id, edges),
        dropped=sum(tree.dropped for _, tree in parts),
    )


def _hops(
    names: dict[int, str], spout: int, edges: dict[int, list[_Found]]
) -> tuple[TraceHop, ...]:
    """The edges by time, each after its parent."""
    hops: list[TraceHop] = []
    received: dict[int, str] = {}  # task → the edge that it has received last
    in_order = sorted(edges.items(), key=lambda item: min(at_s for _, at_s, _ in item[1]))
    waiting: list[tuple[float, int, str]] = []  # deliveries that are later than this edge
    for edge, timed_steps in in_order:
        first: dict[What, _Found] = {}
        for one in timed_steps:
            first.setdefault(one[2].what, one)
        sent, got = first.get(What.SENT), first.get(What.DELIVERED)
        refused = first.get(What.REFUSED)
        now = min(at_s for _, at_s, _ in timed_steps)
        received |= {task: name for at_s, task, name in sorted(waiting) if at_s <= now}
        waiting = [one for one in waiting if one[0] > now]
        source = sent[2].task if sent else 0
        arrived = got or refused
        target = sent[2].detail if sent else timed_steps[0][2].task
        name = f"{edge:0{ROOT_DIGITS}x}"
        hops.append(
            TraceHop(
                edge=name,
                parent=None if source == spout else received.get(source),
                source=names.get(source, "?"),
                target=names.get(target, "?"),
                worker=arrived[0] if arrived else None,
                sent_s=_time(first, What.SENT),
                delivered_s=_time(first, What.DELIVERED),
                acked_s=_time(first, What.ACKED),
                refused_s=_time(first, What.REFUSED),
                cause=_cause(refused),
                record=sent[2].text if sent else "",
            )
        )
        if got:
            waiting.append((got[1], target, name))
    return tuple(hops)


def _time(first: dict[What, _Found], what: What) -> float | None:
    return first[what][1] if what in first else None


def _cause(refused: _Found | None) -> str | None:
    return None if refused is None else Cause(refused[2].detail).value
