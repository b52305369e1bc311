"""The checker interface, its result, and the function that runs several checkers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from sunshower.experiments.evidence.event_history import History
from sunshower.experiments.evidence.facts import Facts
from sunshower.experiments.evidence.outcome import Finding, Verdict
from sunshower.runtime.events.event_log import What


class Checker(Protocol):
    """Checks one guarantee in a history. Frozen."""

    @property
    def name(self) -> str:
        """The name, such as at-least-once."""

    def check(self, history: History, facts: Facts) -> CheckResult:
        """Check the history. An exception becomes UNKNOWN, with the error as reason."""


@dataclass(frozen=True)
class CheckResult:
    """The reasons for BROKEN and for UNKNOWN, and the reason to give if there are none."""

    holds: str
    broken: Sequence[str] = ()
    unknown: Sequence[str] = ()
    evidence: Sequence[str] = ()
    figures: Mapping[str, float] = field(default_factory=dict)

    def finding(self, name: str) -> Finding:
        """Return the finding: BROKEN before UNKNOWN before HOLDS."""
        found = ((Verdict.BROKEN, self.broken), (Verdict.UNKNOWN, self.unknown))
        verdict, reasons = next((pair for pair in found if pair[1]), (Verdict.HOLDS, [self.holds]))
        return Finding(name, verdict, tuple(reasons), tuple(self.evidence), self.figures)


def judge(checkers: Iterable[Checker], history: History, facts: Facts) -> tuple[Finding, ...]:
    """Run each checker and return its finding.

    HOLDS becomes UNKNOWN if the history is incomplete, if there was no fault, and if nothing was
    completed after the first fault.
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
    """Return why this history proves nothing, or None."""
    if history.cut is not None:
        return history.cut
    faults = [fault for fault in history.faults if fault.words not in facts.harmless]
    if not faults:
        return "no fault took effect: the run was over before the first fault, or the plan has none"
    done = history.rows(What.COMPLETED if facts.tracked else What.WROTE)
    if not len(done):
        return "nothing was completed"
    if done.at_s[-1] < faults[0].begun_s:
        return "no fault took effect: everything was done before the first fault"
    return None
