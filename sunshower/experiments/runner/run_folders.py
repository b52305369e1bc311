"""The folders of experiment runs on disk: creates, reads and finds them.

    experiments/NAME/TIME/           one run; of a sweep or --repeat, TIME/001/, TIME/002/ …
        plan.json                    the request; written before the run starts
        history.jsonl                the events of the run
        results.json                 the outcome; an unfinished run has none
        report.html, *.svg, *.png
    experiments/NAME/latest          → the newest TIME

The folder of a sweep has a plan.json and a report.html of its own, and summary.json.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from pathlib import Path
from statistics import median
from typing import Any

from sunshower import versions
from sunshower.errors import ExperimentError
from sunshower.experiments.checkers import recoveries
from sunshower.experiments.event_history import Band, History, from_lines, to_lines
from sunshower.experiments.experiment import figures_of
from sunshower.experiments.outcome import Finding, Outcome, Verdict, gravest
from sunshower.experiments.report.drawing import (
    Background,
    Chart,
    Point,
    group_page,
    make_series,
    point,
    recovery_chart,
    run_page,
    sweep_chart,
    timeline,
    topology_chart,
)
from sunshower.texts import json_of, utf8

PLAN, HISTORY, RESULTS = "plan.json", "history.jsonl", "results.json"
SUMMARY, REPORT, LATEST = "summary.json", "report.html", "latest"
_PLAN_NAMES = ("experiment", "cluster", "seed", "parameters", "command", "begun", "ended")
_TIME = "%Y-%m-%dT%H-%M-%S"


@dataclass(frozen=True)
class RunFolder:
    """A folder with a plan.json: of one run, or of a group of runs."""

    path: Path

    @cached_property
    def plan(self) -> dict[str, Any]:
        """The content of plan.json. Raises ExperimentError if it cannot be read, VersionMismatch if
        another release wrote the folder."""
        content = _read(self.path / PLAN)
        remedy = "read it with the release that wrote it, or run the experiment again"
        versions.check(str(self.path), content.get("version", 1), versions.RUN_FOLDER, remedy)
        if missing := [name for name in _PLAN_NAMES if name not in content]:
            raise ExperimentError(
                f"{self.path / PLAN} is not what a run writes: it has no {', '.join(missing)}"
            )
        return content

    @property
    def name(self) -> str:
        return str(self.plan["experiment"])

    @property
    def runs(self) -> list[RunFolder]:
        """The runs of a group; a single run has none."""
        return [RunFolder(file.parent) for file in sorted(self.path.glob(f"*/{PLAN}"))]

    @property
    def is_group(self) -> bool:
        return "swept" in self.plan

    @property
    def is_over(self) -> bool:
        return (self.path / (SUMMARY if self.is_group else RESULTS)).is_file()

    @property
    def verdict(self) -> Verdict | None:
        """The verdict of the run or the group; None if it did not finish."""
        if not self.is_over:
            return None
        if self.is_group:
            return gravest(run.verdict or Verdict.UNKNOWN for run in self.runs)
        return self.outcome.verdict

    @cached_property
    def outcome(self) -> Outcome:
        """The outcome of a single run. Raises ExperimentError if it did not finish."""
        if not (self.path / RESULTS).is_file():
            raise ExperimentError(
                f"the run {self.path} did not finish: it has no {RESULTS}. Make "
                f"a report so far: sunshower experiment show {self.path} --report. Run it "
                f"again: {self.plan['command']}"
            )
        path = self.path / RESULTS
        try:
            return Outcome.from_fields(_read(path))
        except (KeyError, TypeError, ValueError) as error:
            raise ExperimentError(f"{path} is not what a run writes: {error!r}") from None

    @property
    def results(self) -> dict[str, Any]:
        """The content of results.json, or of a group's summary.json."""
        return _read(self.path / (SUMMARY if self.is_group else RESULTS))

    def write(self, name: str, content: str | bytes | Mapping[str, Any]) -> None:
        """Write one of its files atomically; a mapping is written as JSON."""
        path, draft = self.path / name, self.path / f".{name}.draft"
        if isinstance(content, Mapping):
            content = json_of(content, indent=2, ensure_ascii=False) + "\n"
        draft.write_bytes(content if isinstance(content, bytes) else utf8(content))
        draft.replace(path)
        self.__dict__.pop("plan", None)  # it may have changed

    def write_history(self, history: History) -> None:
        """Write history.jsonl line by line, so that a long history is not in memory twice."""
        with (self.path / HISTORY).open("w", encoding="utf-8") as file:
            file.writelines(to_lines(history))


def new_folder(root: Path, experiment: str, now: datetime) -> RunFolder:
    """Create the folder of a run that begins now, and point `latest` to it."""
    home = root / _file_name(experiment)
    stem = now.strftime(_TIME)
    home.mkdir(parents=True, exist_ok=True)
    for name in (stem, *(f"{stem}-{number}" for number in range(2, 1000))):
        try:
            (home / name).mkdir()
        except FileExistsError:
            continue
        draft = home / f".{LATEST}-{name}"
        draft.symlink_to(name)
        draft.replace(home / LATEST)
        return RunFolder(home / name)
    raise ExperimentError(f"{home} has too many runs of this second; give another --folder")


