"""Describes the tree of a message: every attempt, every edge, and the last task that had it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from sunshower.experiments.evidence.event_history import History, task_and_number
from sunshower.runtime.events.event_log import What
from sunshower.runtime.tracking.ids import U64

MESSAGES_MAX = 3
_LINES_MAX = 60


class _EdgeEvent(NamedTuple):
    """One event of one edge; sorted by `order`, the position in the history."""

    order: int
    at_s: float
    what: What
    task: int
    edge: int
    target: int  # the task that it was sent to; only of SENT


@dataclass
class _Edge:
    """An edge of one tree, and its events."""

    edge: int
    source: int = 0
    target: int = 0
    steps: list[tuple[float, str, str]] = field(default_factory=list)  # time, event, remark
    depth: int = 0


def trees(history: History, messages: Iterable[int]) -> tuple[str, ...]:
    """Describe the first few of these messages; see event_history.message_keys."""
    wanted = list(messages)
    lines = [line for one in wanted[:MESSAGES_MAX] for line in tree(history, one)]
    if len(wanted) > MESSAGES_MAX:
        lines.append(f"… and {len(wanted) - MESSAGES_MAX} more")
    return tuple(lines)


def tree(history: History, message: int) -> list[str]:
    """Describe the attempts and edges of one message."""
    task, number = task_and_number(message)
    lines = [f"{history.name(task)}, message {number}"]
    emitted = history.rows(What.EMITTED)
    mine = np.flatnonzero(emitted.messages == message)
    for row in mine.tolist():
        root = int(emitted.roots[row])
        end, done_s = _end(history, root)
        attempt, at_s = int(emitted.attempts[row]), float(emitted.at_s[row])
        lines.append(f"  attempt {attempt}, root {root:016x}: emitted {at_s:.4f} s, {end}")
        lines += _edges(history, root, done_s)
    if not len(mine):
        lines.append("  it was never emitted")
    if len(lines) > _LINES_MAX:
        lines[_LINES_MAX:] = [f"  … and {len(lines) - _LINES_MAX} more lines"]
    return lines


def _end(history: History, root: int) -> tuple[str, float]:
    """Return how an attempt ended, and when it was complete."""
    completed, failed = history.rows(What.COMPLETED), history.rows(What.FAILED)
    for row in np.flatnonzero(completed.roots == np.uint64(root)).tolist():
        return f"completed {completed.at_s[row]:.4f} s", float(completed.at_s[row])
    for row in np.flatnonzero(failed.roots == np.uint64(root)).tolist():
        return f"failed {failed.at_s[row]:.4f} s: {failed.details[row]}", math.inf
    return "neither completed nor failed", math.inf


def _edges(history: History, root: int, done_s: float) -> Iterator[str]:
    """Yield a line for each edge, indented below its parent, and one for the last open edge.

    `done_s`: when the acker reported the tree as complete.
    """
    edges: dict[int, _Edge] = {}
    held: dict[int, int] = {}  # task → the depth of the last edge delivered to it
    for event in sorted(_events(history, root)):
        edge, task = edges.setdefault(event.edge, _Edge(event.edge)), event.task
        if event.what is What.SENT:
            edge.source, edge.target, edge.depth = task, event.target, held.get(task, 0)
        elif event.what is What.DELIVERED:
            edge.target = task
            held[task] = edge.depth + 1
        late = ", too late" if event.at_s > done_s else ""
        edge.steps.append((event.at_s, event.what.name.lower(), late))
    for edge in edges.values():
        events_text = ", ".join(f"{what} {at_s:.4f}{late}" for at_s, what, late in edge.steps)
        yield f"    {'  ' * edge.depth}{edge.edge:016x} {_way(history, edge)}: {events_text}"
    if not edges:
        yield "    nothing is known of its edges: it is not in the sample, or it had none"
    elif open_ones := [edge for edge in edges.values() if edge.steps[-1][1] != "acked"]:
        last = max(open_ones, key=lambda edge: edge.steps[-1])
        at_s, step, _ = last.steps[-1]
        where = "on the way to " if step == "sent" else ""
        yield f"    last: {where}{history.name(last.target)}, {step} {at_s:.4f} s"


def _way(history: History, edge: _Edge) -> str:
    if not edge.source:
        return f"→ {history.name(edge.target)}"
    return f"{history.name(edge.source)} → {history.name(edge.target)}"


def _events(history: History, root: int) -> Iterator[_EdgeEvent]:
    for what in (What.SENT, What.DELIVERED, What.ACKED, What.REFUSED):
        rows = history.rows(what)
        for row in np.flatnonzero(rows.roots == np.uint64(root)).tolist():
            yield _EdgeEvent(
                order=int(rows.order[row]),
                at_s=float(rows.at_s[row]),
                what=what,
                task=int(rows.tasks[row]),
                edge=int(rows.values[row]),
                target=int(rows.targets[row]) if what is What.SENT else 0,
            )


def messages_of(history: History, roots: U64) -> list[int]:
    """Return the messages of these roots, ascending."""
    emitted = history.rows(What.EMITTED)
    found: list[int] = np.unique(emitted.messages[np.isin(emitted.roots, roots)]).tolist()
    return found
