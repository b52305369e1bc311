"""Tests of `sunshower run --inline`: in this process, with debuggers, signals and --watch."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

from sunshower.cli.watch import ProgramFiles
from tests.cli.conftest import PrintedBy, Start, Write, read_until, signal_like_a_terminal
from tests.structure.reading import ROOT

TEN = """
    topology = Topology("ten")
    topology.spout("numbers", Counter(10)).shuffle().bolt("out", Stdout())
"""
ENDLESS = """
    import time

    def slow(number: Number) -> Iterator[Number]:
        time.sleep(0.001)
        yield number

    topology = Topology("endless")
    numbers = topology.spout("numbers", Counter()).shuffle().bolt("slow", slow)
    numbers.shuffle().bolt("out", Stdout())
"""
STOPPING = """
    def stop(number: Number) -> Iterator[Number]:
        print("processes", number.value)
        if number.value == 1:
            breakpoint()
        yield number

    topology = Topology("stopping")
    numbers = topology.spout("numbers", Counter(3)).shuffle().bolt("stop", stop)
    numbers.shuffle().bolt("out", Stdout())
"""
FAILING = """
    def fail(number: Number) -> None:
        raise ValueError("of the user")

    topology = Topology("failing")
    topology.spout("numbers", Counter(1)).shuffle().bolt("fail", fail)
"""


def test_all_is_processed_and_printed_in_this_process(write: Write, printed_by: PrintedBy) -> None:
    printed = printed_by("run", "--inline", write(TEN))
    assert printed.out.split() == list(map(str, range(10)))
    assert "10 tuples taken in, all of them acked" in printed.err


def test_settings_are_applied(write: Write, printed_by: PrintedBy) -> None:
    printed = printed_by("run", "--inline", "--set", "ackers=0", write(TEN))
    assert "untracked" in printed.err


def test_a_failure_shows_the_lines_of_the_user(write: Write, printed_by: PrintedBy) -> None:
    printed = printed_by("run", "--inline", "--set", "attempts_max=1", write(FAILING), status=1)
    assert "ValueError: of the user" in printed.err
    assert 'raise ValueError("of the user")' in printed.err


@pytest.mark.parametrize(
    ("option", "name"),
    [(["--workers", "2"], "--workers"), (["--address", "h:1"], "--address"),
     (["--layout", "isolate"], "--layout")],
)  # fmt: skip
def test_options_of_ray_are_refused(
    option: list[str], name: str, write: Write, printed_by: PrintedBy
) -> None:
    assert name in printed_by("run", "--inline", *option, write(TEN), status=2).err


def test_watch_without_inline_is_refused(write: Write, printed_by: PrintedBy) -> None:
    assert "--inline" in printed_by("run", "--watch", write(TEN), status=2).err


def run_with_input(file: Path, typed: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "sunshower", "run", "--inline", file],
        input=typed, capture_output=True, text=True, check=False, timeout=120,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip


def test_a_breakpoint_stops_in_user_code_and_continues(write: Write) -> None:
    done = run_with_input(write(STOPPING), "p 'value', number.value\nc\n")
    assert done.returncode == 0, done.stderr
    assert "('value', 1)" in done.stdout
    assert "3 tuples taken in, all of them acked" in done.stderr


def test_quitting_a_debugger_ends_the_run_without_another_attempt(write: Write) -> None:
    done = run_with_input(write(STOPPING), "q\n")
    assert done.returncode == 130, done.stderr
    assert done.stdout.count("processes 1") == 1
    assert "attempt" not in done.stderr


def test_ctrl_c_drains_a_source_without_an_end(start: Start, write: Write, tmp_path: Path) -> None:
    with (tmp_path / "lines").open("w+") as out:
        process = start("run", "--inline", write(ENDLESS), out=out)
        read_until(process.stderr, "pending")
        signal_like_a_terminal(process)
        _, errors = process.communicate(timeout=120)
        numbers = list(map(int, out.seek(0) or out))
    assert process.returncode == 0, errors
    assert f"{len(numbers):,} tuples taken in, all of them acked." in errors.replace("\n", " ")
    assert numbers == list(range(len(numbers)))


def test_a_save_ends_an_endless_run_and_starts_the_new_program(start: Start, write: Write) -> None:
    file = write(ENDLESS)
    process = start("run", "--inline", "--watch", file)
    read_until(process.stderr, "pending")
    file.write_text(file.read_text() + "raise ValueError('a mistake')\n")
    read_until(process.stderr, "a mistake")
    read_until(process.stderr, "Waiting for a save")
    write(TEN)
    read_until(process.stderr, "10 tuples taken in")
    read_until(process.stderr, "Waiting for a save")
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=120)
    assert process.returncode == 0


# ---- which files are watched --------------------------------------------------------------------


def files_in(folder: Path, **texts: str) -> ProgramFiles:
    for name, text in texts.items():
        path = folder / f"{name.replace('__', '/')}.py"
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_text(dedent(text))
    return ProgramFiles(folder / "main.py")


def names(files: ProgramFiles, folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path, stamp in files.stamps().items() if stamp}


def test_modules_that_modules_import_are_watched(tmp_path: Path) -> None:
    files = files_in(
        tmp_path, main="import one", one="def f():\n    from two import x", two="", other=""
    )
    assert names(files, tmp_path) == {"main.py", "one.py", "two.py"}


def test_packages_and_relative_imports_are_watched(tmp_path: Path) -> None:
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack" / "__init__.py").touch()
    files = files_in(
        tmp_path, main="import json, sunshower\nfrom pack import a", pack__a="from . import b",
        pack__b="import main", pack__c="",
    )  # fmt: skip
    watched = {"main.py", "pack/__init__.py", "pack/a.py", "pack/b.py"}
    assert names(files, tmp_path) == watched


def test_a_module_that_is_missing_is_waited_for(tmp_path: Path) -> None:
    files = files_in(tmp_path, main="import later")
    before = files.stamps()
    (tmp_path / "later.py").write_text("x = 1")
    assert files.stamps() != before


def test_imports_of_a_file_with_a_mistake_stay_watched(tmp_path: Path) -> None:
    files = files_in(tmp_path, main="import one", one="")
    files.stamps()
    (tmp_path / "main.py").write_text("import one\nif")
    assert names(files, tmp_path) == {"main.py", "one.py"}


def test_a_save_that_replaces_the_file_by_another_of_the_same_size_is_seen(tmp_path: Path) -> None:
    files = files_in(tmp_path, main="x = 1")
    before = files.stamps()
    (tmp_path / "new").write_text("x = 2")
    (tmp_path / "new").rename(tmp_path / "main.py")
    assert files.stamps() != before
