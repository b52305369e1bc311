"""Tests of `sunshower new`: the project that it makes, and its errors."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

import sunshower as package
from tests.conftest import Sunshower

FILES = {
    *("Makefile", "README.md", "kill_count.py", "pyproject.toml", "test_words.py", "words.py"),
}


def test_it_makes_a_project_in_a_new_or_an_empty_folder(
    sunshower: Sunshower, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").mkdir()
    for folder in (tmp_path / "deep/my-words", tmp_path / "empty"):
        assert sunshower("new", folder) == 0
        assert {path.name for path in folder.iterdir()} == FILES
        assert str(folder / "words.py") in capsys.readouterr().out


def test_the_project_has_its_name_and_the_version_of_sunshower(
    sunshower: Sunshower, tmp_path: Path
) -> None:
    folder = tmp_path / "my-words"
    assert sunshower("new", folder) == 0
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    assert project["name"] == "my-words"
    assert project["dependencies"] == [f"sunshower=={package.__version__}"]
    assert 'Topology("my-words")' in (folder / "words.py").read_text()
    assert not [path for path in folder.iterdir() if re.search("@[A-Z]+@", path.read_text())]


def test_a_folder_with_files_is_not_changed(
    sunshower: Sunshower, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "words").mkdir()
    (tmp_path / "words/kept.txt").write_text("kept")
    assert sunshower("new", tmp_path / "words") == 1
    assert "is not empty; name a new folder" in capsys.readouterr().err
    assert [path.name for path in (tmp_path / "words").iterdir()] == ["kept.txt"]


@pytest.mark.parametrize("name", ["My-Words", "1words", "my_words", "my words", "words-", "-words"])
def test_an_invalid_project_name_is_refused(
    name: str, sunshower: Sunshower, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sunshower("new", tmp_path / name) == 1
    assert f"{name!r} is not a valid project name" in capsys.readouterr().err
    assert not (tmp_path / name).exists()


@pytest.mark.parametrize("name", ["sunshower", "ray", "numpy", "confluent-kafka", "pytest"])
def test_the_name_of_a_package_that_the_project_needs_is_refused(
    name: str, sunshower: Sunshower, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sunshower("new", tmp_path / name) == 1
    assert f"use another name, such as my-{name}" in capsys.readouterr().err
    assert not (tmp_path / name).exists()


def test_setup_without_a_wheel_is_an_error(sunshower: Sunshower, tmp_path: Path) -> None:
    assert sunshower("new", tmp_path / "my-words") == 0
    make = ("make", "-C", str(tmp_path / "my-words"), "setup", "SUNSHOWER=")
    done = subprocess.run(make, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "Set SUNSHOWER to the path of Sunshower's wheel: make setup SUNSHOWER=" in done.stderr
    assert not (tmp_path / "my-words/.venv").exists()


def test_a_folder_that_cannot_be_made_is_an_error(
    sunshower: Sunshower, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    assert sunshower("new", tmp_path / "file/words") == 1
    assert "Not a directory; name another folder" in capsys.readouterr().err
