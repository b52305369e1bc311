"""What experiments came to, as tables for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from sunshower.cli.folders import RunFolder
from sunshower.cli.reports import figures_of_all, points_of
from sunshower.faults.outcome import Outcome, Verdict
from sunshower.faults.report.page import SIGNS, counted, summary
from sunshower.faults.report.recovery import longest, seconds_of
from sunshower.faults.report.words import figure, moment, span

_STYLES = {Verdict.HOLDS: "bold green", Verdict.UNKNOWN: "bold yellow", Verdict.BROKEN: "bold red"}
_EVIDENCE_MAX = 12  # lines of one checker; the report has more
_RECOVERIES_MAX = 8


def outcome_table(outcome: Outcome) -> RenderableType:
    """One run: what each checker says, the figures, and the verdict."""
    head = f"{outcome.experiment}  ·  {outcome.cluster}  ·  seed {outcome.seed}"
    findings = _table("checker", "verdict", "why", title=head)
    for finding in outcome.findings:
        lines = [*finding.reasons, *finding.evidence[:_EVIDENCE_MAX]]
        if len(finding.evidence) > _EVIDENCE_MAX:
            lines.append(f"… {len(finding.evidence) - _EVIDENCE_MAX} more lines in the report")
        findings.add_row(finding.checker, signed(finding.verdict), Text("\n".join(lines)))
    parts: list[RenderableType] = [findings, _figures(outcome)]
    if outcome.recoveries:
        parts.append(_recoveries(outcome))
    parts += [Text(f"not done: {one}", style="yellow") for one in outcome.undone]
    parts.append(Text.assemble(signed(outcome.verdict), f"  {summary(outcome)}"))
    return Group(*parts)


def group_table(group: RunFolder) -> RenderableType:
    """Several runs of one experiment, one a row, and the gravest verdict."""
    points = points_of(group)
    names = list(points[0][1].values) if points else []
    title = f"{group.name}  ·  {group.plan['cluster']}"
    seeds = {one.values["seed"] for _, one in points}
    if len(seeds) == 1:  # a column less: 80 letters are soon full
        names.remove("seed")
        title += f"  ·  seed {seeds.pop()}"
    measured = ("recovery", "throughput", "replays", "duplicates")
    table = _table("run", *names, "verdict", *measured, title=title)
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
    said = counted([one.verdict for _, one in points], "run")
    errors = [(folder, one.error) for folder, one in points if one.error]
    unfinished = [Text(f"{run}: {error}", style="yellow") for run, error in errors]
    return Group(table, *unfinished, Text.assemble(_said(group), f"  {said}"))


def runs_table(runs: Sequence[RunFolder]) -> Table:
    """What is there, one run or sweep a row."""
    table = _table("experiment", "run", "cluster", "seed", "verdict")
    for one in runs:
        plan, verdict = one.plan, one.verdict
        said = Text(f"did not end ({plan.get('stopped') or 'or runs still'})", style="dim")
        members = len(one.runs) if one.is_group else 0
        table.add_row(
            one.name,
            one.path.name + (f" ({members} runs)" if one.is_group else ""),
            str(plan["cluster"]),
            str(plan["seed"]),
            said if verdict is None else signed(verdict),
        )
    return table


def comparison_table(one: RunFolder, other: RunFolder) -> Table:
    """Two runs side by side; of a sweep or a repetition, the medians."""
    both = (one, other)
    table = _table("", *(f"{folder.name} {folder.path.name}" for folder in both), "B / A")
    table.add_row("verdict", *map(_said, both))
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
    """The verdict, with its sign: never colour alone."""
    return Text(f"{SIGNS[verdict]} {verdict}", style=_STYLES[verdict])


def _said(folder: RunFolder) -> Text:
    return signed(folder.verdict) if folder.verdict else Text("did not end")


def _all_names(sides: Sequence[Mapping[str, Any]]) -> list[str]:
    return list(dict.fromkeys(name for side in sides for name in side))


def _compared(one: float | None, other: float | None) -> Iterator[str]:
    for value in (one, other):
        yield "–" if value is None else figure(value)
    yield f"{other / one:.2f}×" if one and other is not None else ""


def _figures(outcome: Outcome) -> Table:
    table = _table("figure", "")
    table.columns[1].justify = "right"
    for name, value in outcome.figures.items():
        table.add_row(name, figure(value))
    table.add_row("seconds", figure(round(outcome.seconds, 3)))
    return table


def _recoveries(outcome: Outcome) -> Table:
    shown = longest(outcome.recoveries, _RECOVERIES_MAX)
    more = len(outcome.recoveries) - len(shown)
    table = _table(
        f"fault (the {len(shown)} worst)" if more else "fault", "at", "whole again after"
    )
    for recovery in shown:
        seconds = seconds_of(recovery)
        after = "never" if seconds is None else span(seconds)
        table.add_row(recovery.fault, moment(recovery.begun_s), after)
    return table


def _table(*headings: str, title: str | None = None) -> Table:
    table = Table(
        box=box.SIMPLE_HEAD, pad_edge=False, title=title, title_style="bold", title_justify="left"
    )
    for heading in headings:
        table.add_column(Text(heading), overflow="fold")
    return table
