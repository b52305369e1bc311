"""Writes runs of experiments for tests of the page: kept, broken, swept and unfinished."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from sunshower.experiments.outcome import Outcome, Recovery, Verdict
from sunshower.experiments.runner.run_folders import (
    RunFolder,
    member,
    new_folder,
    write_group_report,
    write_report,
)
from tests.experiments.report.samples import history, outcome

NOON = datetime(2026, 1, 31, 12, 0, 0, tzinfo=UTC)
KEPT, BROKEN = "kill-a-bolt/2026-01-31T12-00-00", "kill-a-bolt/2026-01-31T12-01-00"
SWEPT, UNFINISHED = "timeouts/2026-01-31T12-02-00", "slow-bolt/2026-01-31T12-03-00"
FOREIGN = "old/2026-01-31T12-04-00"  # of another release
FIGURES = {"emitted": 2_100.0, "messages": 2_000.0, "completed": 2_000.0, "replays": 100.0,
           "failed": 100.0, "duplicates": 4.0, "throughput": 199.9,
           "latency_p99_s": 0.42}  # fmt: skip


def make_runs(root: Path) -> None:
    """Write the runs below `root`, two of them with their charts and reports."""
    holding = replace(outcome(Verdict.HOLDS), experiment="kill-a-bolt", figures=FIGURES)
    recoveries = (Recovery("kill relay[0]", 2.0, 2.0, 3.5), Recovery("cut", 5.0, 6.0, None))
    lost = {**FIGURES, "completed": 1_983.0, "replays": 250.0}
    broken = replace(outcome(), experiment="kill-a-bolt", figures=lost, recoveries=recoveries)
    for minute, result in enumerate((holding, broken)):
        folder = _folder(root, result.experiment, minute)
        _finish(folder, result)
        write_report(folder, result, history())
    _sweep(root, holding)
    _folder(root, "slow-bolt", 3)
    foreign = _folder(root, "old", 4)
    foreign.write("plan.json", {"version": 999})


def _sweep(root: Path, holding: Outcome) -> None:
    group = _folder(root, "timeouts", 2, swept=["timeout_s"])
    for number, timeout_s in enumerate((1.0, 5.0), 1):
        result = replace(holding, experiment="timeouts", parameters={"timeout_s": timeout_s})
        folder = member(group, number)
        plan = {name: value for name, value in group.plan.items() if name != "swept"}
        folder.write("plan.json", {**plan, "parameters": result.parameters})
        _finish(folder, result)
    write_group_report(group)


def _folder(root: Path, name: str, minute: int, **plan: object) -> RunFolder:
    at = NOON + timedelta(minutes=minute)
    folder = new_folder(root, name, at)
    begun = at.isoformat(sep=" ", timespec="seconds")
    facts = {"experiment": name, "cluster": "sim", "seed": 7, "parameters": {"timeout_s": 5.0}}
    command = f"sunshower experiment run {name}.py --seed 7"
    ends = {"begun": begun, "ended": begun, "command": command, "about": "A bolt is killed."}
    graph = {"numbers": {"tasks": 1, "reads": []},
             "relay": {"tasks": 4, "reads": [["numbers", "fields(key)"]]},
             "sink": {"tasks": 2, "reads": [["relay", "shuffle"], ["numbers", "all"]]}}  # fmt: skip
    known = {"graph": graph, "commit": "0123456789ab+", "tasks": {}, "versions": {}}
    folder.write("plan.json", {**facts, **ends, **known, **plan})
    return folder


def _finish(folder: RunFolder, result: Outcome) -> None:
    folder.write("results.json", result.to_fields())
