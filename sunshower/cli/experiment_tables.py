"""Tables of experiment outcomes for the terminal: one run, a group, a list, a comparison."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from sunshower.cli.formatting import new_table
from sunshower.experiments.evidence.outcome import Outcome, Verdict
from sunshower.experiments.report.page import SIGNS, counted, outcome_summary
from sunshower.experiments.report.phrases import figure, moment, span
from sunshower.experiments.report.recovery_chart import longest
from sunshower.experiments.runner.run_folders import RunFolder
from sunshower.experiments.runner.run_reports import figures_of_all, points_of

VERDICT_STYLES = {
    Verdict.HOLDS: "bold green",
    Verdict.UNKNOWN: "bold yellow",
    Verdict.BROKEN: "bold red",
}
_EVIDENCE_MAX = 12  # lines of one checker; the report has all
_RECOVERIES_MAX = 8


def outcome_table(outcome: Outcome) -> RenderableType:
    """Return the findings, the figures and the verdict of one run."""
    head = f"{outcome.experiment}  ·  {outcome.cluster}  ·  seed {outcome.seed}"
    findings = new_table("checker", "verdict", "why", title=head)
    for finding in outcome.findings:
        lines = [*finding.reasons, *finding.evidence[:_EVIDENCE_MAX]]
        if len(finding.evidence) > _EVIDENCE_MAX:
            lines.append(f"… {len(finding.evidence) - _EVIDENCE_MAX} more lines in the report")
        findings.add_row(finding.checker, signed(finding.verdict), Text("\n".join(lines)))
    parts: list[RenderableType] = [findings, _figures(outcome)]
    if outcome.recoveries:
        parts.append(_recoveries(outcome))
    parts += [Text(f"not done: {one}", style="yellow") for one in outcome.undone]
    parts.append(Text.assemble(signed(outcome.verdict), f"  {outcome_summary(outcome)}"))
    return Group(*parts)


def group_table(group: RunFolder) -> RenderableType:
    """Return one row for each run of a group, and the gravest verdict."""
    points = points_of(group)
    names = list(points[0][1].values) if points else []
    title = f"{group.name}  ·  {group.plan['cluster']}"
    seeds = {one.values["seed"] for _, one in points}
    if len(seeds) == 1:  # a column less, to fit into 80 columns
        names.remove("seed")
        title += f"  ·  seed {seeds.pop()}"
    measured = ("recovery", "throughput", "replays", "duplicates")
    table = new_table("run", *names, "verdict", *measured, title=title)
    for folder, one in points:
        recovery = "" if one.recovery_s is None else span(one.recovery_s)
        table.add_row(
            folder,
            *(figure(one.values[name]) for name in names),
            signed(one.verdict),
            recovery if one.recovers else "never",
            "" if one.throughput is None else f"{figure(one.throughput)}/s",
            *("" if value is None else figure(value) for value in (one.replays, one.duplicates)),
        )
    counts = counted([one.verdict for _, one in points], "run")
    errors = [(folder, one.error) for folder, one in points if one.error]
    unfinished = [Text(f"{run}: {error}", style="yellow") for run, error in errors]
    return Group(table, *unfinished, Text.assemble(_verdict(group), f"  {counts}"))


def runs_table(runs: Sequence[RunFolder]) -> Table:
    """Return one row for each run or group."""
    table = new_table("experiment", "run", "cluster", "seed", "verdict")
    for one in runs:
        plan, verdict = one.plan, one.verdict
        unfinished = Text(f"did not end ({plan.get('stopped') or 'or runs still'})", style="dim")
        members = len(one.runs) if one.is_group else 0
        table.add_row(
            one.name,
            one.path.name + (f" ({members} runs)" if one.is_group else ""),
            str(plan["cluster"]),
            str(plan["seed"]),
            unfinished if verdict is None else signed(verdict),
        )
    return table


def comparison_table(one: RunFolder, other: RunFolder) -> Table:
    """Return two runs side by side; a group has medians."""
    both = (one, other)
    table = new_table("", *(f"{folder.name} {folder.path.name}" for folder in both), "B / A")
    table.add_row("verdict", *map(_verdict, both))
    for key in ("cluster", "seed"):
        table.add_row(key, *(str(folder.plan[key]) for folder in both))
    parameters = [folder.plan["parameters"] for folder in both]
    for name in _all_names(parameters):
        values = [figure(side.get(name, "–")) for side in parameters]
        table.add_row(name, *values, style="" if values[0] == values[1] else "bold")
    table.add_section()
    figures = [figures_of_all(folder) for folder in both]
    for name in _all_names(figures):
        table.add_row(name, *_compared(figures[0].get(name), figures[1].get(name)))
    return table


def signed(verdict: Verdict) -> Text:
    """Return the verdict with its sign and colour."""
    return Text(f"{SIGNS[verdict]} {verdict}", style=VERDICT_STYLES[verdict])


def _verdict(folder: RunFolder) -> Text:
    return signed(folder.verdict) if folder.verdict else Text("did not end")


def _all_names(sides: Sequence[Mapping[str, Any]]) -> list[str]:
    return list(dict.fromkeys(name for side in sides for name in side))


def _compared(one: float | None, other: float | None) -> Iterator[str]:
    for value in (one, other):
        yield "–" if value is None else figure(value)
    yield f"{other / one:.2f}×" if one and other is not None else ""


def _figures(outcome: Outcome) -> Table:
    table = new_table("figure", numbers=("",))
    for name, value in outcome.figures.items():
        table.add_row(name, figure(value))
    table.add_row("seconds", figure(round(outcome.seconds, 3)))
    return table


def _recoveries(outcome: Outcome) -> Table:
    shown = longest(outcome.recoveries, _RECOVERIES_MAX)
    more = len(outcome.recoveries) - len(shown)
    table = new_table(
        f"fault (the {len(shown)} worst)" if more else "fault", "at", "recovered after"
    )
    for recovery in shown:
        after = "never" if recovery.seconds is None else span(recovery.seconds)
        table.add_row(recovery.fault, moment(recovery.begun_s), after)
    return table
