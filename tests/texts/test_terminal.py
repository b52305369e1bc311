"""No text of a record, a key or an exception controls the terminal, in any command."""

from __future__ import annotations

import importlib
import io
import logging
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from rich.console import Group
from rich.text import Text

import sunshower.cli
from sunshower import Stdout
from sunshower.cli.display import Screen, red
from sunshower.cli.formatting import (
    Terminal,
    echo_json,
    escape_what_python_prints,
    format_error,
    new_table,
    print_lines,
)
from sunshower.cli.health import quarantine_line
from sunshower.errors import TopologyFailed
from sunshower.runtime.events.health import TaskError
from sunshower.secret import Secret
from tests.texts.hostile import ESCAPES, texts, values

CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
HOSTILE = f"{ESCAPES} [red]x[/] [/closed] :bomb:"
SHOWN = "\\x1b]0;title\\x07\\x1b[2J\\x1b[31mAll is well\\r"


class Tty(io.StringIO):
    def isatty(self) -> bool:
        return True


@given(texts)
def test_terminal_shows_any_text_in_any_place(text: str) -> None:
    out = io.StringIO()
    terminal = Terminal(file=out, width=80)
    table = new_table("some", "text", title=f"title {text}")
    table.add_row(text, Text(text))
    terminal.print(text, Text(text), table, Group(red(text), table))
    terminal.out(text)
    print_lines(terminal, [text], "red")
    assert not CONTROLS.search(out.getvalue())


def test_markup_and_emoji_codes_in_texts_are_printed_unchanged() -> None:
    out = io.StringIO()
    terminal = Terminal(file=out, width=200)
    terminal.print(HOSTILE)
    assert "[red]x[/] [/closed] :bomb:" in out.getvalue()
    assert SHOWN in out.getvalue()


def test_styles_of_commands_reach_the_terminal() -> None:
    out = Tty()
    Terminal(file=out, force_terminal=True).print(red("a\x1b[2J"))
    assert out.getvalue() == "\x1b[31ma\\x1b[2J\x1b[0m\n"


@pytest.mark.parametrize("tty", [False, True])
def test_screen_escapes_what_workers_print(tty: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    output, errors = (Tty(), Tty()) if tty else (io.StringIO(), io.StringIO())
    monkeypatch.setattr("sys.stdout", output)
    with Screen(console=Terminal(file=errors, width=200)) as screen:
        screen.say(HOSTILE)
        screen.print_output(7, True, [HOSTILE])
        screen.print_output(7, False, [HOSTILE])
    if tty:
        assert errors.getvalue().count(SHOWN) == 3
        assert ESCAPES[:10] not in errors.getvalue() + output.getvalue()
    else:
        assert errors.getvalue().count(SHOWN) == 2
        assert not CONTROLS.search(errors.getvalue())
        assert output.getvalue() == HOSTILE + "\n", "a file gets what sinks print"


@pytest.mark.parametrize("tty", [False, True])
def test_stdout_escapes_on_a_terminal_only(tty: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    output = Tty() if tty else io.StringIO()
    monkeypatch.setattr("sys.stdout", output)
    bolt = Stdout()
    for word in ("rain\tsnow", ESCAPES):
        bolt.process((word,))
    bolt.flush()
    shown = SHOWN + "\\x9b1m\\u202e" if tty else ESCAPES
    assert output.getvalue() == f"rain\tsnow\n{shown}\n"


def test_lines_of_status_are_escaped() -> None:
    out = io.StringIO()
    error = TaskError("b", 0, 1, HOSTILE, "E", HOSTILE)
    print_lines(Terminal(file=out), [quarantine_line(error), format_error(TopologyFailed(HOSTILE))])
    assert not CONTROLS.search(out.getvalue())


@given(values)
def test_json_for_other_programs_is_plain_ascii(value: Any) -> None:
    out = io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdout", out)
        echo_json({"value": value, "error": HOSTILE})
    assert out.getvalue().isascii()
    assert not CONTROLS.search(out.getvalue())


def test_errors_of_commands_are_escaped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    file = tmp_path / "hostile.py"
    file.write_text(f"raise ValueError({HOSTILE!r})")
    for command in ("describe", "run", "simulate"):
        with pytest.raises(SystemExit):
            sunshower.cli.main([command, str(file)])
        printed = capsys.readouterr()
        assert SHOWN in printed.err
        assert not CONTROLS.search(printed.out + printed.err)


def test_tracebacks_of_commands_are_escaped_and_without_secrets(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(**_: object) -> None:
        raise ValueError(f"{Secret('planted-word').reveal()} {HOSTILE}")

    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    doctor = importlib.import_module("sunshower.cli.doctor")
    monkeypatch.setattr(doctor, "all_checks", fail)
    with pytest.raises(ValueError, match="planted") as raised:
        sunshower.cli.main(["doctor"])
    sys.excepthook(raised.type, raised.value, raised.tb)  # as for an uncaught exception
    printed = capsys.readouterr().err
    assert SHOWN in printed
    assert not CONTROLS.search(printed)
    assert "planted-word" not in printed


def test_log_lines_and_tracebacks_are_escaped(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    monkeypatch.setattr(logging, "lastResort", logging._StderrHandler(logging.WARNING))
    escape_what_python_prints()
    assert logging.lastResort is not None
    logging.lastResort.handle(logging.makeLogRecord({"msg": HOSTILE, "levelno": logging.ERROR}))
    sys.excepthook(ValueError, ValueError(HOSTILE), None)
    printed = capsys.readouterr().err
    assert printed.count(SHOWN) == 2
    assert not CONTROLS.search(printed)


def test_every_command_prints_through_these_functions() -> None:
    root = Path(sunshower.cli.__file__).parent
    direct = re.compile(r"typer\.echo\(|(?<![\w.])print\(|(?<!\w)Console\(|stderr\.write")
    others = [path for path in root.rglob("*.py") if path.name != "formatting.py"]
    assert len(others) > 10
    for path in others:
        assert not direct.search(path.read_text()), path
