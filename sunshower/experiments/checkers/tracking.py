"""Tracking checkers: the edges of each tree, its completion, and how many trees are pending."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from sunshower.arguments import check_all
from sunshower.errors import ExperimentError
from sunshower.experiments.checkers.checker import CheckResult
from sunshower.experiments.evidence.event_history import EventRows, History, is_repeat, lookup
from sunshower.experiments.evidence.facts import UNTRACKED, Facts
from sunshower.experiments.evidence.tuple_evidence import messages_of, trees
from sunshower.runtime.events.event_log import What
from sunshower.runtime.tracking.ids import I64, U64, incarnations_of, slots_of

_ODD = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class NoPrematureAck:
    """A root completed only after every edge of its tree was acked, and none was refused.

    Checks all edges of the trees in the sample, at any depth.
    """

    name: ClassVar[str] = "no-premature-ack"

    def check(self, history: History, facts: Facts) -> CheckResult:
        roots, when = completions(history, facts.sample)
        sent, acked, refused = map(history.rows, (What.SENT, What.ACKED, What.REFUSED))
        done = lookup(roots, when, sent.roots, -1)  # by edge: when its tree was complete
        judged = done >= 0
        keys = edge_keys(sent)[judged]
        ack = lookup(edge_keys(acked), acked.order, keys, -1)
        early = (ack < 0) | (ack > done[judged])
        refusal = lookup(roots, when, refused.roots, -1)
        refused_too = (refusal >= 0) & (refused.order < refusal)
        wrong = np.union1d(sent.roots[judged][early], refused.roots[refused_too])
        early_ones = f"{len(wrong):,} of {len(roots):,} trees"
        reason = f"{early_ones} were complete before all their edges were acked"
        unknown = [] if facts.tracked else [UNTRACKED]
        if not len(keys) and len(history.rows(What.COMPLETED)):
            unknown.append("no tree of those completed is in the sample")
        return CheckResult(
            f"{len(roots):,} trees with {len(keys):,} edges were complete, none too early",
            [reason] if len(wrong) else (),
            unknown,
            trees(history, messages_of(history, wrong)),
            {"trees": len(roots), "edges": len(keys)},
        )


@dataclass(frozen=True)
class EachEdgeOnce:
    """Each edge is delivered once, to its target task, and acked once, after that."""

    name: ClassVar[str] = "each-edge-once"

    def check(self, history: History, facts: Facts) -> CheckResult:
        sent, delivered, acked = map(history.rows, (What.SENT, What.DELIVERED, What.ACKED))
        arrivals = edge_keys(delivered)
        handed = lookup(arrivals, delivered.order, edge_keys(acked), -1)
        wrong = {
            "reached a bolt twice": delivered.roots[is_repeat(arrivals)],
            "were acked twice": acked.roots[is_repeat(edge_keys(acked))],
            "were acked before they reached the bolt": acked.roots[
                (handed < 0) | (handed > acked.order)
            ],
            "reached a bolt that they were not sent to": delivered.roots[_astray(sent, delivered)],
        }
        roots = np.unique(np.concatenate(list(wrong.values())))
        return CheckResult(
            f"{len(arrivals):,} edges reached their bolts once",
            [f"{len(roots):,} edges {what}" for what, roots in wrong.items() if len(roots)],
            () if len(arrivals) else ["no edge has reached a bolt"],
            trees(history, messages_of(history, roots)),
        )


@dataclass(frozen=True)
class BoundedPending:
    """At most `limit` trees are open for each spout task; None: its `spout_pending`."""

    limit: int | None = None
    name: ClassVar[str] = "bounded-pending"

    def __post_init__(self) -> None:
        check_all(self, {}, "BoundedPending: ", ExperimentError)

    def check(self, history: History, facts: Facts) -> CheckResult:
        limit = facts.pending_max if self.limit is None else self.limit
        peaks = pending_peaks(history)
        if not peaks:
            return CheckResult("", unknown=["nothing was emitted"])
        worst = max(peaks, key=peaks.__getitem__)
        spout = facts.spouts[worst % len(facts.spouts)]
        reason = f"{history.name(spout)} had {peaks[worst]:,} trees open, and {limit:,} are allowed"
        return CheckResult(
            f"at most {peaks[worst]:,} trees were open at once, and {limit:,} are allowed",
            [reason] if peaks[worst] > limit else (),
            figures={"pending_max": peaks[worst]},
        )


def completions(history: History, sample: int) -> tuple[U64, I64]:
    """The roots in the sample that were complete, ascending, and when (as `order`), first."""
    completed = history.rows(What.COMPLETED)
    kept = slots_of(completed.roots) % sample == 0
    roots, at = np.unique(completed.roots[kept], return_index=True)
    return roots, completed.order[kept][at]


def edge_keys(rows: EventRows) -> U64:
    """Return one number for each pair of root and edge; trees may share an edge."""
    keys: U64 = (rows.roots * _ODD) ^ rows.values.view(np.uint64)
    return keys


def pending_peaks(history: History) -> dict[int, int]:
    """Return incarnation → the maximum of its open trees."""
    kinds = [history.rows(what) for what in (What.EMITTED, What.COMPLETED, What.FAILED)]
    incarnations = incarnations_of(np.concatenate([rows.roots for rows in kinds]))
    order = np.concatenate([rows.order for rows in kinds])
    change = np.repeat([1, -1, -1], [len(rows) for rows in kinds])
    peaks: dict[int, int] = {}
    by_time = np.argsort(order, kind="stable")
    incarnations, change = incarnations[by_time], change[by_time]
    for incarnation in np.unique(incarnations).tolist():
        peaks[incarnation] = int(np.cumsum(change[incarnations == incarnation]).max())
    return peaks


def _astray(sent: EventRows, delivered: EventRows) -> NDArray[np.bool_]:
    """Return which were delivered to another task than their target."""
    meant = lookup(edge_keys(sent), sent.targets, edge_keys(delivered), -1)
    astray: NDArray[np.bool_] = (meant >= 0) & (meant != delivered.tasks)
    return astray
