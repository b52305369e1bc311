"""Runs one acker shard: its ledger finds complete and failed trees, whose spouts get verdicts.

Ackers send verdicts to spouts only, never to bolts (many drawings of Storm show this wrongly).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from sunshower.failures import Cause, Failure, FailureTexts
from sunshower.runtime.tracking.ids import U64, incarnations_of
from sunshower.runtime.tracking.ledger import F64, Ledger, SettledTrees
from sunshower.runtime.tracking.reports import FailedRoots, ShardReport

_REASONS_MAX = 1 << 16  # a crash may fail all that two spout tasks have pending
_REASONS_BYTES = 1 << 24  # of their texts


@dataclass(slots=True)
class Verdicts:
    """Verdicts for one spout task: completed trees, failed trees with reasons, requested ages."""

    complete: list[U64] = field(default_factory=list)
    failed: FailedRoots = field(default_factory=FailedRoots)
    ages: list[tuple[U64, F64]] = field(default_factory=list)  # seconds since the last report


class AckerTask:
    """A ledger, and the reasons of failures that arrived before the start of their tree."""

    def __init__(self, task: int, strides: Sequence[int], *, timed: bool = False) -> None:
        self.task = task
        self._spouts = len(strides)
        self.ledger = Ledger(strides, timed=timed)
        self.slow_s = 0.0  # the delay that an experiment adds to each report
        self._reasons: dict[int, Failure] = {}
        self._texts = FailureTexts(_REASONS_BYTES)

    def apply(self, report: ShardReport, now: float) -> dict[int, Verdicts]:
        """Apply a report received at `now`. Returns spout index (see Plan.spouts) → verdicts."""
        self.ledger.now_s = now
        verdicts: dict[int, Verdicts] = {}
        for roots, xors in report.starts:
            self._add_settled(self.ledger.start(roots, xors), verdicts)
        for roots, xors in report.acks:
            self._add_settled(self.ledger.ack(roots, xors), verdicts)
        if report.fails:
            self._fail(dict(reversed(report.fails)), verdicts)  # the first reason of each root
        for asked in report.asks:
            self._answer(asked, verdicts)
        return verdicts

    def _fail(self, reasons: dict[int, Failure], verdicts: dict[int, Verdicts]) -> None:
        roots = np.array(list(reasons), np.uint64)
        settled = self.ledger.fail(roots)
        for root in settled.failed.tolist():
            self._add_failed(root, reasons.pop(root), verdicts)
        if reasons:  # late, of closed trees, or before the start of their trees
            for root in roots[self.ledger.await_start(roots)].tolist():
                self._keep(root, reasons[root])

    def _keep(self, root: int, failure: Failure) -> None:
        """Keep a reason until the start of its tree is reported; the first one counts."""
        if root in self._reasons:
            return
        self._reasons[root] = failure
        for other in self._texts.add(root, failure):
            self._reasons[other] = self._reasons[other].short
        while len(self._reasons) > _REASONS_MAX:  # trees that never start
            oldest = next(iter(self._reasons))
            del self._reasons[oldest]
            self._texts.remove(oldest)

    def _answer(self, asked: U64, verdicts: dict[int, Verdicts]) -> None:
        incarnations = incarnations_of(asked)
        for incarnation in np.unique(incarnations).tolist():
            roots = asked[incarnations == incarnation]
            answer = (roots, self.ledger.ages(roots))
            verdicts.setdefault(incarnation % self._spouts, Verdicts()).ages.append(answer)

    def _add_settled(self, settled: SettledTrees, verdicts: dict[int, Verdicts]) -> None:
        if len(settled.complete) and self._spouts == 1:
            verdicts.setdefault(0, Verdicts()).complete.append(settled.complete)
        elif len(settled.complete):
            spouts = incarnations_of(settled.complete) % self._spouts
            for spout in {int(spouts[0])} if (spouts == spouts[0]).all() else set(spouts.tolist()):
                mine = settled.complete[spouts == spout]
                verdicts.setdefault(spout, Verdicts()).complete.append(mine)
        for root in settled.failed.tolist():
            self._texts.remove(root)
            self._add_failed(root, self._reasons.pop(root, Failure(Cause.FAILED)), verdicts)

    def _add_failed(self, root: int, reason: Failure, verdicts: dict[int, Verdicts]) -> None:
        spout = (root >> 48) % self._spouts
        verdicts.setdefault(spout, Verdicts()).failed.add([(root, reason)])
