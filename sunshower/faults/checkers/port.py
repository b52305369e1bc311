"""What a checker is, how it says what it has found, and how several are asked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from sunshower.faults.facts import Facts
from sunshower.faults.history import History
from sunshower.faults.outcome import Finding, Verdict
from sunshower.runtime.history import What


class Checker(Protocol):
    """A promise that can be looked up in a history. Frozen."""

    @property
    def name(self) -> str:
        """Such as at-least-once."""

    def check(self, history: History, facts: Facts) -> Weighed:
        """Whether it was kept. What this raises becomes UNKNOWN, with the error as reason."""


@dataclass(frozen=True)
class Weighed:
    """What speaks against a promise, what leaves it open, and what to say when it holds."""

    holds: str
    broken: Sequence[str] = ()
    unknown: Sequence[str] = ()
    evidence: Sequence[str] = ()
    figures: Mapping[str, float] = field(default_factory=dict)

    def finding(self, name: str) -> Finding:
        """The gravest decides."""
        found = ((Verdict.BROKEN, self.broken), (Verdict.UNKNOWN, self.unknown))
        verdict, reasons = next((pair for pair in found if pair[1]), (Verdict.HOLDS, [self.holds]))
        return Finding(name, verdict, tuple(reasons), tuple(self.evidence), self.figures)


def judge(checkers: Iterable[Checker], history: History, facts: Facts) -> tuple[Finding, ...]:
    """The finding of each.

    What holds is UNKNOWN where the history is incomplete, where nothing was hurt, and where nothing
    was completed after it: that proves nothing.
    """
    doubt = _doubt(history, facts)
    findings = (_ask(checker, history, facts) for checker in checkers)
    return tuple(
        replace(one, verdict=Verdict.UNKNOWN, reasons=(doubt, *one.reasons))
        if doubt and one.verdict is Verdict.HOLDS
        else one
        for one in findings
    )


def _ask(checker: Checker, history: History, facts: Facts) -> Finding:
    try:
        return checker.check(history, facts).finding(checker.name)
    except Exception as error:
        reason = f"the checker itself has failed: {type(error).__name__}: {error}"
        return Finding(checker.name, Verdict.UNKNOWN, (reason,))


def _doubt(history: History, facts: Facts) -> str | None:
    """Why nothing can be proved by this history."""
    if history.cut is not None:
        return history.cut
    hurts = [fault for fault in history.faults if fault.words not in facts.harmless]
    if not hurts:
        return "nothing was hurt: the run was over before the first fault, or the plan has none"
    done = history.rows(What.COMPLETED if facts.tracked else What.WROTE)
    if not len(done):
        return "nothing was completed"
    if done.at_s[-1] < hurts[0].begun_s:
        return "nothing was hurt: all was done before the first fault"
    return None
