"""Formats errors, durations and tables for the terminal."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from sunshower.errors import SunshowerError

_PACKAGE = str(Path(__file__).resolve().parents[1])
_FRAME = re.compile(r'^  File "(?P<file>[^"]+)", line \d+, in .*$')


def format_error(error: SunshowerError) -> str:
    """Return the message and, if user code raised, the traceback's frames in user code."""
    message, traceback, frames = str(error).partition("\nTraceback (most recent call last):\n")
    user = user_frames(frames) if traceback else []
    return "\n".join([f"sunshower: {message.strip()}", *user])


def user_frames(traceback: str) -> list[str]:
    """Return the lines of a formatted traceback whose frames are outside of sunshower."""
    kept: list[str] = []
    keeping = False
    for line in traceback.splitlines():
        if frame := _FRAME.match(line):
            keeping = not frame["file"].startswith(_PACKAGE)
        elif not line.startswith("    "):
            keeping = False  # the exception itself, which is in the message
        if keeping:
            kept.append(line)
    return kept


def duration(seconds: float) -> str:
    """Format a duration with two digits: `0.13 s`, `4.2 ms`, `85 µs`, `12 s`."""
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("µs", 1e6)):
        value = seconds * factor
        if value >= (0.1 if unit == "s" else 1.0):
            digits = max(0, 1 - int(f"{value:e}".split("e")[1]))
            return f"{value:.{digits}f} {unit}"
    return "0 s"


def elapsed(seconds: float) -> str:
    """Format a duration in two units: `42 s`, `2 min 10 s`, `5 h 3 min`, `12 d 4 h`."""
    whole = round(seconds)
    for (unit, length_s), (smaller, part_s) in (
        (("d", 86_400), ("h", 3_600)),
        (("h", 3_600), ("min", 60)),
        (("min", 60), ("s", 1)),
    ):
        if whole >= length_s:
            rest = whole % length_s // part_s
            return f"{whole // length_s} {unit}" + (f" {rest} {smaller}" if rest else "")
    return f"{whole} s"


def new_table(*headings: str, numbers: Sequence[str] = (), title: str | None = None) -> Table:
    """Return an empty table: columns with folded text, then columns of right-aligned numbers."""
    table = Table(
        box=box.SIMPLE_HEAD, pad_edge=False, title=title, title_style="bold", title_justify="left"
    )
    for heading in headings:
        table.add_column(Text(heading), overflow="fold")
    for heading in numbers:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def print_lines(console: Console, lines: Iterable[str], style: str | None = None) -> None:
    """Print lines without markup, highlighting or wrapping."""
    for line in lines:
        console.print(line, style=style, highlight=False, markup=False, soft_wrap=True)
