"""Reads the runs of experiments that the page shows from their folders, without a cluster."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path, PurePosixPath
from typing import Any

from sunshower.errors import ExperimentError, SunshowerError
from sunshower.experiments.evidence.outcome import Outcome
from sunshower.experiments.report.page import counted, outcome_summary
from sunshower.experiments.runner.run_folders import PLAN, REPORT, RunFolder, run_paths
from sunshower.experiments.runner.run_reports import figures_of_all, points_of

LISTED_MAX = 200
EVIDENCE_MAX = 200  # lines of one checker
RECOVERIES_MAX = 50
MEMBERS_MAX = 200  # of a sweep
_PLAN_FIELDS = ("about", "cluster", "topology", "layout", "seed", "parameters", "command", "begun",
                "ended")  # fmt: skip


class ExperimentFolders:
    """The runs below a folder. A run has the name NAME/TIME, and one of a sweep NAME/TIME/001.

    Called on several threads.
    """

    def __init__(self, root: Path) -> None:
        self._root = root

    def experiments(self) -> dict[str, Any]:
        """The newest runs, LISTED_MAX at most, and how many there are."""
        paths = run_paths(self._root)
        rows = [self._row(path) for path in paths[:LISTED_MAX]]
        return {"folder": str(self._root), "count": len(paths), "runs": rows}

    def experiment(self, run: str) -> dict[str, Any]:
        """What the report of a run or a group has. Raises SunshowerError."""
        folder = self._folder(run)
        facts = {
            "run": run,
            "experiment": folder.name,
            "is_group": folder.is_group,
            **{name: folder.plan.get(name) for name in _PLAN_FIELDS},
            "verdict": folder.verdict,
            "charts": sorted(path.stem for path in folder.path.glob("*.png")),
            "has_report": (folder.path / REPORT).is_file(),
        }
        if folder.is_group:
            return {**facts, **_group(folder)}
        return {**facts, **(_outcome(folder.outcome) if folder.is_over else _unfinished(folder))}

    def chart(self, run: str, name: str) -> bytes:
        """A chart of a run as PNG. Raises SunshowerError."""
        folder = self._folder(run)
        for path in folder.path.glob("*.png"):
            if path.stem == name:
                return path.read_bytes()
        raise ExperimentError(f"the run {run} has no chart {name!r}")

    def report(self, run: str) -> bytes:
        """The report of a run, an HTML page. Raises SunshowerError."""
        path = self._folder(run).path / REPORT
        if not path.is_file():
            raise ExperimentError(
                f"the run {run} has no {REPORT}; make one with: sunshower experiment show "
                f"{path.parent} --report"
            )
        return path.read_bytes()

    def _row(self, path: Path) -> dict[str, Any]:
        run = path.relative_to(self._root).as_posix()
        folder = RunFolder(path)
        try:
            members = len(folder.runs) if folder.is_group else None
            facts = {name: folder.plan[name] for name in ("experiment", "cluster", "seed", "begun")}
            return {"run": run, **facts, "members": members, "verdict": folder.verdict}
        except SunshowerError as error:
            return {"run": run, "experiment": path.parent.name, "error": str(error)}

    def _folder(self, run: str) -> RunFolder:
        """The folder of a run below the root, and no other folder."""
        parts = PurePosixPath(run).parts
        path = self._root.joinpath(*parts)
        is_name = len(parts) in (2, 3) and not {"..", "/"} & set(parts) and "\0" not in run
        if (
            is_name
            and (path / PLAN).is_file()
            and path.resolve().is_relative_to(self._root.resolve())
        ):
            return RunFolder(path)
        raise ExperimentError(f"there is no run {run!r} in {self._root}")


def _outcome(outcome: Outcome) -> dict[str, Any]:
    findings = [
        {
            **asdict(finding),
            "evidence": finding.evidence[:EVIDENCE_MAX],
            "evidence_count": len(finding.evidence),
        }
        for finding in outcome.findings
    ]
    return {
        "summary": outcome_summary(outcome),
        "findings": findings,
        "recoveries": [
            {**asdict(one), "seconds": one.seconds} for one in outcome.recoveries[:RECOVERIES_MAX]
        ],
        "recovery": {
            "count": len(outcome.recoveries),
            "longest_s": outcome.recovery_s,
            "never": outcome.never_recovered,
        },
        "figures": {**outcome.figures, "seconds": outcome.seconds},
        "versions": outcome.versions,
        "undone": outcome.undone,
    }


def _unfinished(folder: RunFolder) -> dict[str, Any]:
    try:
        folder.outcome  # noqa: B018 - its error says why there is none, and the way out
    except ExperimentError as error:
        return {"error": str(error)}
    return {"error": None}


def _group(folder: RunFolder) -> dict[str, Any]:
    points = points_of(folder)
    rows = [{"run": name, **asdict(point)} for name, point in points]
    known = [point.recovery_s for _, point in points if point.recovery_s is not None]
    return {
        "summary": counted([point.verdict for _, point in points], "run"),
        "members": rows[:MEMBERS_MAX],
        "recovery": {
            "count": len(known),
            "longest_s": max(known, default=None),
            "never": sum(not point.recovers for _, point in points),
        },
        "figures": figures_of_all(folder) if folder.is_over else {},
    }
