"""Checkers for the stages, which know what each stage must write, and when it may emit."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count, pairwise
from typing import ClassVar

import numpy as np

from sunshower.experiments.checkers import CheckResult
from sunshower.experiments.event_history import History, task_and_number
from sunshower.experiments.outcome import Ending, Facts, trees
from sunshower.failures import Cause
from sunshower.runtime.events.event_log import What
from sunshower.runtime.tracking.ids import incarnations_of
from tests.mutants.stages import HALF, POISON, SPOUTS, leaves


@dataclass(frozen=True)
class ExpectedRecords:
    """Each number of the source leads to all records that it must lead to, and to no others.

    What a relay yielded before it raised may be written too: it belongs to a tree that has failed.
    On the stage `poison` only the poison may become a dead letter.
    """

    stage: str
    total: int
    name: ClassVar[str] = "expected-records"

    def check(self, history: History, facts: Facts) -> CheckResult:
        written = {key for key, _ in history.rows(What.WROTE).details}
        dead = {number for what, number, _ in written if what == "letter"}
        expected = {n: leaves(self.stage, n) for n in range(self.total)}
        strange = written - set().union(*expected.values()) - {("letter", n, -1) for n in dead}
        strange = {row for row in strange if row[2] != HALF}
        owed = _emitted(history, facts) if facts.drained else set(expected)
        missing = {n for n in owed if not expected[n] <= written} - dead
        ended = facts.ending is Ending.FINISHED
        broken = [f"{min(strange)} was written, and is not expected"] if strange else []
        if missing and ended:
            broken.append(f"records of {len(missing)} numbers were not written: {min(missing)}")
        if self.stage == "poison" and dead - {POISON}:
            broken.append(f"other records became dead letters: {sorted(dead - {POISON})}")
        return CheckResult("all expected records were written", broken)


def _emitted(history: History, facts: Facts) -> set[int]:
    """The numbers that the source has emitted."""
    pairs = map(task_and_number, history.accounts.messages.tolist())
    return {facts.places[task][0] + number * SPOUTS for task, number in pairs}


@dataclass(frozen=True)
class FailuresAreReported:
    """A tree that a bolt has failed soon after the emit does not wait for its deadline."""

    soon_s: float = 1.0  # after the emit
    name: ClassVar[str] = "failures-are-reported"

    def check(self, history: History, facts: Facts) -> CheckResult:
        emitted, failed = history.rows(What.EMITTED), history.rows(What.FAILED)
        refused = history.rows(What.REFUSED)
        begun_s = dict(zip(emitted.roots.tolist(), emitted.at_s.tolist(), strict=True))
        pairs = zip(refused.roots.tolist(), refused.at_s.tolist(), strict=True)
        soon = {root for root, at_s in pairs if at_s < begun_s.get(root, at_s) + self.soon_s}
        late = np.array([cause is Cause.TIMEOUT for cause in failed.details], np.bool_)
        late &= np.isin(failed.roots, np.array(sorted(soon), np.uint64))
        reasons = [f"{late.sum()} trees were failed by a bolt, and timed out"] if late.any() else []
        return CheckResult("no tree that a bolt failed has timed out", reasons)


@dataclass(frozen=True)
class RestartsContinue:
    """A restarted spout does not emit messages that were settled long before its restart."""

    stored_s: float = 2.0  # the longest time until the master has stored a position
    name: ClassVar[str] = "restarts-continue"

    def check(self, history: History, facts: Facts) -> CheckResult:
        emitted, completed = history.rows(What.EMITTED), history.rows(What.COMPLETED)
        reasons = []
        for spout in facts.spouts:
            mine, done = emitted.tasks == spout, completed.tasks == spout
            lives, numbers = incarnations_of(emitted.roots[mine]), emitted.values[mine]
            at_s = emitted.at_s[mine]
            for earlier, later in pairwise(np.unique(lives).tolist()):
                known_s = at_s[lives == earlier].max() - self.stored_s
                settled = set(completed.values[done & (completed.at_s < known_s)].tolist())
                first = next(n for n in count() if n not in settled)
                if (lowest := int(numbers[lives == later].min())) < first:
                    reasons.append(f"{lowest} is emitted again, and all below {first} was settled")
        return CheckResult("each restarted spout continues at its position", reasons[:1])


@dataclass(frozen=True)
class NoNewMessages:
    """When a drain has reached all spouts, they emit no new messages."""

    from_s: float
    name: ClassVar[str] = "no-new-messages"

    def check(self, history: History, facts: Facts) -> CheckResult:
        emitted = history.rows(What.EMITTED)
        _, first = np.unique(emitted.messages, return_index=True)
        late = (emitted.at_s[first] > self.from_s).sum() if facts.drained else 0
        reasons = [f"{late} new messages were emitted after the drain"] if late else []
        return CheckResult("no new messages after a drain", reasons)


@dataclass(frozen=True)
class ReplaysFollowFailures:
    """Within one incarnation of a spout task a message is emitted again only if it has failed."""

    name: ClassVar[str] = "replays-follow-failures"

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
        reasons = [f"{len(wrong)} messages were emitted again, and had not failed"] if wrong else []
        return CheckResult("each replay followed a failure", reasons, (), trees(history, wrong))
