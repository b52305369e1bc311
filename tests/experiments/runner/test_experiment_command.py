"""Tests of `sunshower experiment`: its folders, reports and tables; interrupts, hashes."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from sunshower.experiments import Experiment, relayed
from sunshower.experiments.runner.experiment_runner import RunRequest, Variant
from tests.cli.conftest import PrintedBy, Start, Write, read_until, signal_like_a_terminal
from tests.conftest import Sunshower
from tests.experiments.runner.experiment_files import BROKEN, HOLDING, PEACEFUL, latest, read

Capture = pytest.CaptureFixture[str]
MEASURED = ["recovery", "throughput", "replays", "duplicates"]


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")


def test_a_run_leaves_a_folder_with_all_files(
    write: Write, printed_by: PrintedBy, tmp_path: Path, drawn: None
) -> None:
    out = printed_by("experiment", "run", write(HOLDING), "--seed", 3).out
    folder = latest(tmp_path, "kill-a-relay")
    assert {path.name for path in folder.iterdir()} == {
        *("plan.json", "history.jsonl", "results.json", "report.html"),
        *("timeline.svg", "timeline.png", "recovery.svg", "recovery.png"),
        *("topology.svg", "topology.png"),
    }
    plan, results = read(folder, "plan.json"), read(folder, "results.json")
    assert (plan["experiment"], plan["cluster"], plan["seed"]) == ("kill a relay", "sim", 3)
    assert plan["parameters"] == {"total": 200, "kill_every_s": 0.4, "timeout_s": 5.0}
    assert plan["steps"][0]["fault"] == "kill any relay"
    assert plan["begun"] <= plan["ended"]
    assert {id: component["tasks"] for id, component in plan["graph"].items()}.keys() >= {"relay"}
    assert plan["commit"] is None  # the folder is in no repository
    assert results["verdict"] == "HOLDS"
    assert results["figures"]["completed"] == 200
    assert results["versions"]["sunshower"] == "0.1.0"
    assert (folder / "history.jsonl").read_text().splitlines()[-1].endswith('"what": "over"}')
    assert "at-least-once   ✔ HOLDS" in out
    assert re.search(r"^ completed +200", out, re.MULTILINE)
    assert f"The report: experiments/kill-a-relay/{folder.name}/report.html" in out
    text = (folder / "report.html").read_text()
    assert "http://" not in text, "the report loads nothing"
    assert "https://" not in text
    assert text.count("<svg") == 3
    assert "✔&nbsp;HOLDS" in text
    assert "--cluster sim --seed 3" in text


def test_a_broken_guarantee_sets_the_exit_status_and_its_evidence_is_escaped(
    write: Write, printed_by: PrintedBy, tmp_path: Path
) -> None:
    assert "<b>lost</b>" in printed_by("experiment", "run", write(BROKEN), status=1).out
    text = (latest(tmp_path, "broken") / "report.html").read_text()
    assert "<b>lost" not in text
    assert "relay[0] &lt;i&gt;had it last" in text


def test_a_run_without_faults_proves_nothing(write: Write, printed_by: PrintedBy) -> None:
    assert "? UNKNOWN" in printed_by("experiment", "run", write(PEACEFUL), status=1).out


def test_standard_output_has_only_json(write: Write, printed_by: PrintedBy) -> None:
    fields = json.loads(printed_by("experiment", "run", write(HOLDING), "--json").out)
    assert fields["verdict"] == "HOLDS"
    assert fields["findings"][0]["checker"] == "at-least-once"
    assert Path(fields["folder"], "report.html").is_file()


def test_the_command_in_the_plan_makes_the_same_run_again(
    write: Write, sunshower: Sunshower, tmp_path: Path
) -> None:
    arguments = ("--seed", 5, "--set", "total=80", "--set", "kill_every_s=0.1")
    sunshower("experiment", "run", write(HOLDING), *arguments, "--folder", "my own runs")
    link = tmp_path / "my own runs/kill-a-relay/latest"
    first = link.resolve()
    sunshower(*shlex.split(read(first, "plan.json")["command"])[1:])
    second = link.resolve()
    assert first != second
    assert (first / "history.jsonl").read_bytes() == (second / "history.jsonl").read_bytes()


def test_the_command_names_the_ray_that_was_used() -> None:
    experiment = Experiment(name="x", topology=relayed, plan=lambda: (), checkers=())
    request = RunRequest("a file.py", "ray", "10.0.0.1:6379")
    assert request.command(experiment, Variant({}, 3)) == (
        "sunshower experiment run 'a file.py' --cluster ray --seed 3 --address 10.0.0.1:6379"
    )


def test_a_sweep_has_a_folder_for_each_run_and_a_report_of_all(
    write: Write, printed_by: PrintedBy, tmp_path: Path
) -> None:
    file = write(HOLDING)
    arguments = ("--sweep", "kill_every_s=0.2,0.4", "--set", "total=100", "--repeat", 2)
    out = printed_by("experiment", "run", file, *arguments).out
    group = latest(tmp_path, "kill-a-relay")
    assert sorted(path.name for path in group.iterdir() if path.is_dir()) == [
        *("001", "002", "003", "004")
    ]
    runs = read(group, "summary.json")["runs"]
    chosen = [(run["parameters"]["kill_every_s"], run["seed"]) for run in runs]
    assert chosen == [(0.2, 0), (0.2, 1), (0.4, 0), (0.4, 1)]
    text = (group / "report.html").read_text()
    assert 'href="003/report.html"' in text
    assert (group / "by-kill_every_s.png").is_file()
    assert (group / "003" / "report.html").is_file()
    assert "Of 4 runs: 4 HOLDS." in out
    command = read(group / "003", "plan.json")["command"]
    assert "--seed 0" in command
    assert "--set kill_every_s=0.4" in command


def test_an_experiment_runs_its_own_sweep_unless_the_parameter_is_set(
    write: Write, printed_by: PrintedBy
) -> None:
    file = write(HOLDING.replace("checkers=(At", 'sweep={"total": [40, 80]}, checkers=(At'))
    command = ("experiment", "run", file, "--json")  # the runs are over before the first kill
    assert len(json.loads(printed_by(*command, status=1).out)["runs"]) == 2
    fields = json.loads(printed_by(*command, "--set", "total=40", status=1).out)
    assert fields["parameters"]["total"] == 40


def test_a_table_of_runs_with_one_seed_fits_into_80_columns(
    write: Write, printed_by: PrintedBy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    file = write(HOLDING)
    arguments = ("--sweep", "timeout_s=4,5", "--set", "total=100")
    out = printed_by("experiment", "run", file, *arguments).out
    assert "kill a relay  ·  sim  ·  seed 0" in out
    (heading,) = (line.split() for line in out.splitlines() if "timeout_s" in line)
    assert heading == ["run", "timeout_s", "verdict", *MEASURED]


def test_runs_are_listed_shown_and_compared(
    write: Write, printed_by: PrintedBy, tmp_path: Path
) -> None:
    printed_by("experiment", "run", write(HOLDING), "--set", "total=100")
    printed_by("experiment", "run", write(BROKEN), status=1)

    out = printed_by("experiment", "list").out
    assert out.index("broken") < out.index("kill a relay")
    assert "✘ BROKEN" in out

    assert "broken  ·  sim  ·  seed 0" in printed_by("experiment", "show").out
    for name in ("kill a relay", "kill-a-relay", latest(tmp_path, "kill-a-relay")):
        assert "kill a relay  ·  sim  ·  seed 0" in printed_by("experiment", "show", name).out

    out = printed_by("experiment", "compare", "kill-a-relay", "broken").out
    assert re.search(r"verdict +✔ HOLDS +✘ BROKEN", out)
    assert re.search(r"total +100 +–", out)
    assert re.search(r"completed +100 +50 +0\.50×", out)


def test_a_report_is_made_again_from_the_files(
    write: Write, sunshower: Sunshower, tmp_path: Path, drawn: None
) -> None:
    sunshower("experiment", "run", write(HOLDING))
    folder = latest(tmp_path, "kill-a-relay")
    before = (folder / "timeline.svg").read_text()
    for name in ("report.html", "timeline.svg", "timeline.png"):
        (folder / name).unlink()
    assert sunshower("experiment", "show", "--report") == 0
    assert "✔&nbsp;HOLDS" in (folder / "report.html").read_text()
    after = (folder / "timeline.svg").read_text()
    assert len(after) == pytest.approx(len(before), rel=0.02)


def test_without_any_run_the_list_says_so(printed_by: PrintedBy) -> None:
    assert "has no run yet" in printed_by("experiment", "list").out


@pytest.mark.ray
def test_an_experiment_on_ray(
    write: Write, sunshower: Sunshower, capsys: Capture, tmp_path: Path, ray_cluster: object
) -> None:
    file = write(HOLDING)
    # The run lasts 3 s, so that it has not ended before the first kill.
    arguments = ("--cluster", "ray", "--set", "total=600", "--set", "kill_every_s=0.5")
    status = sunshower("experiment", "run", file, *arguments, "--json")
    printed = capsys.readouterr()
    assert status == 0, printed.err
    assert json.loads(printed.out)["figures"]["completed"] == 600
    assert "kill any relay" in printed.err
    folder = latest(tmp_path, "kill-a-relay")
    assert read(folder, "plan.json")["cluster"] == "ray"
    results = read(folder, "results.json")
    assert results["cluster"] == "ray"
    assert "ray" in results["versions"]
    assert "kill relay[0]" in (folder / "report.html").read_text()


# ---- as a process -------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.ray
def test_ctrl_c_ends_all_processes_and_keeps_the_history(
    write: Write, start: Start, tmp_path: Path
) -> None:
    options = ("--cluster", "ray", "--set", "total=100000")
    process = start("experiment", "run", write(HOLDING), *options)
    read_until(process.stderr, "acked")
    signal_like_a_terminal(process)
    _, error = process.communicate(timeout=100)
    assert process.returncode == 130, error
    assert "Interrupted. The files so far: experiments/kill-a-relay/" in error
    folder = latest(tmp_path, "kill-a-relay")
    assert read(folder, "plan.json")["stopped"] == "interrupted"
    assert not (folder / "results.json").exists()
    assert '"what": "emitted"' in (folder / "history.jsonl").read_text()


@pytest.mark.long
@pytest.mark.ray
def test_hashes_are_the_same_in_every_run_unless_pythonhashseed_is_set(
    write: Write, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that an experiment iterates over sets in the same order in each run."""
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    file = write('import sys\nprint(hash("a word"), file=sys.stderr)')

    def hash_in(**environment: str) -> str:
        _, error = start("experiment", "run", file, **environment).communicate(timeout=60)
        assert "has no experiment" in error  # so the command ends soon
        return error.splitlines()[0]

    first = hash_in()
    assert hash_in() == first
    assert hash_in(PYTHONHASHSEED="3") != first
