"""What these stages promise beside what every topology does: checkers that know their leaves."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count, pairwise
from typing import ClassVar

import numpy as np

from sunshower.experiments.checkers.checker import CheckResult
from sunshower.experiments.evidence.event_history import History, task_and_number
from sunshower.experiments.evidence.facts import Ending, Facts
from sunshower.experiments.evidence.tuple_evidence import trees
from sunshower.failures import Cause
from sunshower.runtime.events.event_log import What
from sunshower.runtime.tracking.ids import incarnations_of
from tests.mutants.stages import HALF, POISON, SPOUTS, leaves


@dataclass(frozen=True)
class Leaves:
    """All that must come of the numbers of the source is written, and nothing else but what a relay
    made before it raised: that may have left in a piece, and belongs to a tree that has failed.

    Only the poison may become a dead letter, and where nobody is `sick`.
    """

    stage: str
    total: int
    name: ClassVar[str] = "leaves"

    def check(self, history: History, facts: Facts) -> CheckResult:
        written = {key for key, _ in history.rows(What.WROTE).details}
        dead = {number for what, number, _ in written if what == "letter"}
        expected = {n: leaves(self.stage, n) for n in range(self.total)}
        strange = written - set().union(*expected.values()) - {("letter", n, -1) for n in dead}
        strange = {row for row in strange if row[2] != HALF}
        owed = _emitted(history, facts) if facts.drained else set(expected)
        missing = {n for n in owed if not expected[n] <= written} - dead
        ended = facts.ending is Ending.FINISHED
        broken = [f"{min(strange)} was written, which nobody may make"] if strange else []
        if missing and ended:
            broken.append(f"of {len(missing)} numbers something was never written: {min(missing)}")
        if self.stage == "poison" and dead - {POISON}:
            broken.append(f"other records became dead letters: {sorted(dead - {POISON})}")
        return CheckResult("all leaves are there", broken)


def _emitted(history: History, facts: Facts) -> set[int]:
    """The numbers that the source was asked for."""
    pairs = map(task_and_number, history.accounts.messages.tolist())
    return {facts.places[task][0] + number * SPOUTS for task, number in pairs}


@dataclass(frozen=True)
class RefusalsAreHeard:
    """What a bolt has failed long before its deadline has not waited for that."""

    soon_s: float = 1.0  # after the emit
    name: ClassVar[str] = "refusals-are-heard"

    def check(self, history: History, facts: Facts) -> CheckResult:
        emitted, failed = history.rows(What.EMITTED), history.rows(What.FAILED)
        refused = history.rows(What.REFUSED)
        begun_s = dict(zip(emitted.roots.tolist(), emitted.at_s.tolist(), strict=True))
        pairs = zip(refused.roots.tolist(), refused.at_s.tolist(), strict=True)
        soon = {root for root, at_s in pairs if at_s < begun_s.get(root, at_s) + self.soon_s}
        late = np.array([cause is Cause.TIMEOUT for cause in failed.details], np.bool_)
        late &= np.isin(failed.roots, np.array(sorted(soon), np.uint64))
        said = [f"{late.sum()} trees were refused, and have timed out"] if late.any() else []
        return CheckResult("nobody waited for nothing", said)


@dataclass(frozen=True)
class LivesGoOn:
    """A life of a spout does not emit again what was settled long before the former one ended."""

    told_s: float = 2.0  # so long it may take until the master has kept a position
    name: ClassVar[str] = "lives-go-on"

    def check(self, history: History, facts: Facts) -> CheckResult:
        emitted, completed = history.rows(What.EMITTED), history.rows(What.COMPLETED)
        said = []
        for spout in facts.spouts:
            mine, done = emitted.tasks == spout, completed.tasks == spout
            lives, numbers = incarnations_of(emitted.roots[mine]), emitted.values[mine]
            at_s = emitted.at_s[mine]
            for former, latter in pairwise(np.unique(lives).tolist()):
                known_s = at_s[lives == former].max() - self.told_s
                settled = set(completed.values[done & (completed.at_s < known_s)].tolist())
                first = next(n for n in count() if n not in settled)
                if (lowest := int(numbers[lives == latter].min())) < first:
                    said.append(f"{lowest} is emitted again, and all below {first} was settled")
        return CheckResult("each life goes on where the former one was", said[:1])


@dataclass(frozen=True)
class Quiet:
    """When everybody has heard of a drain, nothing is emitted for the first time."""

    from_s: float
    name: ClassVar[str] = "quiet"

    def check(self, history: History, facts: Facts) -> CheckResult:
        emitted = history.rows(What.EMITTED)
        _, first = np.unique(emitted.messages, return_index=True)
        late = (emitted.at_s[first] > self.from_s).sum() if facts.drained else 0
        said = [f"{late} messages were emitted first after the drain"] if late else []
        return CheckResult("a drain is the end of what is fresh", said)


@dataclass(frozen=True)
class EachEmitHasItsReason:
    """Within one life of a spout a message is emitted again only when it has failed."""

    name: ClassVar[str] = "each-emit-has-its-reason"

    def check(self, history: History, facts: Facts) -> CheckResult:
        emitted, failed = history.rows(What.EMITTED), history.rows(What.FAILED)
        lives = incarnations_of(emitted.roots).tolist()
        order = {}
        for root, at in zip(failed.roots.tolist(), failed.order.tolist(), strict=True):
            order.setdefault(root, at)
        last: dict[tuple[int, int], int] = {}
        wrong = []
        rows = zip(emitted.roots.tolist(), emitted.messages.tolist(), lives, strict=True)
        for (root, message, life), at in zip(rows, emitted.order.tolist(), strict=True):
            before = last.get((message, life))
            if before is not None and not order.get(before, at + 1) < at:
                wrong.append(message)
            last[message, life] = root
        said = [f"{len(wrong)} messages were emitted again, and had not failed"] if wrong else []
        return CheckResult("each replay had its failure", said, (), trees(history, wrong))