def member(group: RunFolder, number: int) -> RunFolder:
    """Create the folder of one run of a group; the first has number 1."""
    path = group.path / f"{number:03}"
    path.mkdir()
    return RunFolder(path)


def run_paths(root: Path) -> list[Path]:
    """Return the folders of all runs and groups below `root`, the newest first by their names,
    without reading them."""
    folders = (path.parent for path in root.glob(f"*/*/{PLAN}"))
    runs = [path for path in folders if not path.is_symlink()]
    return sorted(runs, key=lambda path: path.name, reverse=True)


def all_runs(root: Path) -> list[RunFolder]:
    """Return all runs and groups below `root`, the newest first."""
    runs = [RunFolder(path) for path in run_paths(root)]
    return sorted(
        runs, key=lambda item: (str(item.plan.get("begun")), item.path.name), reverse=True
    )


def find(root: Path, run: str | None) -> RunFolder:
    """Return the run that `run` names: a folder, NAME/TIME, NAME (the latest) or None (the newest).

    Raises ExperimentError.
    """
    if run is None:
        runs = all_runs(root)
        if not runs:
            raise ExperimentError(
                f"{root} has no run yet; make one with: sunshower experiment run FILE.py"
            )
        return runs[0]
    for place in (Path(run), root / run, root / _file_name(run)):
        if (place / PLAN).is_file():
            return RunFolder(place.resolve() if place.is_symlink() else place)
        if (place / LATEST / PLAN).is_file():
            return RunFolder((place / LATEST).resolve())
    if Path(run).is_dir():
        raise ExperimentError(
            f"{run} is not a run: it has no {PLAN}. `sunshower experiment list` shows all runs"
        )
    names = sorted({run.path.parent.name for run in all_runs(root)})
    experiments = f"its experiments are: {', '.join(names)}" if names else "it has no runs at all"
    raise ExperimentError(f"there is no run {run!r} in {root}; {experiments}")


def find_both(root: Path, first: str, other: str) -> tuple[RunFolder, RunFolder]:
    """Return two runs. Raises ExperimentError, which names each run that is missing."""
    runs, errors = [], []
    for run in (first, other):
        try:
            runs.append(find(root, run))
        except ExperimentError as error:
            errors.append(str(error))
    if errors:
        raise ExperimentError("; and ".join(dict.fromkeys(errors)))
    return runs[0], runs[1]


def _read(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ExperimentError(f"{path} cannot be read: {error}") from None
    if not isinstance(content, dict):
        raise ExperimentError(f"{path} is not what a run writes: it holds no object")
    return content


def _file_name(experiment: str) -> str:
    """Return the experiment's name as the name of a folder."""
    return re.sub(r"[^\w.-]+", "-", experiment).strip("-.") or "experiment"


# ---- run reports ---------------------------------------------------------------------------------

_MOMENT_S = 0.02  # a fault that lasts no longer, such as a kill, is shown without its end


def write_report(folder: RunFolder, outcome: Outcome, history: History) -> None:
    """Write the charts and the page of one run. Raises ExperimentError."""
    charts = [timeline(make_series(history, outcome.seconds))]
    if graph := folder.plan.get("graph"):
        charts.insert(0, topology_chart(graph))
    if outcome.recoveries:
        charts.append(recovery_chart(outcome.recoveries))
    steps = [_step(band) for band in history.faults]
    background = _background(folder, [*steps, *(f"not done: {step}" for step in outcome.undone)])
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
    for run in group.runs:
        with suppress(ExperimentError):
            remake(run)
    write_group_report(group)


def write_group_report(group: RunFolder) -> None:
    """Write the page and the summary of the finished runs of a group."""
    points = points_of(group)
    swept = list(group.plan["swept"]) or ["seed"]
    charts = [sweep_chart([run for _, run in points], name) for name in swept if points]
    background = _background(group)
    page = group_page(group.name, points, group.plan["parameters"], background, charts)
    _write(group, charts, page)
    if group.plan["ended"] is not None:
        rows = [_row(run) for run in group.runs if run.is_over]
        verdict = gravest(point.verdict for _, point in points)
        group.write(SUMMARY, {"experiment": group.name, "verdict": verdict, "runs": rows})


def points_of(group: RunFolder) -> list[tuple[str, Point]]:
    """Return the folder name and the result of each finished run of a group."""
    swept = list(group.plan["swept"])
    return [(run.path.name, point(run.outcome, swept)) for run in group.runs if run.is_over]


def figures_of_all(folder: RunFolder) -> dict[str, float]:
    """Return the figures of a run, or the medians of a group. Raises ExperimentError."""
    outcomes = [run.outcome for run in (folder.runs if folder.is_group else [folder])]
    values_of: dict[str, list[float]] = {}
    for outcome in outcomes:
        for name, value in {**outcome.figures, "seconds": outcome.seconds}.items():
            values_of.setdefault(name, []).append(value)
    return {name: median(values) for name, values in values_of.items()}


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
    return Background(plan.get("about", ""), plan.get("command", ""), facts_of(plan), steps)


def facts_of(plan: Mapping[str, Any]) -> dict[str, Any]:
    """Return where and when a run was made, and of what, as far as its plan.json has it."""
    known = ("cluster", "seed", "topology", "layout", "commit", "begun", "ended", "stopped")
    return {name: plan[name] for name in known if plan.get(name) is not None}


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
