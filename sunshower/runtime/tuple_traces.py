"""A recorded tuple tree as data, combined from the records of all workers.

The parent of an edge is the input that its task received last before it sent the edge. If several
tuples of one tree reach the same task before it sends, that need not be the one that the output was
made from: reports to ackers do not say it, nor does the trace.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sunshower.errors import ConfigError
from sunshower.failures import Cause
from sunshower.runtime.events.event_log import What
from sunshower.runtime.events.trace_recorder import RecordedTree, TraceStep, WorkerTraces
from sunshower.runtime.plan import Plan

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
            f"{root!r:.60} is no root of a tree: that has {ROOT_DIGITS} hexadecimal digits"
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
    trees = [_trace(plan, names, root, own) for root, own in parts.items()]
    trees.sort(key=lambda tree: -tree.begun_s)
    there = {answer.worker for answer in answers}
    return Traces(tuple(trees), tuple(one for one in plan.workers if one not in there))


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
        for edge, own in tree.edges.items():
            found = edges.setdefault(edge, [])
            found += [(answer.worker, step.at_s + answer.epoch_s, step) for step in own]
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
    for edge, found in in_order:
        first: dict[What, _Found] = {}
        for one in found:
            first.setdefault(one[2].what, one)
        sent, got = first.get(What.SENT), first.get(What.DELIVERED)
        refused = first.get(What.REFUSED)
        now = min(at_s for _, at_s, _ in found)
        received |= {task: name for at_s, task, name in sorted(waiting) if at_s <= now}
        waiting = [one for one in waiting if one[0] > now]
        source = sent[2].task if sent else 0
        there = got or refused
        target = sent[2].detail if sent else found[0][2].task
        name = f"{edge:0{ROOT_DIGITS}x}"
        hops.append(
            TraceHop(
                edge=name,
                parent=None if source == spout else received.get(source),
                source=names.get(source, "?"),
                target=names.get(target, "?"),
                worker=there[0] if there else None,
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
