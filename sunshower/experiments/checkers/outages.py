"""Outage checker: outages and overload must not use up attempts of a tuple."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from sunshower.experiments.checkers.checker import CheckResult
from sunshower.experiments.evidence.event_history import History, numbers_of
from sunshower.experiments.evidence.facts import UNTRACKED, Ending, Facts
from sunshower.experiments.evidence.tuple_evidence import messages_of, trees
from sunshower.failures import Cause, Failure
from sunshower.runtime.events.event_log import What

_CHARGED = {cause for cause in Cause if Failure(cause).is_charged}
_CHARGE = ("errors ", "expire ")  # the first words of faults that use up attempts


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

    def check(self, history: History, facts: Facts) -> CheckResult:
        failed = history.rows(What.FAILED)
        charged = np.array([cause in _CHARGED for cause in failed.details], np.bool_)
        charged &= not self.letters_only
        innocent = ~np.isin(numbers_of(failed.messages), list(self.poison))
        wrong = charged & innocent
        causes = Counter(str(failed.details[at]) for at in np.flatnonzero(wrong).tolist())
        broken = [f"{count:,} failures with the cause {cause!r}" for cause, count in causes.items()]
        buried = history.rows(What.BURIED)
        letters = int(np.count_nonzero(~np.isin(buried.values.view(np.int64), [*self.poison])))
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
