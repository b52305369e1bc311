"""Tests of an interrupted `sunshower experiment run` as a process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Write
from tests.experiments.runner.experiment_files import HOLDING, latest, read
from tests.leftovers import left_behind, marked
from tests.structure.reading import ROOT

pytestmark = pytest.mark.ray


@pytest.mark.ray
def test_ctrl_c_ends_all_processes_and_keeps_the_history(write: Write, tmp_path: Path) -> None:
    environment = {**marked(), "PYTHONPATH": str(ROOT)}
    options = ("--cluster", "ray", "--set", "total=100000")
    command = [sys.executable, "-m", "sunshower", "experiment", "run", str(write(HOLDING))]
    process = subprocess.Popen(
        [*command, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=environment, cwd=tmp_path, start_new_session=True,
    )  # fmt: skip
    assert process.stderr is not None
    assert any("acked" in line for line in process.stderr)  # reads on until one is
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    _, error = process.communicate(timeout=100)
    assert process.returncode == 130, error
    assert "Interrupted. What there is: experiments/kill-a-relay/" in error
    folder = latest(tmp_path, "kill-a-relay")
    assert read(folder, "plan.json")["stopped"] == "interrupted"
    assert not (folder / "results.json").exists()
    assert '"what": "emitted"' in (folder / "history.jsonl").read_text()
    assert left_behind(environment) == []
