"""Renders the HTML pages of one run and of a group of runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sunshower.experiments.evidence.outcome import Outcome, Verdict, gravest
from sunshower.experiments.report.drawing import Chart, check_installed
from sunshower.experiments.report.phrases import figure, moment, span
from sunshower.experiments.report.sweep import Point

SIGNS = {Verdict.HOLDS: "✔", Verdict.BROKEN: "✘", Verdict.UNKNOWN: "?"}
_EVIDENCE_MAX = 200  # lines of one checker on a page
_RECOVERIES_MAX = 50
_TILES = ("emitted", "completed", "replays", "failed", "duplicates", "throughput")


@dataclass(frozen=True)
class Background:
    """What a page shows besides the outcome."""

    about: str = ""
    command: str = ""  # to run it again
    facts: Mapping[str, Any] = field(default_factory=dict)  # such as begun: 2026-01-31 …
    steps: Sequence[str] = ()  # of the plan, as they were carried out


def run_page(outcome: Outcome, background: Background, charts: Sequence[Chart]) -> str:
    """Return the page of one run. Raises ExperimentError without the extra."""
    return _render(
        "run.html",
        title=outcome.experiment,
        verdict=outcome.verdict,
        summary=outcome_summary(outcome),
        about=background.about,
        outcome=outcome,
        tiles=_tiles(outcome),
        facts={
            "cluster": outcome.cluster,
            "seed": outcome.seed,
            "length": f"{span(outcome.seconds)} on the cluster's clock",
            **background.facts,
        },
        steps=background.steps,
        command=background.command,
        charts=charts,
        evidence_max=_EVIDENCE_MAX,
        recoveries_max=_RECOVERIES_MAX,
    )


def group_page(
    title: str,
    runs: Sequence[tuple[str, Point]],
    parameters: Mapping[str, Any],
    background: Background,
    charts: Sequence[Chart],
) -> str:
    """Return the page of a group of (folder name, run). Raises as `run_page`."""
    verdicts = [point.verdict for _, point in runs]
    return _render(
        "group.html",
        title=title,
        verdict=gravest(verdicts),
        summary=counted(verdicts, "run"),
        about=background.about,
        runs=runs,
        names=list(runs[0][1].values) if runs else [],
        parameters=parameters,
        facts=background.facts,
        command=background.command,
        charts=charts,
    )


def outcome_summary(outcome: Outcome) -> str:
    """Return the outcome in one or two sentences."""
    if outcome.error:
        return f"The run did not finish: {outcome.error}"
    grave = [finding for finding in outcome.findings if finding.verdict is outcome.verdict]
    all_of_them = counted([finding.verdict for finding in outcome.findings], "checker")
    if outcome.verdict is Verdict.HOLDS or not grave:
        return all_of_them
    reason = "; ".join(grave[0].reasons[:1])
    return f"{grave[0].checker}: {reason}{'' if reason.endswith('.') else '.'} {all_of_them}"


def counted(verdicts: Sequence[Verdict], noun: str) -> str:
    """Count the verdicts: `Of 5 checkers: 3 HOLDS, 1 BROKEN, 1 UNKNOWN.`."""
    counts = {verdict: verdicts.count(verdict) for verdict in SIGNS}
    counts_text = ", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count)
    return f"Of {len(verdicts)} {noun}{'s'[: len(verdicts) != 1]}: {counts_text}."


def _tiles(outcome: Outcome) -> dict[str, str]:
    found = {name: figure(outcome.figures[name]) for name in _TILES if name in outcome.figures}
    if "throughput" in found:
        found["throughput"] = f"{figure(round(outcome.figures['throughput']))}/s"
    if outcome.never_recovered:
        found["longest recovery"] = "never"
    elif outcome.recovery_s is not None:
        found["longest recovery"] = span(outcome.recovery_s)
    return found


def _render(template: str, **values: Any) -> str:
    check_installed()
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"figure": figure, "moment": moment, "span": span}
    return environment.get_template(template).render(signs=SIGNS, **values)
