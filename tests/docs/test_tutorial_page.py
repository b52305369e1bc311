"""Runs the project, the tests and the code of docs/TUTORIAL.md, and checks its names."""

from __future__ import annotations

import re
import runpy
import shutil
import subprocess
import sys
from itertools import islice
from pathlib import Path

import pytest

from sunshower import testing
from sunshower.cli.new import make_project
from tests.conftest import Sunshower
from tests.structure.reading import ROOT

PAGE = (ROOT / "docs/TUTORIAL.md").read_text(encoding="utf-8")


def add_test(project: Path) -> None:
    """Add the file `test_more.py` of the page to a project."""
    ((name, text),) = re.findall(r"^```python\n# (\S+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert name == "test_more.py"
    (project / name).write_text(text, encoding="utf-8")


def test_the_project_passes_the_tests_of_the_page(tmp_path: Path) -> None:
    make_project(tmp_path / "my-words", "0.1.0")
    add_test(tmp_path / "my-words")
    plugin = 'pytest_plugins = ["sunshower.testing.pytest_plugin"]\n'
    (tmp_path / "my-words/conftest.py").write_text(plugin, encoding="utf-8")
    # The settings of a clone around the project do not apply, such as those of pytest-timeout.
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:timeout"],
        cwd=tmp_path / "my-words",
        capture_output=True,
        text=True,
        check=False,
    )
    assert "11 passed" in done.stdout, done.stdout + done.stderr


def test_the_topology_is_described(
    tmp_path: Path, sunshower: Sunshower, capsys: pytest.CaptureFixture[str]
) -> None:
    make_project(tmp_path / "my-words", "0.1.0")
    assert sunshower("describe", tmp_path / "my-words/words.py") == 0
    assert "split" in capsys.readouterr().out


def test_the_lines_for_a_longer_run_read_the_standard_library(tmp_path: Path) -> None:
    make_project(tmp_path / "my-words", "0.1.0")
    program = tmp_path / "my-words/words.py"
    (block,) = re.findall(
        r"^```python\n(import sysconfig\n.*?)^```$", PAGE, re.MULTILINE | re.DOTALL
    )
    (line,) = re.findall(r"^lines = .*\n", program.read_text(encoding="utf-8"), re.MULTILINE)
    program.write_text(program.read_text(encoding="utf-8").replace(line, block), encoding="utf-8")
    spout = runpy.run_path(str(program))["topology"].graph().components["lines"].instance()
    assert sum(1 for _ in islice(spout.records(), 50_000)) == 50_000


def test_the_change_of_the_page_needs_the_change_of_the_test(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_project(tmp_path / "my-words", "0.1.0")
    section = PAGE.partition("## Change it")[2].partition("## ")[0]
    function, declaration, corrected = re.findall(
        r"^```python\n(.*?)^```$", section, re.MULTILINE | re.DOTALL
    )
    program = (tmp_path / "my-words/words.py").read_text(encoding="utf-8")
    (line,) = re.findall(r"^words = .*\n", program, re.MULTILINE)
    changed = program.replace(line, declaration).replace(
        "topology = ", f"{function}\n\ntopology = "
    )
    (tmp_path / "my-words/words.py").write_text(changed, encoding="utf-8")
    monkeypatch.chdir(tmp_path / "my-words")
    monkeypatch.syspath_prepend(str(tmp_path / "my-words"))
    monkeypatch.delitem(sys.modules, "words", raising=False)
    tests = (tmp_path / "my-words/test_words.py").read_text(encoding="utf-8")
    (expected,) = re.findall(
        r'^    assert dict\(done.emitted\("count"\)\) == .*\n', tests, re.MULTILINE
    )
    add_test(tmp_path / "my-words")
    runpy.run_path("test_more.py")["test_words_are_in_lower_case"]()  # needs no change
    with pytest.raises(AssertionError):
        runpy.run_path("test_words.py")["test_each_word_is_counted"]()
    Path("test_words.py").write_text(tests.replace(expected, corrected), encoding="utf-8")
    runpy.run_path("test_words.py")["test_each_word_is_counted"]()
    monkeypatch.delitem(sys.modules, "words")


def test_every_public_name_is_on_the_page() -> None:
    assert not [name for name in testing.__all__ if not re.search(rf"`[^`\n]*\b{name}\b", PAGE)]
