"""Commands of the command line that start nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Write
from tests.conftest import Sunshower

Capture = pytest.CaptureFixture[str]

COMMANDS = [
    *("run", "describe", "demo", "doctor", "submit", "list", "status", "simulate", "experiment"),
    *("activate", "deactivate", "rebalance", "kill"),
]
WORDS = """
    def show(number: Number) -> None: ...

    topology = Topology("shown", message_timeout_s=5)
    topology.spout("numbers", Counter(3)).shuffle().bolt("show", show, parallelism=2)
"""


def test_version(sunshower: Sunshower, capsys: Capture) -> None:
    assert sunshower("--version") == 0
    assert capsys.readouterr().out == "sunshower 0.1.0\n"


def test_help_lists_the_commands(sunshower: Sunshower, capsys: Capture) -> None:
    assert sunshower("--help") == 0
    text = capsys.readouterr().out
    for command in COMMANDS:
        assert f" {command} " in text


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_explains_itself(command: str, sunshower: Sunshower, capsys: Capture) -> None:
    assert sunshower(command, "-h") == 0
    assert "Usage:" in capsys.readouterr().out


def test_describe_prints_text_or_mermaid(
    write: Write, sunshower: Sunshower, capsys: Capture
) -> None:
    assert sunshower("describe", write(WORDS)) == 0
    assert "← numbers shuffle" in capsys.readouterr().out
    assert sunshower("describe", write(WORDS), "--mermaid") == 0
    assert capsys.readouterr().out.startswith("flowchart LR")


@pytest.mark.parametrize(
    "arguments",
    [
        ("fly",),
        ("run", "file.py", "--layout", "heap"),
        ("run", "file.py", "--set", "speed=3"),
        ("run", "file.py", "--workers", "0"),
        ("describe", "file.py", "more"),
    ],
)
def test_wrong_usage_is_status_2(
    arguments: tuple[str, ...], sunshower: Sunshower, capsys: Capture
) -> None:
    assert sunshower(*arguments) == 2
    assert "Usage:" in capsys.readouterr().err


# ---- bad input that is found before Ray is started ----------------------------------------------


def complaint(capsys: Capture) -> str:
    """The one paragraph on standard error."""
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1, "one paragraph"
    assert said.err.startswith("sunshower: ")
    return said.err


@pytest.mark.parametrize("command", ["run", "describe"])
def test_a_missing_file(
    command: str, sunshower: Sunshower, tmp_path: Path, capsys: Capture
) -> None:
    assert sunshower(command, tmp_path / "nowhere.py") == 1
    assert "nowhere.py does not exist" in complaint(capsys)


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("import nowhere_to_be_found", "line 6: ModuleNotFoundError"),
        ('Topology("t").spout("lines", TextFiles("none/*.txt"))', "no file matches 'none/*.txt'"),
        ('topology = Topology("empty")', "has no spout"),
    ],
)
def test_a_wrong_file(
    code: str, said: str, write: Write, sunshower: Sunshower, capsys: Capture
) -> None:
    assert sunshower("run", write(code)) == 1
    assert said in complaint(capsys)


def test_a_setting_that_contradicts_another(
    write: Write, sunshower: Sunshower, capsys: Capture
) -> None:
    settings = ("--set", "window_records_max=10")
    assert sunshower("run", write(WORDS), *settings) == 2
    assert "window_records_max" in capsys.readouterr().err


def test_an_address_where_nobody_listens(
    write: Write, sunshower: Sunshower, capsys: Capture
) -> None:
    assert sunshower("run", write(WORDS), "--address", "127.0.0.1:1") == 1
    assert "no Ray answers at 127.0.0.1:1" in capsys.readouterr().err
