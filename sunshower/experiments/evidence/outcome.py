"""The outcome of an experiment: verdicts with their evidence, recoveries, figures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any


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
    figures: Mapping[str, float]  #: emitted, completed, failed, replays, duplicates, throughput …
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
        known = (one.seconds for one in self.recoveries if one.seconds is not None)
        return max(known, default=None)

    @property
    def never_recovered(self) -> int:
        """The number of faults after which the run never recovered."""
        return sum(one.seconds is None for one in self.recoveries)

    def to_fields(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        return {**asdict(self), "verdict": self.verdict}

    @staticmethod
    def from_fields(found: Mapping[str, Any]) -> Outcome:
        """Build the outcome from the result of `to_fields`. Raises KeyError, TypeError or
        ValueError for any other value."""
        fields = {name: value for name, value in found.items() if name != "verdict"}
        fields["findings"] = tuple(
            Finding(
                one["checker"],
                Verdict(one["verdict"]),
                tuple(one["reasons"]),
                tuple(one["evidence"]),
                one["figures"],
            )
            for one in found["findings"]
        )
        fields["recoveries"] = tuple(Recovery(**one) for one in found["recoveries"])
        fields["undone"] = tuple(found["undone"])
        return Outcome(**fields)
