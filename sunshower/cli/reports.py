"""Reports into run folders: after a run, or again from what it has left there."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from statistics import median
from typing import Any

from sunshower.cli.folders import HISTORY, REPORT, RESULTS, SUMMARY, RunFolder
from sunshower.errors import ExperimentError
from sunshower.faults.checkers.healing import recoveries
from sunshower.faults.figures import figures_of
from sunshower.faults.history import Band, History
from sunshower.faults.lines import from_lines
from sunshower.faults.outcome import Finding, Outcome, Verdict, gravest
from sunshower.faults.report.drawing import Chart
from sunshower.faults.report.page import Background, group_page, run_page
from sunshower.faults.report.recovery import recovery_chart
from sunshower.faults.report.series import make_series
from sunshower.faults.report.sweep import Point, point, sweep_chart
from sunshower.faults.report.timeline import timeline

_MOMENT_S = 0.02  # a kill takes no longer


def write_report(folder: RunFolder, outcome: Outcome, history: History) -> None:
    """Draw the charts of one run, and write its page. Raises ExperimentError."""
    charts = [timeline(make_series(history, outcome.seconds))]
    if outcome.recoveries:
        charts.append(recovery_chart(outcome.recoveries))
    steps = [_step(band) for band in history.faults]
    background = _background(folder, [*steps, *(f"not done: {one}" for one in outcome.undone)])
    _write(folder, charts, run_page(outcome, background, charts))


def remake(folder: RunFolder) -> Outcome:
    """Make the report of one run again, from its files; returns what it says.

    A history that is cut, or a run that did not come to its end, makes the verdict UNKNOWN at best.
    Raises ExperimentError where there is nothing to report on.
    """
    history, doubt = _history(folder)
    if (folder.path / RESULTS).is_file():
        outcome = folder.outcome
    elif history is None:
        raise ExperimentError(
            f"the run {folder.path} did not come to its end, and {doubt}: there is nothing to "
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
    """Results and report of a run that an error has ended, from what there is: UNKNOWN."""
    history, doubt = _history(folder)
    history = history or History((), {}, cut=doubt)
    outcome = _unfinished(folder, history)
    folder.write(RESULTS, outcome.to_fields())
    write_report(folder, outcome, history)


def remake_all(group: RunFolder) -> None:
    """Make the reports of several runs again; those of which there is nothing are left out."""
    for one in group.runs:
        with suppress(ExperimentError):
            remake(one)
    write_group_report(group)


def write_group_report(group: RunFolder) -> None:
    """The page and the summary of several runs, of those that came to their end."""
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
    """The runs of a group that came to their end: their folders' names, and what they came to."""
    swept = list(group.plan["swept"])
    return [(one.path.name, point(one.outcome, swept)) for one in group.runs if one.is_over]


def figures_of_all(folder: RunFolder) -> dict[str, float]:
    """The figures of a run; of several, their medians. Raises ExperimentError."""
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
    """What is there of a history, and what is wrong with it."""
    path = folder.path / HISTORY
    if not path.is_file():
        return None, f"it has no {HISTORY}"
    tasks = {int(id): name for id, name in folder.plan.get("tasks", {}).items()}
    with path.open(encoding="utf-8", errors="replace") as lines:
        history = from_lines(lines, str(path), tasks)
    return history, history.cut


def _unfinished(folder: RunFolder, history: History) -> Outcome:
    plan = folder.plan
    stopped = plan.get("stopped") or "nobody wrote down why"
    return Outcome(
        plan["experiment"],
        plan["cluster"],
        plan["seed"],
        plan["parameters"],
        (Finding("end", Verdict.UNKNOWN, (f"the run did not come to its end: {stopped}",)),),
        recoveries(history),
        figures_of(history) if history.entries else {},
        history.seconds,
        plan["versions"],
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
    """A fault as it was: `4.000 s: pause relay[1], until 6.000 s`."""
    said = f"{band.begun_s:.3f} s: {band.words}"
    if band.ended_s is None:
        return f"{said}, and it did not end"
    lasted = band.ended_s - band.begun_s > _MOMENT_S
    return f"{said}, until {band.ended_s:.3f} s" if lasted else said
