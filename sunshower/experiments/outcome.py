"""The outcome of an experiment: verdicts with their evidence, recoveries, figures."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

import numpy as np

from sunshower.experiments.event_history import History, task_and_number
from sunshower.runtime.events.event_log import What
from sunshower.runtime.events.trace_recorder import TreeEvent, edges_of
from sunshower.runtime.plan import Plan
from sunshower.runtime.tracking.ids import U64
from sunshower.topologies.graph import Level


class Verdict(StrEnum):
    """The verdict about a guarantee. UNKNOWN: the run proves nothing."""

    HOLDS = "HOLDS"
    UNKNOWN = "UNKNOWN"
    BROKEN = "BROKEN"


_GRAVITY = (Verdict.HOLDS, Verdict.UNKNOWN, Verdict.BROKEN)


def gravest(verdicts: Iterable[Verdict]) -> Verdict:
    """Return the worst verdict; UNKNOWN if there is none."""
    return max(verdicts, key=_GRAVITY.index, default=Verdict.UNKNOWN)


@dataclass(frozen=True)
class Finding:
    """The result of one checker."""

    checker: str  #: such as at-least-once
    verdict: Verdict
    reasons: tuple[str, ...]  #: one sentence each
    evidence: tuple[str, ...] = ()  #: lines such as the tree of a lost tuple and its last task
    figures: Mapping[str, float] = field(default_factory=dict)  #: such as duplicates: 12


@dataclass(frozen=True)
class Recovery:
    """One fault, and when the messages it affected were complete."""

    fault: str  #: its description
    begun_s: float  #: from the start of the run, like all times here
    ended_s: float  #: of a kill the same as begun_s
    recovered_s: float | None  #: None: never

    @property
    def seconds(self) -> float | None:
        """The time from the end of the fault to the recovery; None: it never recovered."""
        return None if self.recovered_s is None else max(0.0, self.recovered_s - self.ended_s)


@dataclass(frozen=True)
class Outcome:
    """One run of an experiment; `results.json` is its fields."""

    experiment: str
    cluster: str  #: sim or ray
    seed: int
    parameters: Mapping[str, Any]
    findings: tuple[Finding, ...]
    recoveries: tuple[Recovery, ...]
    figures: Mapping[str, float]  #: emitted, completed, failed, replays, throughput …
    seconds: float  #: on the cluster's clock
    versions: Mapping[str, str] = field(default_factory=dict)
    error: str | None = None  #: why the run did not finish
    undone: tuple[str, ...] = ()  #: skipped steps of the plan, with the reason

    @property
    def verdict(self) -> Verdict:
        """The worst verdict of all findings."""
        return gravest(finding.verdict for finding in self.findings)

    @property
    def recovery_s(self) -> float | None:
        """The time of the longest recovery that ended; None: none ended."""
        known = (recovery.seconds for recovery in self.recoveries if recovery.seconds is not None)
        return max(known, default=None)

    @property
    def never_recovered(self) -> int:
        """The number of faults after which the run never recovered."""
        return sum(recovery.seconds is None for recovery in self.recoveries)

    def to_fields(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        return {**asdict(self), "verdict": self.verdict}

    @staticmethod
    def from_fields(stored: Mapping[str, Any]) -> Outcome:
        """Build the outcome from the result of `to_fields`. Raises KeyError, TypeError or
        ValueError for any other value."""
        fields = {name: value for name, value in stored.items() if name != "verdict"}
        fields["findings"] = tuple(
            Finding(
                part["checker"],
                Verdict(part["verdict"]),
                tuple(part["reasons"]),
                tuple(part["evidence"]),
                part["figures"],
            )
            for part in stored["findings"]
        )
        fields["recoveries"] = tuple(Recovery(**part) for part in stored["recoveries"])
        fields["undone"] = tuple(stored["undone"])
        return Outcome(**fields)


# ---- facts ---------------------------------------------------------------------------------------


class Ending(StrEnum):
    """How a run ended."""

    FINISHED = "finished"  #: the spouts are exhausted, and everything is settled
    HALTED = "halted"  #: the topology failed, with a reason
    STUCK = "stuck"  #: it was not finished in time
    GONE = "gone"  #: the cluster failed


@dataclass(frozen=True)
class Model:
    """A numbered source: 0 … total - 1 distributed over `tasks`, as in `experiments.workload`."""

    total: int
    tasks: int
    written: bool = False  # the sink records the number of each item

    def number(self, index: int, message: int) -> int:
        """Return the item of message `message` of the source's task `index`."""
        return index + message * self.tasks


