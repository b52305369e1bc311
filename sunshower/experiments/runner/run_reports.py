"""Writes reports into run folders, after a run or again from its files."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from statistics import median
from typing import Any

from sunshower.errors import ExperimentError
from sunshower.experiments.checkers.recovery import recoveries
from sunshower.experiments.evidence.event_history import Band, History
from sunshower.experiments.evidence.figures import figures_of
from sunshower.experiments.evidence.history_lines import from_lines
from sunshower.experiments.evidence.outcome import Finding, Outcome, Verdict, gravest
from sunshower.experiments.report.drawing import Chart
from sunshower.experiments.report.page import Background, group_page, run_page
from sunshower.experiments.report.recovery_chart import recovery_chart
from sunshower.experiments.report.series import make_series
from sunshower.experiments.report.sweep import Point, point, sweep_chart
from sunshower.experiments.report.timeline import timeline
from sunshower.experiments.runner.run_folders import HISTORY, REPORT, RESULTS, SUMMARY, RunFolder

_MOMENT_S = 0.02  # a fault that lasts no longer, such as a kill, is shown without its end


def write_report(folder: RunFolder, outcome: Outcome, history: History) -> None:
    """Write the charts and the page of one run. Raises ExperimentError."""
    charts = [timeline(make_series(history, outcome.seconds))]
    if outcome.recoveries:
        charts.append(recovery_chart(outcome.recoveries))
    steps = [_step(band) for band in history.faults]
    background = _background(folder, [*steps, *(f"not done: {one}" for one in outcome.undone)])
    _write(folder, charts, run_page(outcome, background, charts))


def remake(folder: RunFolder) -> Outcome:
    """Write the report of one run again, from its files, and return the outcome.

    If the history is cut or the run did not finish, the verdict is UNKNOWN at best. Raises
    ExperimentError if there is neither an outcome nor a history.
    """
    history, doubt = _history(folder)
    if (folder.path / RESULTS).is_file():
        outcome = folder.outcome
    elif history is None:
        raise ExperimentError(
            f"the run {folder.path} did not finish, and {doubt}: there is nothing to "
            f"report on. Run it again: {folder.plan['command']}"
        )
    else:
        outcome = _unfinished(folder, history)
    if doubt is not None:
        finding = Finding("history", Verdict.UNKNOWN, (doubt,))
        outcome = replace(outcome, findings=(*outcome.findings, finding))
    write_report(folder, outcome, history or History((), {}, cut=doubt))
    return outcome


def write_unfinished(folder: RunFolder) -> None:
    """Write the results (UNKNOWN) and the report of a run that an error ended."""
    history, doubt = _history(folder)
    history = history or History((), {}, cut=doubt)
    outcome = _unfinished(folder, history)
    folder.write(RESULTS, outcome.to_fields())
    write_report(folder, outcome, history)


def remake_all(group: RunFolder) -> None:
    """Write the reports of a group again; runs without files are left out."""
    for one in group.runs:
        with suppress(ExperimentError):
            remake(one)
    write_group_report(group)


def write_group_report(group: RunFolder) -> None:
    """Write the page and the summary of the finished runs of a group."""
    points = points_of(group)
    swept = list(group.plan["swept"]) or ["seed"]
    charts = [sweep_chart([one for _, one in points], name) for name in swept if points]
    background = _background(group)
    page = group_page(group.name, points, group.plan["parameters"], background, charts)
    _write(group, charts, page)
    if group.plan["ended"] is not None:
        rows = [_row(one) for one in group.runs if one.is_over]
        verdict = gravest(point.verdict for _, point in points)
        group.write(SUMMARY, {"experiment": group.name, "verdict": verdict, "runs": rows})


def points_of(group: RunFolder) -> list[tuple[str, Point]]:
    """Return the folder name and the result of each finished run of a group."""
    swept = list(group.plan["swept"])
    return [(one.path.name, point(one.outcome, swept)) for one in group.runs if one.is_over]


def figures_of_all(folder: RunFolder) -> dict[str, float]:
    """Return the figures of a run, or the medians of a group. Raises ExperimentError."""
    outcomes = [one.outcome for one in (folder.runs if folder.is_group else [folder])]
    found: dict[str, list[float]] = {}
    for outcome in outcomes:
        for name, value in {**outcome.figures, "seconds": outcome.seconds}.items():
            found.setdefault(name, []).append(value)
    return {name: median(values) for name, values in found.items()}


def _row(run: RunFolder) -> dict[str, Any]:
    outcome = run.outcome
    return {
        "folder": run.path.name,
        "seed": outcome.seed,
        "parameters": outcome.parameters,
        "verdict": outcome.verdict,
        "error": outcome.error,
        "figures": outcome.figures,
    }


def _history(folder: RunFolder) -> tuple[History | None, str | None]:
    """Return the history, or None if there is none, and what is wrong with it."""
    path = folder.path / HISTORY
    if not path.is_file():
        return None, f"it has no {HISTORY}"
    tasks = {int(id): name for id, name in folder.plan.get("tasks", {}).items()}
    with path.open(encoding="utf-8", errors="replace") as lines:
        history = from_lines(lines, str(path), tasks)
    return history, history.cut


def _unfinished(folder: RunFolder, history: History) -> Outcome:
    plan = folder.plan
    stopped = plan.get("stopped") or "the reason is unknown"
    reason = f"the run did not finish: {stopped}"
    return Outcome(
        **{
            name: plan[name] for name in ("experiment", "cluster", "seed", "parameters", "versions")
        },
        findings=(Finding("end", Verdict.UNKNOWN, (reason,)),),
        recoveries=recoveries(history),
        figures=figures_of(history) if history.entries else {},
        seconds=history.seconds,
        error=stopped,
    )


def _background(folder: RunFolder, steps: Sequence[str] = ()) -> Background:
    plan = folder.plan
    known = ("cluster", "topology", "layout", "begun", "ended", "stopped")
    facts = {name: plan[name] for name in known if plan.get(name) is not None}
    return Background(plan.get("about", ""), plan.get("command", ""), facts, steps)


def _write(folder: RunFolder, charts: Sequence[Chart], page: str) -> None:
    for chart in charts:
        folder.write(f"{chart.name}.svg", chart.svg)
        folder.write(f"{chart.name}.png", chart.png)
    folder.write(REPORT, page)


def _step(band: Band) -> str:
    """Format a fault: `4.000 s: pause relay[1], until 6.000 s`."""
    text = f"{band.begun_s:.3f} s: {band.words}"
    if band.ended_s is None:
        return f"{text}, and it did not end"
    lasted = band.ended_s - band.begun_s > _MOMENT_S
    return f"{text}, until {band.ended_s:.3f} s" if lasted else text
