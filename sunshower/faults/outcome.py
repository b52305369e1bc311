"""What an experiment came to: verdicts with their evidence, recoveries, figures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any


class Verdict(StrEnum):
    """What can be said of a promise. UNKNOWN: nothing was proved either way."""

    HOLDS = "HOLDS"
    UNKNOWN = "UNKNOWN"
    BROKEN = "BROKEN"


_GRAVITY = (Verdict.HOLDS, Verdict.UNKNOWN, Verdict.BROKEN)


def gravest(verdicts: Iterable[Verdict]) -> Verdict:
    """The worst of them; UNKNOWN of none at all."""
    return max(verdicts, key=_GRAVITY.index, default=Verdict.UNKNOWN)


@dataclass(frozen=True)
class Finding:
    """What one checker says."""

    checker: str  # such as at-least-once
    verdict: Verdict
    reasons: tuple[str, ...]  # one sentence each
    evidence: tuple[str, ...] = ()  # lines to read: the tree of a lost tuple, who had it last
    figures: Mapping[str, float] = field(default_factory=dict)  # such as duplicates: 12


@dataclass(frozen=True)
class Recovery:
    """One fault, and how long what it had touched took to be whole again."""

    fault: str  # in words
    begun_s: float  # from the start of the run, as all times here
    ended_s: float  # healed; of a kill the same as begun_s
    recovered_s: float | None  # all that was open when it ended is settled; None: it never was


@dataclass(frozen=True)
class Outcome:
    """One run of an experiment; `results.json` is its fields."""

    experiment: str
    cluster: str  # sim or ray
    seed: int
    parameters: Mapping[str, Any]
    findings: tuple[Finding, ...]
    recoveries: tuple[Recovery, ...]
    figures: Mapping[str, float]  # emitted, completed, failed, replays, duplicates, throughput …
    seconds: float  # on the cluster's clock
    versions: Mapping[str, str] = field(default_factory=dict)
    error: str | None = None  # why the run did not come to its end
    undone: tuple[str, ...] = ()  # what of the plan was not carried out, and why

    @property
    def verdict(self) -> Verdict:
        """The gravest of all findings."""
        return gravest(finding.verdict for finding in self.findings)

    def to_fields(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {**asdict(self), "verdict": self.verdict}