@dataclass(frozen=True)
class Facts:
    """The facts about one run, as plain values."""

    tasks: Mapping[int, str]  #: task id → name
    spouts: tuple[int, ...]  #: task ids; incarnation i belongs to spouts[i % len(spouts)]
    counted: frozenset[int] = frozenset()  #: spouts whose messages are 0, 1, 2 … in all lives
    logs: frozenset[int] = frozenset()  #: spouts that read a log: any task may read any message
    #: spouts that get failures and replay by themselves
    self_replaying: frozenset[int] = frozenset()
    places: Mapping[int, tuple[int, int]] = field(default_factory=dict)  #: task → index, worker
    tracked: bool = True
    pending_max: int = 32_768  #: roots in flight, per spout task
    timeouts_s: Mapping[int, float] = field(default_factory=dict)  #: spout task → of its trees
    sample: int = 1  #: the history has the edges of every n-th tree
    total: int | None = None  #: messages in the source, if known
    model: Model | None = None
    ending: Ending = Ending.FINISHED
    error: str | None = None  #: why it did not finish
    drained: bool = False  #: the source was stopped, and had more
    harmless: frozenset[str] = frozenset()  #: descriptions of steps that are not faults


UNTRACKED = "nothing is tracked (ackers=0): no tree was ever followed"


def facts_of(plan: Plan, *, sample: int = 1) -> Facts:
    """Return the facts of a plan; add the others with `replace` after the run."""
    spouts = [(task.id, plan.component(task)) for task in plan.spouts]
    timeout_s = plan.graph.config.message_timeout_s
    return Facts(
        tasks=plan.task_names,
        spouts=tuple(task.id for task in plan.spouts),
        counted=frozenset(id for id, spout in spouts if spout.level.counts_records),
        logs=frozenset(id for id, spout in spouts if spout.level is Level.LOG),
        self_replaying=frozenset(id for id, spout in spouts if not spout.implementation.replay),
        places={task.id: (task.index, task.worker) for task in plan.tasks},
        tracked=plan.graph.config.tracked,
        pending_max=plan.graph.config.spout_slots,
        timeouts_s={id: spout.message_timeout_s or timeout_s for id, spout in spouts},
        sample=sample,
    )


# ---- batch evidence ------------------------------------------------------------------------------


@dataclass
class BatchAttempt:
    """One attempt at a batch. Times are seconds from the start of the run; None: unknown.

    An attempt without an end was given up with an earlier batch or with its coordinator, or the run
    ended.
    """

    group: str  # the coordinator's task
    txid: int
    attempt: int
    epoch: int  # the coordinator's life
    begun_s: float
    rows: int = 0
    processed_s: float | None = None
    committed_s: float | None = None
    failed_s: float | None = None
    why: str = ""


def batches_of(history: History) -> list[BatchAttempt]:
    """Return all attempts of all groups, in the order in which they began."""
    attempts: dict[tuple[str, int, int, int], BatchAttempt] = {}
    emitted: dict[tuple[int, int, int], int] = {}
    for task, at_s, event, facts in _noted(history):
        stamp = facts["txid"], facts["attempt"], facts["epoch"]
        key = history.name(task), *stamp
        if event == "batch begun":
            attempts[key] = BatchAttempt(*key, begun_s=at_s)
        elif event == "batch emitted":
            emitted[stamp] = emitted.get(stamp, 0) + facts["rows"]
        elif key in attempts:
            attempt = attempts[key]
            match event:
                case "batch processed":
                    attempt.processed_s = at_s
                case "batch committed":
                    attempt.committed_s = at_s
                case "batch failed":
                    attempt.failed_s, attempt.why = at_s, facts["why"]
    if len({attempt.group for attempt in attempts.values()}) == 1:  # else the group is unknown
        for attempt in attempts.values():
            attempt.rows = emitted.get((attempt.txid, attempt.attempt, attempt.epoch), 0)
    return list(attempts.values())


