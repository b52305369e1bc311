"""Builds the sdist and the wheel, installs the wheel in another environment, and uses it there.

That environment uses the dependencies of this one, so that none is downloaded again.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path
from typing import NamedTuple

import pytest

from sunshower.cli.doctor import packages
from tests.structure.reading import ROOT

pytestmark = pytest.mark.xdist_group("packaging")
INLINE = """
from sunshower import Line, Records, Topology, run_inline

topology = Topology("shout")
lines = topology.spout("lines", Records([Line("rain")], type=Line))
shouted = []
lines.map(lambda line: (line.text.upper(),), fields=["text"]).filter(shouted.append)
print(run_inline(topology.graph()).snapshot.component("lines").acked, shouted)
"""
DATA = {
    "sunshower/py.typed",
    "sunshower/cli/ui/static/index.html",
    "sunshower/cli/ui/static/app.js",
    "sunshower/experiments/report/base.html",
    "sunshower/dev/locks/kafka-4.3.1.txt",
    "sunshower/cli/new/template/Makefile.txt",
    "sunshower/cli/new/template/words.py.txt",
}
SOURCES = {
    "pyproject.toml",
    "Makefile",
    "constraints.txt",
    "README.md",
    "LICENSE",
    "tests/conftest.py",
    "examples/word_count.py",
    "docs/TUTORIAL.md",
    "deploy/prometheus/alerts.yaml",
    "deploy/kuberay/raycluster.yaml",
}


class Built(NamedTuple):
    """The files that were built, and an environment in which the wheel is installed."""

    sdist: Path
    wheel: Path
    bin: Path
    work: Path  # an empty folder

    def __call__(self, *command: str, folder: Path | None = None) -> str:
        """Run a command of the environment; returns what it prints."""
        program, *arguments = command
        return run(str(self.bin / program), *arguments, folder=folder or self.work)


def run(*command: str, folder: Path, **environment: str) -> str:
    names = ("PYTHONPATH", "PYTHONSTARTUP", "VIRTUAL_ENV")
    inherited = {name: value for name, value in os.environ.items() if name not in names}
    path = f"{Path(command[0]).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        command,
        cwd=folder,
        env={**inherited, "PATH": path, "COLUMNS": "100", **environment},
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """The sdist of this tree, and the wheel that pip builds from it, with the build requirements
    of the project."""
    place, python = tmp_path_factory.mktemp("built"), sys.executable
    pins, pip = str(ROOT / "constraints.txt"), (python, "-m", "pip", "--quiet")
    backend = str(place / "backend")
    required = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["build-system"]
    target = ("--target", backend, "--no-compile", "-c", pins)
    run(*pip, "install", *target, *required["requires"], folder=place)
    build = (python, "-m", "hatchling", "build", "-t", "sdist", "-d", str(place))
    run(*build, folder=ROOT, PYTHONPATH=backend)
    (sdist,) = place.glob("*.tar.gz")
    wheels = ("--no-deps", "--no-build-isolation", "-w", str(place), str(sdist))
    run(*pip, "wheel", *wheels, folder=place, PYTHONPATH=backend)
    (wheel,) = place.glob("*.whl")
    other = place / "there"
    venv.create(other, symlinks=True)
    other_python = str(other / "bin/python")
    (other_packages,) = other.glob("lib/python*/site-packages")
    # Not --system-site-packages: that would process the .pth files here, such as Sunshower's own.
    (other_packages / "here.pth").write_text(sysconfig.get_path("purelib"), encoding="utf-8")
    install = ("--python", other_python, "install", "--no-deps", "--no-index", "--ignore-installed")
    run(*pip, *install, "--no-compile", str(wheel), folder=place)
    work = place / "work"
    work.mkdir()
    return Built(sdist, wheel, other / "bin", work)


def test_the_wheel_has_the_data_files(built: Built) -> None:
    names = set(zipfile.ZipFile(built.wheel).namelist())
    assert not DATA - names
    assert not [name for name in names if name.startswith(("tests/", "examples/", "docs/"))]
    templates = {path.name for path in (ROOT / "sunshower/cli/new/template").iterdir()}
    packaged = {Path(name).name for name in names if "/new/template/" in name}
    assert packaged == templates


def test_the_sdist_has_the_files_of_a_clone(built: Built) -> None:
    with tarfile.open(built.sdist) as file:
        names = {name.partition("/")[2] for name in file.getnames()}
    assert not SOURCES - names
    assert not [name for name in names if "__pycache__" in name or name.startswith(".venv")]


def test_it_runs_a_topology_from_any_folder(built: Built) -> None:
    where = "import sunshower; print(sunshower.__file__)"
    assert str(built.bin.parent) in built("python", "-c", where)
    assert built("python", "-c", INLINE) == "1 [('RAIN',)]\n"


def test_its_command_line_completes_itself(built: Built) -> None:
    assert "new" in built("sunshower", "--help")
    words = {"COMP_WORDS": "sunshower des", "COMP_CWORD": "1"}
    completion = {"_SUNSHOWER_COMPLETE": "complete_bash", **words}
    program = str(built.bin / "sunshower")
    assert run(program, folder=built.work, **completion).split() == ["describe"]
    home = built.work / "home"
    home.mkdir()
    environment = {"HOME": str(home), "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    run(program, "--install-completion", "bash", folder=built.work, **environment)  # in any shell
    assert "sunshower" in (home / ".bashrc").read_text(encoding="utf-8")


def test_the_tests_and_the_experiment_of_a_new_project_run(built: Built) -> None:
    built("sunshower", "new", "my-words")
    project = built.work / "my-words"
    # The settings of a clone around the project do not apply, such as those of pytest-timeout.
    shutil.copy(ROOT / "pyproject.toml", built.work)
    options = ("-p", "no:cacheprovider", "-p", "no:timeout")
    assert "passed" in built("python", "-m", "pytest", *options, folder=project)
    assert "split" in built("sunshower", "describe", "words.py", folder=project)
    short = ("--set", "total=200", "--set", "kill_s=0.2")
    printed = built("sunshower", "experiment", "run", "kill_count.py", *short, folder=project)
    assert "HOLDS" in printed


def test_its_doctor_checks_the_same_packages_as_the_one_of_the_repository(built: Built) -> None:
    reported = json.loads(built("sunshower", "doctor", "--json"))
    checked = [(check["part"], check["name"]) for check in reported["checks"]]
    expected = [(package.extra or "core", package.name) for package in packages()]
    assert sorted(checked[1 : len(expected) + 1]) == sorted(expected)  # after Python itself
    assert reported["healthy"]
