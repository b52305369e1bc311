"""Tests of the screen: progress and output share a terminal, and never mix in a pipe."""

from __future__ import annotations

import io

import pytest

from sunshower.cli.display import Screen
from sunshower.cli.formatting import Terminal

Capture = pytest.CaptureFixture[str]


def no_terminal() -> tuple[Screen, io.StringIO]:
    errors = io.StringIO()
    return Screen(console=Terminal(file=errors, width=80)), errors


def test_lines_of_sinks_go_to_standard_output_as_they_are(capsys: Capture) -> None:
    screen, errors = no_terminal()
    with screen:
        screen.print_output(7, False, ["[bold]one[/]", "", "  three"])
    assert capsys.readouterr().out == "[bold]one[/]\n\n  three\n"
    assert errors.getvalue() == ""


def test_characters_that_the_encoding_of_the_output_lacks_are_escaped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(raw, encoding="latin-1"))
    screen, _ = no_terminal()
    with screen:
        screen.print_output(7, False, ["Grüße", "日", "\ud800"])
    assert raw.getvalue() == "Grüße\n\\u65e5\n\\ud800\n".encode("latin-1")


def test_standard_error_of_a_worker_is_marked_with_its_process(capsys: Capture) -> None:
    screen, errors = no_terminal()
    with screen:
        screen.print_output(7, True, ["[warning] about something"])
    assert capsys.readouterr().out == ""
    assert errors.getvalue() == "worker 7: [warning] about something\n"


def test_without_a_terminal_progress_is_printed_in_lines() -> None:
    screen, errors = no_terminal()
    with screen:
        screen.doing("Starting Ray …")
        screen.say("news")
    assert errors.getvalue() == "Starting Ray …\nnews\n"


def test_on_a_terminal_the_display_is_removed_and_news_stay() -> None:
    errors = io.StringIO()
    with Screen(console=Terminal(file=errors, width=80, force_terminal=True)) as screen:
        screen.doing("Starting Ray …")
        screen.say("news")
    assert "\x1b[2K" in errors.getvalue()  # the line of the display was wiped
    assert "news\n" in errors.getvalue()


def test_on_a_terminal_lines_of_sinks_are_printed_above_the_display(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Tty(io.StringIO):
        def isatty(self) -> bool:
            return True

    output, errors = Tty(), io.StringIO()
    monkeypatch.setattr("sys.stdout", output)
    with Screen(console=Terminal(file=errors, width=80, force_terminal=True)) as screen:
        screen.doing("Starting Ray …")
        screen.print_output(7, False, ["[1] one", "two"])
    assert output.getvalue() == ""
    assert "[1] one\ntwo\n" in errors.getvalue()


def test_a_closed_standard_output_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    class Closed(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    screen, _ = no_terminal()
    monkeypatch.setattr("sys.stdout", Closed())
    with screen:
        screen.print_output(7, False, ["one"])
        assert screen.closed.is_set()
        screen.print_output(7, False, ["two"])  # is not written
