"""Failure checkers: no tree fails at its deadline, and an outage uses up no attempt."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from sunshower.arguments import check_all
from sunshower.errors import ExperimentError
from sunshower.experiments.checkers.checker import CheckResult
from sunshower.experiments.evidence.event_history import History, lookup, numbers_of
from sunshower.experiments.evidence.facts import UNTRACKED, Ending, Facts
from sunshower.experiments.evidence.tuple_evidence import messages_of, trees
from sunshower.failures import Cause, Failure
from sunshower.runtime.events.event_log import What

_FULL = 0.9  # of a timeout: clocks drift
_CHARGED = {cause for cause in Cause if Failure(cause).is_charged}
_CHARGE = ("errors ", "expire ")  # the first words of faults that use up attempts


@dataclass(frozen=True)
class NoneTimedOut:
    """No tree failed at its deadline: each failure was detected earlier.

    Only for topologies whose bolts ack everything in time, and for faults that are much shorter
    than the timeout. Trees that `expire` ends are younger than their deadline and do not count.
    """

    name: ClassVar[str] = "none-timed-out"

    def check(self, history: History, facts: Facts) -> CheckResult:
        emitted, failed = history.rows(What.EMITTED), history.rows(What.FAILED)
        timed_out = np.array([cause == Cause.TIMEOUT for cause in failed.details], np.bool_)
        roots = failed.roots[timed_out]
        age_s = failed.at_s[timed_out] - lookup(emitted.roots, emitted.at_s, roots, np.nan)
        limits_s = [facts.timeouts_s.get(task, 0.0) for task in failed.tasks[timed_out].tolist()]
        late = roots[age_s >= _FULL * np.array(limits_s)]
        reason = f"{len(late):,} trees failed at their deadline, and were not detected before"
        return CheckResult(
            "no tree had to wait for its deadline",
            [reason] if len(late) else (),
            () if facts.tracked else [UNTRACKED],
            trees(history, messages_of(history, late)),
        )


@dataclass(frozen=True)
class NothingCharged:
    """No message but those in `poison` used up an attempt or became a dead letter, and the
    topology did not give up.

    Only for topologies whose own code raises only outages and fails only `poison`. UNKNOWN if a
    fault of the plan uses up attempts itself: `errors` and `expire`.
    """

    poison: frozenset[int] = frozenset()  # message numbers
    letters_only: bool = False  # for unclassified errors: the history does not record doubt
    name: ClassVar[str] = "nothing-charged"

    def __post_init__(self) -> None:
        check_all(self, {}, "NothingCharged: ", ExperimentError)

    def check(self, history: History, facts: Facts) -> CheckResult:
        failed = history.rows(What.FAILED)
        charged = np.array([cause in _CHARGED for cause in failed.details], np.bool_)
        charged &= not self.letters_only
        innocent = ~np.isin(numbers_of(failed.messages), list(self.poison))
        wrong = charged & innocent
        causes = Counter(str(failed.details[at]) for at in np.flatnonzero(wrong).tolist())
        broken = [f"{count:,} failures with the cause {cause!r}" for cause, count in causes.items()]
        dead = history.rows(What.DEAD)
        letters = int(np.count_nonzero(~np.isin(dead.values.view(np.int64), [*self.poison])))
        if letters:
            broken.append(f"{letters:,} dead letters of messages that are no poison")
        if facts.ending is Ending.HALTED:
            broken.append(f"the topology gave up: {facts.error}")
        unknown = [] if facts.tracked else [UNTRACKED]
        if any(fault.words.startswith(_CHARGE) for fault in history.faults):
            unknown += ["faults of this run use up attempts themselves", *broken]
            broken = []
        return CheckResult(
            f"none of {len(failed):,} failures used up an attempt of an innocent message",
            broken,
            unknown,
            trees(history, messages_of(history, failed.roots[wrong])),
            {"charged": int(np.count_nonzero(wrong)), "letters": letters},
        )
