"""Runs the Python files and commands of docs/EXPERIMENTS.md, one after the other."""

from __future__ import annotations

import re
import runpy
import shlex
from pathlib import Path

import pytest

from sunshower import experiments
from sunshower.experiments.runner.run_folders import find
from tests.conftest import Sunshower
from tests.docs.pages import blocks, page, place_programs, programs
from tests.experiments.blank_charts import blank_charts, drawn
from tests.structure.reading import ROOT

__all__ = ["blank_charts", "drawn"]
PAGE = page("EXPERIMENTS")
QUICK = {
    "--seeds 1000": "--seeds 3 --jobs 1",
    "kill_a_bolt.py": "kill_a_bolt.py --set total=400 --set kill_s=0.4",
}


def commands() -> list[tuple[str, int]]:
    """The commands of the page, and their exit statuses."""
    lines = [line for text in blocks(PAGE, "sh") for line in text.splitlines()]
    parts = [line.partition("  # exits with ") for line in lines]
    return [(command, int(status or 0)) for command, _, status in parts]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder with the page's files, and the repository's examples."""
    return place_programs(PAGE, tmp_path, monkeypatch, also=["examples"])


@pytest.mark.timeout(900)
def test_every_command_of_the_page_does_what_it_says(place: Path, sunshower: Sunshower) -> None:
    done = 0
    for command, status in commands():
        words = command
        for long, short in QUICK.items():
            words = words.replace(long, short)
        name, *arguments = shlex.split(words)
        assert name == "sunshower"
        if "--cluster ray" in command:  # the same file as in the line before, on a real cluster
            continue
        assert sunshower(*arguments) == status, command
        done += 1
    assert done > 8
    assert find(place / "experiments", "shop").is_group


def test_each_file_has_its_name_in_its_first_line() -> None:
    assert [*programs(PAGE)] == ["shop.py", "shop_experiment.py", "in_python.py"]


def test_its_experiment_runs_from_python(place: Path) -> None:
    runpy.run_path(str(place / "in_python.py"))


def test_every_public_name_is_on_the_page() -> None:
    missing = [
        name for name in experiments.__all__ if not re.search(rf"`[^`]*\b{name}\b[^`]*`", PAGE)
    ]
    assert not missing


def test_every_ready_experiment_is_on_the_page() -> None:
    files = {path.name for path in (ROOT / "examples/experiments").glob("*.py")}
    assert files == set(re.findall(r"^\| `(\w+\.py)` \|", PAGE, re.MULTILINE))
