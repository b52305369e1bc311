"""Records events of traced trees in one worker: the most recent trees, bounded in bytes.

    Instrument ──events of traced roots──▶ TraceRecorder ──when a client asks──▶ `assemble`

The events are rows of event_log.py's entries. A root says whether it is traced (ids.py), so all
workers record the same trees. Nothing is sent until a client asks: statistics travel four times a
second, and these records would be most of them. The answer needs no slice of the worker's loop, so
it comes while user code hangs, too.
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
from sunshower.secret import without_secrets
from sunshower.texts import clip, describe, id_text

# A storm of failures must not slow the topology down, and the recorders keep few trees anyway.
TREES_AT_ONCE = 1000
TREES_PER_S = 100.0
TREES_MAX = TREES_AT_ONCE
BYTES_MAX = 1 << 22
EDGES_MAX = 500  # of one tree in one worker
TEXT_BYTES = 512  # of a record, a message id, or the reason of a failure
_EVENTS_MAX = 8  # of one edge
_EVENT_BYTES = 150  # about what an event takes in memory, without its text
_DESCRIBED_BYTES = 1 << 14  # before secrets are taken out: one that is cut is not recognised
_ROWS_SHOWN = 3  # of a shared batch
_CLOCK_READS = 5  # that a process is paused in each of them is unlikely


# ---- trees ---------------------------------------------------------------------------------------


class TreeEvent(NamedTuple):
    """One event of one tree: a row of an entry of the event log.

    `detail`: of EMITTED (number, attempt), of SENT the target, of REFUSED and FAILED the cause;
    `text`: of EMITTED the message id, of SENT the record, of FAILED the reason.
    """

    at_s: float
    what: What
    task: int
    edge: int = 0  # 0: it is of the whole tree
    detail: Any = None
    text: str = ""
    worker: int | None = None


@dataclass(slots=True)
class TreeEdge:
    """An edge, and its events in order. Tasks are 0 if they are not known."""

    edge: int
    parent: TreeEdge | None = None
    source: int = 0
    target: int = 0
    depth: int = 0  # how many edges lead to it
    events: list[TreeEvent] = field(default_factory=list)

    def first(self, what: What) -> TreeEvent | None:
        """The first such event."""
        return next((event for event in self.events if event.what is what), None)


def edges_of(events: Iterable[TreeEvent]) -> list[TreeEdge]:
    """The edges of a tree, by their first events, each after its parent; `events`: in order.

    The parent of an edge is the input that its task received last before it sent the edge. If
    several tuples of one tree reach the same task before it sends, that need not be the one that
    the output was made from: reports to ackers do not say it, nor do the events.
    """
    edges: dict[int, TreeEdge] = {}
    received: dict[int, TreeEdge] = {}  # task → the edge that it has received last
    for event in events:
        edge = edges.setdefault(event.edge, TreeEdge(event.edge))
        edge.events.append(event)
        if event.what is What.SENT and not edge.source:
            edge.source, edge.target = event.task, event.detail
            edge.parent = received.get(event.task)
            edge.depth = 0 if edge.parent is None else edge.parent.depth + 1
        elif event.what is not What.SENT:
            edge.target = edge.target or event.task
        if event.what is What.DELIVERED:
            received[event.task] = edge
    ordered: list[TreeEdge] = []
    placed: set[int] = set()
    for edge in edges.values():  # clocks of two machines differ: a parent may seem to be later
        chain = list[TreeEdge]()
        above: TreeEdge | None = edge
        while above is not None and above.edge not in placed:
            placed.add(above.edge)
            chain.append(above)
            above = above.parent
        ordered += reversed(chain)
    return ordered


# ---- trace recorder ------------------------------------------------------------------------------


class TreeReport(NamedTuple):
    """A report on one tree that an acker task has applied."""

    at_s: float
    acker: int  # its task
    is_start: bool  # of the spout; else of a task that has acked inputs
    xor: int  # of the edges that are reported
    value: int  # the acker's, after it: the XOR of all reports


@dataclass(slots=True)
class RecordedTree:
    """What one worker knows of one tree."""

    events: list[TreeEvent] = field(default_factory=list)
    reports: list[TreeReport] = field(default_factory=list)
    counts: dict[int, int] = field(default_factory=dict)  # edge → its events
    dropped: int = 0  # edges beyond the limit
    size: int = _EVENT_BYTES  # about, in bytes

    def copy(self) -> RecordedTree:
        """A copy that does not change; another thread may add to the tree meanwhile."""
        events, reports = self.events.copy(), self.reports.copy()
        return RecordedTree(events, reports, {}, self.dropped, self.size)

    def admits(self, edge: int, what: What) -> bool:
        """Whether another event of an edge is recorded."""
        count = self.counts.get(edge, 0)
        if not count and len(self.counts) - (0 in self.counts) >= EDGES_MAX and edge:
            self.dropped += what is What.SENT
            return False
        self.counts[edge] = count + 1
        return count < _EVENTS_MAX


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
    """The recorder of one worker process; `clock`: for the times of the events."""

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

    # ---- called by instruments and acker tasks ------------------------------------------------

    def emitted(self, task: int, root: int, number: int, attempt: int, message_id: Any) -> None:
        """A spout task emits a traced root."""
        self._note(root, What.EMITTED, task, (number, attempt), _shown_id(message_id))

    def ended(self, task: int, roots: U64, failures: Sequence[Failure] | None) -> None:
        """These trees are complete, or have failed."""
        for at in traced_of(roots):
            if failures is None:
                self._note(int(roots[at]), What.COMPLETED, task)
            else:
                cause, reason = failures[at].cause.value, clip(str(failures[at]), TEXT_BYTES)
                self._note(int(roots[at]), What.FAILED, task, cause, reason)

    def reported(self, acker: int, root: int, is_start: bool, xor: int, value: int) -> None:
        """An acker task has applied a report on a traced root; see TreeReport."""
        if len((tree := self._tree(root)).reports) < EDGES_MAX:
            tree.reports.append(TreeReport(self.clock.now(), acker, is_start, xor, value))
            self._grow(tree, _EVENT_BYTES)
        self._drop_oldest()

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
            if (tree := self._tree(root)).admits(edge, what):
                text = whole if batch is None or batch.shared else _shown(_record_of(batch, at))
                self._add(tree, TreeEvent(now, what, task, edge, detail, text))
        self._drop_oldest()

    # ---- helpers ------------------------------------------------------------------------------

    def _traced(self, what: What, roots: U64) -> list[int]:
        """The positions of traced roots. The inputs of a batch are usually settled together."""
        if what is What.DELIVERED:
            self._delivered = roots, traced_of(roots)
            return self._delivered[1]
        return self._delivered[1] if roots is self._delivered[0] else traced_of(roots)

    def _note(self, root: int, what: What, task: int, detail: Any = None, text: str = "") -> None:
        if (tree := self._tree(root)).admits(0, what):
            self._add(tree, TreeEvent(self.clock.now(), what, task, 0, detail, text))
        self._drop_oldest()

    def _tree(self, root: int) -> RecordedTree:
        if (tree := self._trees.get(root)) is None:
            tree = self._trees[root] = RecordedTree()
            self._size += tree.size
        return tree

    def _add(self, tree: RecordedTree, event: TreeEvent) -> None:
        tree.events.append(event)
        self._grow(tree, _EVENT_BYTES + len(event.text))

    def _grow(self, tree: RecordedTree, size: int) -> None:
        tree.size += size
        self._size += size

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


def _shown_id(message_id: Any) -> str:
    if isinstance(message_id, tuple):
        return clip(without_secrets(id_text(message_id, _DESCRIBED_BYTES)), TEXT_BYTES)
    return _shown(message_id)


# ---- tuple traces --------------------------------------------------------------------------------
# A recorded tuple tree as data, combined from the records of all workers.

ROOT_DIGITS = 16
_SUMMANDS_MAX = 32  # edges of a tree in which those of a report are looked for


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
class TraceReport:
    """A report to the acker of the tree; edges and values are 16 hexadecimal digits."""

    at_s: float  # Unix time, in seconds
    acker: str  # the task
    is_start: bool  # of the spout; else of a task that has acked inputs
    edges: tuple[str, ...]  # those that are reported; empty if the recorded ones do not tell
    xor: str  # of these edges
    value: str  # the acker's, after this report: zero means that the tree is complete


@dataclass(frozen=True)
class TupleTrace:
    """One attempt of one message, and its tree. Times as in TraceHop."""

    root: str  # 16 hexadecimal digits
    outcome: str  # complete, failed, open, or unknown if the spout's worker has died
    message_id: str  # its repr, or as in `orders[0] 41`; clipped
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
    reports: tuple[TraceReport, ...] = ()  # by time

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
        """Those that are complete, the slowest first."""
        complete = [tree for tree in self.trees if tree.outcome == "complete"]
        return tuple(sorted(complete, key=lambda tree: -(tree.latency_s or 0.0)))


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
    trees = [
        _trace(plan, names, root, tree_parts)
        for root, tree_parts in parts.items()
        if any(tree.events for _, tree in tree_parts)  # else only its acker has not dropped it
    ]
    trees.sort(key=lambda tree: -tree.begun_s)
    workers = {answer.worker for answer in answers}
    return Traces(tuple(trees), tuple(worker for worker in plan.workers if worker not in workers))


def _trace(
    plan: Plan,
    names: dict[int, str],
    root: int,
    parts: Sequence[tuple[WorkerTraces, RecordedTree]],
) -> TupleTrace:
    events = [
        event._replace(at_s=event.at_s + answer.epoch_s, worker=answer.worker)
        for answer, tree in parts
        for event in tree.events
    ]
    events.sort(key=lambda event: event.at_s)
    edges = edges_of(event for event in events if event.edge)
    whole = TreeEdge(0, events=[event for event in events if not event.edge])
    spout = plan.spouts[(root >> 48) % len(plan.spouts)]  # see ids.py
    emitted, failure = whole.first(What.EMITTED), whole.first(What.FAILED)
    ended = whole.first(What.COMPLETED) or failure
    number, attempt = emitted.detail if emitted else (None, None)
    outcome = "open" if emitted else "unknown"
    if ended is not None:
        outcome = "failed" if ended is failure else "complete"
    return TupleTrace(
        root=_digits(root),
        outcome=outcome,
        message_id=emitted.text if emitted else "",
        number=number,
        spout=names[spout.id],
        worker=emitted.worker if emitted else None,
        attempt=attempt,
        emitted_s=_time(emitted),
        ended_s=_time(ended),
        cause=failure.detail if failure is ended and failure else None,
        reason=failure.text if failure is ended and failure else "",
        hops=tuple(_hop(names, edge) for edge in edges),
        dropped=sum(tree.dropped for _, tree in parts),
        reports=_reports(names, [edge.edge for edge in edges], parts),
    )


def _reports(
    names: dict[int, str], edges: Sequence[int], parts: Sequence[tuple[WorkerTraces, RecordedTree]]
) -> tuple[TraceReport, ...]:
    reports = [
        report._replace(at_s=report.at_s + answer.epoch_s)
        for answer, tree in parts
        for report in tree.reports
    ]
    return tuple(
        TraceReport(
            at_s,
            names.get(acker, "?"),
            is_start,
            tuple(map(_digits, _summands(xor, edges))),
            _digits(xor),
            _digits(value),
        )
        for at_s, acker, is_start, xor, value in sorted(reports, key=lambda report: report.at_s)
    )


def _summands(xor: int, edges: Sequence[int]) -> list[int]:
    """The edges whose XOR this is; none if there are no such edges, or if others could be meant: n
    edges have 2ⁿ sums, and there are 2⁶⁴ values."""
    if len(edges) > _SUMMANDS_MAX:
        return []
    rows: dict[int, tuple[int, int]] = {}  # number of bits → a sum of edges, and which, as bits
    rest, chosen = 0, 0
    for at, value in enumerate((*edges, xor)):  # Gauss's elimination
        rest, chosen = value, 1 << at
        while rest and (row := rows.get(rest.bit_length())):
            rest, chosen = rest ^ row[0], chosen ^ row[1]
        if rest:
            rows[rest.bit_length()] = rest, chosen
    return [] if rest else [edge for at, edge in enumerate(edges) if chosen >> at & 1]


def _hop(names: dict[int, str], edge: TreeEdge) -> TraceHop:
    sent, delivered = edge.first(What.SENT), edge.first(What.DELIVERED)
    refused = edge.first(What.REFUSED)
    arrived = delivered or refused
    return TraceHop(
        edge=_digits(edge.edge),
        parent=None if edge.parent is None else _digits(edge.parent.edge),
        source=names.get(edge.source, "?"),
        target=names.get(edge.target, "?"),
        worker=arrived.worker if arrived else None,
        sent_s=_time(sent),
        delivered_s=_time(delivered),
        acked_s=_time(edge.first(What.ACKED)),
        refused_s=_time(refused),
        cause=None if refused is None else Cause(refused.detail).value,
        record=sent.text if sent else "",
    )


def _digits(id: int) -> str:
    return f"{id:0{ROOT_DIGITS}x}"


def _time(event: TreeEvent | None) -> float | None:
    return None if event is None else event.at_s