def batch_figures(history: History) -> dict[str, float]:
    """Return the figures of batches by name; empty without batches.

    batches committed, batch attempts, batch attempts failed; batch_p50_s, batch_p99_s: the duration
    of committed attempts.
    """
    attempts = batches_of(history)
    if not attempts:
        return {}
    took_s = [a.committed_s - a.begun_s for a in attempts if a.committed_s is not None]
    figures: dict[str, float] = {
        "batches committed": len(took_s),
        "batch attempts": len(attempts),
        "batch attempts failed": sum(attempt.failed_s is not None for attempt in attempts),
    }
    if took_s:
        median, tail = np.percentile(took_s, (50, 99)).tolist()
        figures |= {"batch_p50_s": round(median, 6), "batch_p99_s": round(tail, 6)}
    return figures


def _noted(history: History) -> Iterator[tuple[int, float, str, dict[str, Any]]]:
    rows = history.rows(What.NOTED)
    for task, at_s, (event, facts) in zip(
        rows.tasks.tolist(), rows.at_s.tolist(), rows.details, strict=True
    ):
        if event.startswith("batch ") and {"txid", "attempt", "epoch"} <= facts.keys():
            yield task, at_s, event, facts


# ---- tuple evidence ------------------------------------------------------------------------------

MESSAGES_MAX = 3
_LINES_MAX = 60


def trees(history: History, messages: Iterable[int]) -> tuple[str, ...]:
    """Describe the first few of these messages; see event_history.message_keys."""
    wanted = list(messages)
    lines = [line for message in wanted[:MESSAGES_MAX] for line in tree(history, message)]
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
    edges = edges_of(_events(history, root))
    for edge in edges:
        steps = ", ".join(
            f"{event.what.name.lower()} {event.at_s:.4f}{', too late' * (event.at_s > done_s)}"
            for event in edge.events
        )
        way = f"→ {history.name(edge.target)}"
        if edge.source:
            way = f"{history.name(edge.source)} {way}"
        yield f"    {'  ' * edge.depth}{edge.edge:016x} {way}: {steps}"
    if not edges:
        yield "    nothing is known of its edges: it is not in the sample, or it had none"
    elif open_ones := [edge for edge in edges if edge.events[-1].what is not What.ACKED]:
        at_s, step, target = max(
            (edge.events[-1].at_s, edge.events[-1].what.name.lower(), edge.target)
            for edge in open_ones
        )
        where = "on the way to " if step == "sent" else ""
        yield f"    last: {where}{history.name(target)}, {step} {at_s:.4f} s"


def _events(history: History, root: int) -> list[TreeEvent]:
    """The events of the edges of a tree, in the order of the history."""
    ordered: list[tuple[int, TreeEvent]] = []
    for what in (What.SENT, What.DELIVERED, What.ACKED, What.REFUSED):
        rows = history.rows(what)
        for row in np.flatnonzero(rows.roots == np.uint64(root)).tolist():
            place = float(rows.at_s[row]), what, int(rows.tasks[row]), int(rows.values[row])
            target = int(rows.targets[row]) if what is What.SENT else None
            ordered.append((int(rows.order[row]), TreeEvent(*place, target)))
    return [event for _, event in sorted(ordered)]


def messages_of(history: History, roots: U64) -> list[int]:
    """Return the messages of these roots, ascending."""
    emitted = history.rows(What.EMITTED)
    messages: list[int] = np.unique(emitted.messages[np.isin(emitted.roots, roots)]).tolist()
    return messages
