"""Tests of commands that start nothing: help, `describe`, and errors before a start."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import PrintedBy, Write
from tests.conftest import Sunshower
from tests.structure.reading import ROOT

Capture = pytest.CaptureFixture[str]

COMMANDS = [
    *("run", "describe", "demo", "doctor", "submit", "list", "status", "simulate", "experiment"),
    *("activate", "deactivate", "rebalance", "upgrade", "kill", "new"),
]
WORDS = """
    def show(number: Number) -> None: ...

    topology = Topology("shown", message_timeout_s=5)
    topology.spout("numbers", Counter(3)).shuffle().bolt("show", show, parallelism=2)
"""


def test_version(printed_by: PrintedBy) -> None:
    assert printed_by("--version").out == "sunshower 0.1.0\n"


def test_help_lists_the_commands(printed_by: PrintedBy) -> None:
    text = printed_by("--help").out
    for command in COMMANDS:
        assert f" {command} " in text


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_has_a_help_text(command: str, printed_by: PrintedBy) -> None:
    assert "Usage:" in printed_by(command, "-h").out


def test_describe_prints_text_mermaid_or_code(write: Write, printed_by: PrintedBy) -> None:
    assert "← numbers shuffle" in printed_by("describe", write(WORDS)).out
    assert printed_by("describe", write(WORDS), "--mermaid").out.startswith("flowchart LR")
    assert printed_by("describe", write(WORDS), "--code").out == "# no stage has functions\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ("fly",),
        ("run", "file.py", "--layout", "heap"),
        ("run", "file.py", "--set", "speed=3"),
        ("run", "file.py", "--workers", "0"),
        ("describe", "file.py", "more"),
        ("kill", "numbers", "--keep", "numbers.savepoint", "--now"),
        ("kill", "numbers", "--keep", "missing/numbers.savepoint"),
        ("kill", "numbers", "--keep", "new", "--address", "http://127.0.0.1:1"),
        ("submit", "file.py", "--resume", "missing"),
    ],
)
def test_wrong_usage_is_status_2(arguments: tuple[str, ...], printed_by: PrintedBy) -> None:
    assert "Usage:" in printed_by(*arguments, status=2).err


# ---- bad input that is found before Ray is started ----------------------------------------------


def error_message(capsys: Capture) -> str:
    """The error message, which must be a single paragraph on standard error."""
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.count("\n") == 1, "one paragraph"
    assert output.err.startswith("sunshower: ")
    return output.err


@pytest.mark.parametrize("command", ["run", "describe"])
def test_a_missing_file(
    command: str, sunshower: Sunshower, tmp_path: Path, capsys: Capture
) -> None:
    assert sunshower(command, tmp_path / "nowhere.py") == 1
    assert "nowhere.py does not exist" in error_message(capsys)


@pytest.mark.parametrize(
    ("code", "output"),
    [
        ("import nowhere_to_be_found", "line 6: ModuleNotFoundError"),
        ('Topology("t").spout("lines", TextFiles("none/*.txt"))', "no file matches 'none/*.txt'"),
        ('topology = Topology("empty")', "has no spout"),
    ],
)
def test_a_wrong_file(
    code: str, output: str, write: Write, sunshower: Sunshower, capsys: Capture
) -> None:
    assert sunshower("run", write(code)) == 1
    assert output in error_message(capsys)


def test_a_full_disk_behind_the_output(write: Write) -> None:
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "sunshower", "describe", str(write(WORDS))]
        ended = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    output = "sunshower: the output cannot be written: No space left on device\n"
    assert (ended.returncode, ended.stderr) == (1, output)


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_nothing_is_printed_into_a_file_in_place_of_a_closed_output(
    write: Write, tmp_path: Path, closed: str
) -> None:
    code = """
        import os
        topology = Topology("t")
        topology.spout("in", Counter())
        file = open("written", "w")
        os.write(1, b"to the output")
        os.write(2, b"to the errors")
        file.write("by the program")
    """
    words = f"{sys.executable} -m sunshower describe {write(code)} {closed}"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.run(
        ["bash", "-c", words], cwd=tmp_path, env=environment, check=False, capture_output=True
    )
    assert (process.returncode, b"Traceback" in process.stderr) == (0, False)
    assert (tmp_path / "written").read_text() == "by the program"


def test_a_setting_that_contradicts_another(write: Write, printed_by: PrintedBy) -> None:
    settings = ("--set", "message_timeout_max_s=1")
    assert "message_timeout_max_s is 1" in printed_by("run", write(WORDS), *settings, status=2).err


def test_an_address_without_a_ray(write: Write, printed_by: PrintedBy) -> None:
    printed = printed_by("run", write(WORDS), "--address", "127.0.0.1:1", status=1)
    assert "no Ray answers at 127.0.0.1:1" in printed.err
