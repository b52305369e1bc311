"""Tests of run folders: complete, cut, interrupted, or invalid."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from sunshower.errors import ExperimentError, VersionMismatch
from sunshower.experiments.event_history import History, to_lines
from sunshower.experiments.outcome import Outcome, Verdict
from sunshower.experiments.runner.run_folders import (
    RunFolder,
    all_runs,
    figures_of_all,
    find,
    member,
    new_folder,
    remake,
    write_group_report,
)
from tests.cli.conftest import PrintedBy, Write
from tests.experiments.report.samples import history, outcome
from tests.experiments.runner.experiment_files import failing, latest, read

NOON = datetime(2026, 1, 31, 12, 0, 0, tzinfo=UTC)
PLAN = {
    "experiment": "kill & <recover>", "cluster": "sim", "seed": 7, "parameters": {"timeout_s": 5.0},
    "command": "sunshower experiment run x.py --seed 7", "begun": "2026-01-31 12:00:00",
    "ended": None, "tasks": {"1": "numbers[0]"}, "versions": {}, "about": "",
}  # fmt: skip
Make = Callable[..., RunFolder]


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    """Write the folder of a finished or an unfinished run."""
    monkeypatch.chdir(tmp_path)

    def run(
        name: str = "one",
        result: Outcome | None = None,
        past: History | None = None,
        folder: RunFolder | None = None,
        **plan: object,
    ) -> RunFolder:
        folder = folder or new_folder(Path("experiments"), name, NOON)
        folder.write("plan.json", {**PLAN, "experiment": name, **plan})
        if past is not None:
            folder.write("history.jsonl", "".join(to_lines(past)))
        if result is not None:
            folder.write("results.json", result.to_fields())
        return folder

    return run


# ---- names and paths ----------------------------------------------------------------------------


def test_a_link_leads_to_the_latest_run_of_an_experiment(make: Make) -> None:
    first, second = make("one"), make("one")
    assert first.path.name == "2026-01-31T12-00-00"
    assert second.path.name == "2026-01-31T12-00-00-2"
    link = Path("experiments/one/latest")
    assert link.is_symlink()
    assert link.resolve() == second.path.resolve()


def test_an_experiment_whose_name_is_a_sentence_has_a_folder(make: Make) -> None:
    assert make("../kill a/bolt: 50 %").path.parts[:2] == ("experiments", "kill-a-bolt-50")
    assert make("…").path.parts[:2] == ("experiments", "experiment")


def test_the_outcome_is_read_as_it_was_written(make: Make) -> None:
    assert make(result=outcome()).outcome == outcome()


def test_runs_are_found_by_name_time_and_path(make: Make) -> None:
    old, new = make("one"), make("one", begun="2026-01-31 12:00:01")
    other = make("two", begun="2026-01-30 12:00:00")
    root = Path("experiments")
    assert [run.path.name for run in all_runs(root)] == [
        new.path.name, old.path.name, other.path.name
    ]  # fmt: skip
    assert find(root, None).path == new.path
    assert find(root, "one").path.name == new.path.name
    assert find(root, f"one/{old.path.name}").path == old.path
    assert find(root, str(other.path)).path == other.path


def test_an_unknown_name_is_refused_with_the_known_ones(make: Make) -> None:
    make("one"), make("two")
    with pytest.raises(ExperimentError, match=r"there is no run 'three' in .*: one, two"):
        find(Path("experiments"), "three")


def test_a_folder_that_is_no_run_is_refused(make: Make, tmp_path: Path) -> None:
    (tmp_path / "pictures").mkdir()
    with pytest.raises(ExperimentError, match=r"pictures is not a run: it has no plan\.json"):
        find(Path("experiments"), "pictures")


@pytest.mark.parametrize("text", ["{", "[]", '{"experiment": "x"}'])
def test_an_invalid_plan_file_is_refused(text: str, make: Make) -> None:
    folder = make()
    (folder.path / "plan.json").write_text(text)
    with pytest.raises(ExperimentError, match=r"plan\.json"):
        find(Path("experiments"), "one").plan  # noqa: B018


def test_a_folder_of_another_release_is_refused(make: Make) -> None:
    folder = make(version=9)
    with pytest.raises(VersionMismatch, match=r"one/\S+ has version 9, and .* version 1: read it"):
        find(Path("experiments"), "one").plan  # noqa: B018
    folder.write("plan.json", {**PLAN, "experiment": "one"})  # older plans have no version
    assert find(Path("experiments"), "one").name == "one"


@pytest.mark.parametrize("text", ["{", "{}", '{"findings": 3}'])
def test_invalid_results_are_refused(text: str, make: Make) -> None:
    folder = make()
    folder.write("results.json", text)
    with pytest.raises(ExperimentError, match=r"results\.json"):
        folder.outcome  # noqa: B018


# ---- unfinished runs ----------------------------------------------------------------------------


def test_an_unfinished_run_is_listed_and_shown_as_unfinished(
    make: Make, printed_by: PrintedBy
) -> None:
    make(stopped="interrupted")
    assert "did not end (interrupted)" in printed_by("experiment", "list").out
    error = printed_by("experiment", "show", status=1).err
    assert "did not finish" in error
    assert PLAN["command"] in error


def test_there_is_no_report_of_a_run_without_results_and_history(
    make: Make, printed_by: PrintedBy
) -> None:
    make()
    assert "nothing to report on" in printed_by("experiment", "show", "--report", status=1).err


def test_an_unfinished_run_with_a_history_has_a_report_marked_unknown(make: Make) -> None:
    past = history()
    folder = make(past=History(past.entries, past.tasks, cut="x"), stopped="interrupted")
    remade = remake(folder)
    assert remade.verdict is Verdict.UNKNOWN
    assert remade.figures["completed"] == 1_000
    text = (folder.path / "report.html").read_text()
    assert "?&nbsp;UNKNOWN" in text
    assert "did not finish: interrupted" in text


def test_a_history_cut_in_the_middle_of_a_line_makes_holds_unknown(make: Make) -> None:
    folder = make(result=outcome(Verdict.HOLDS), past=history())
    file = folder.path / "history.jsonl"
    whole = file.read_bytes()
    assert remake(folder).verdict is Verdict.HOLDS
    file.write_bytes(whole[: len(whole) // 2])
    remade = remake(folder)
    assert remade.verdict is Verdict.UNKNOWN
    assert "history.jsonl breaks off at line" in remade.findings[-1].reasons[0]
    assert "breaks off" in (folder.path / "report.html").read_text()


def test_a_broken_run_stays_broken_without_its_history(make: Make) -> None:
    remade = remake(make(result=outcome(Verdict.BROKEN)))
    assert remade.verdict is Verdict.BROKEN
    assert remade.findings[-1].reasons == ("it has no history.jsonl",)


def test_a_line_of_history_that_is_no_event_is_named(make: Make) -> None:
    folder = make(result=outcome(), past=history())
    file = folder.path / "history.jsonl"
    file.write_text("nonsense\n" + file.read_text())
    with pytest.raises(ExperimentError, match=r"history\.jsonl, line 1: "):
        remake(folder)


def test_an_interrupt_keeps_the_files_so_far(
    write: Write, printed_by: PrintedBy, make: Make, tmp_path: Path
) -> None:
    plan = "[*at(0.2, kill(task('relay', 0))), *at(0.5, Fails(KeyboardInterrupt()))]"
    printed = printed_by("experiment", "run", write(failing(plan)), status=130)
    folder = latest(tmp_path, "failing")
    assert f"Interrupted. The files so far: experiments/failing/{folder.name}" in printed.err
    assert read(folder, "plan.json")["stopped"] == "interrupted"
    assert read(folder, "plan.json")["ended"] is None
    assert not (folder / "results.json").exists()
    events = [json.loads(line) for line in (folder / "history.jsonl").read_text().splitlines()]
    faults = [(line["what"], line["fault"]) for line in events if "fault" in line]
    assert faults == [("begun", "kill relay[0]"), ("ended", "kill relay[0]")]
    out = printed_by("experiment", "show", "--report").out
    assert "? UNKNOWN" in out
    assert "breaks off" in out


def test_an_interrupted_sweep_reports_on_what_was_done(
    write: Write, printed_by: PrintedBy, make: Make, tmp_path: Path
) -> None:
    second = "kill(component('relay')) if other == 1 else Fails(KeyboardInterrupt())"
    file = write(failing(f"at(0.05, {second})"))
    printed_by("experiment", "run", file, "--sweep", "other=1,2,3", status=130)
    group = latest(tmp_path, "failing")
    assert read(group, "plan.json")["stopped"] == "interrupted"
    assert not (group / "summary.json").exists()
    assert (group / "001" / "report.html").is_file()
    assert "001/report.html" in (group / "report.html").read_text()
    assert "002/report.html" not in (group / "report.html").read_text()
    assert "did not end" in printed_by("experiment", "show").out


# ---- several runs -------------------------------------------------------------------------------

SECOND = "at(0.2, Fails({error}) if other == 2 else kill(component('relay')))"


def test_a_run_of_several_that_ends_with_an_error_is_unknown_and_the_others_continue(
    write: Write, printed_by: PrintedBy, make: Make, tmp_path: Path
) -> None:
    file = write(failing(SECOND.format(error="ServerError('no broker')")))
    printed = printed_by("experiment", "run", file, "--sweep", "other=1,2,3", status=1)
    assert "run 2 of 3: other=2, seed 0: ServerError: no broker" in printed.err
    assert "Traceback" not in printed.err
    assert "002: no broker" in printed.out
    assert "Of 3 runs: 2 HOLDS, 1 UNKNOWN." in printed.out
    group = latest(tmp_path, "failing")
    assert [run["error"] for run in read(group, "summary.json")["runs"]] == [
        None,
        "no broker",
        None,
    ]
    assert read(group / "002", "plan.json")["stopped"] == "no broker"
    assert "did not finish: no broker" in (group / "002" / "report.html").read_text()
    assert "no broker" in (group / "report.html").read_text()


def test_an_unexpected_error_is_shown_with_its_traceback(
    write: Write, printed_by: PrintedBy, make: Make, tmp_path: Path
) -> None:
    file = write(failing(SECOND.format(error="OSError('gone')")))
    printed = printed_by("experiment", "run", file, "--sweep", "other=2,3", status=1)
    assert "in begin" in printed.err
    assert "001: OSError: gone" in printed.out
    assert "Of 2 runs: 1 HOLDS, 1 UNKNOWN." in printed.out


def test_the_figures_of_a_group_are_medians_and_its_verdict_is_the_worst(
    make: Make, printed_by: PrintedBy
) -> None:
    group = make("many", swept={}, parameters={})
    for number, completed in enumerate((10, 30, 50), start=1):
        verdict = Verdict.BROKEN if number == 2 else Verdict.HOLDS
        base = outcome(verdict, seed=number)
        result = Outcome(**{**base.__dict__, "figures": {"completed": completed}})
        make("many", result, folder=member(group, number))
    group.write("plan.json", {**group.plan, "ended": "now"})
    write_group_report(group)
    assert figures_of_all(group)["completed"] == 30
    assert group.verdict is Verdict.BROKEN
    assert read(group.path, "summary.json")["verdict"] == "BROKEN"
    assert (group.path / "by-seed.svg").is_file()
    assert "(3 runs)" in printed_by("experiment", "list").out
    assert len(all_runs(Path("experiments"))) == 1


def test_a_file_is_written_as_a_whole_or_not_at_all(make: Make) -> None:
    folder = make(result=outcome())
    with pytest.raises(AttributeError):
        folder.write("results.json", None)  # type: ignore[arg-type]
    assert json.loads((folder.path / "results.json").read_text())["seed"] == 7
