"""Formats errors, durations and tables, and prints texts with control characters escaped."""

from __future__ import annotations

import logging
import re
import sys
import sysconfig
import traceback
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any

import typer
from rich import box
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from sunshower.errors import SunshowerError
from sunshower.json_values import for_json
from sunshower.runtime.tasks.user_errors import JOINTS
from sunshower.secret import without_secrets
from sunshower.texts import describe, json_of, printable

_PACKAGE = str(Path(__file__).resolve().parents[1])
_STANDARD = re.compile(re.escape(sysconfig.get_path("stdlib")) + r"/(?!site-packages/)")
_INSTALLED = sysconfig.get_path("purelib")
_LINES_MAX, _FRAMES_MAX = 15, 4  # of a traceback
_FRAME = re.compile(r'^  File "(?P<file>[^"]+)", line \d+, in .*$')


def format_error(error: SunshowerError) -> str:
    """Return the message and, if user code raised, the traceback's frames in user code."""
    message, trace, frames = without_secrets(str(error)).partition(
        "\nTraceback (most recent call last):\n"
    )
    user = user_frames(frames) if trace else []
    return "\n".join([f"sunshower: {message.strip()}", *user])


def user_frames(trace: str) -> list[str]:
    """Return the lines of a formatted traceback whose frames are outside of sunshower, or none if
    they are all in Python's standard library. Of more than 15 lines, those of the last frames of
    the user, and of the last one of a library that they have called."""
    frames: list[tuple[bool, list[str]]] = []  # whether it is of the user, and its lines
    keeping, is_standard, before = False, True, ""
    for line in trace.splitlines():
        if line in JOINTS and frames:  # another error came before, and only its message is here
            frames[-1][1].extend((before, line))
        before = line
        if frame := _FRAME.match(line):
            file = frame["file"]
            if keeping := not file.startswith(_PACKAGE):
                is_of_user = not _STANDARD.match(file) and not file.startswith(_INSTALLED)
                is_standard &= bool(_STANDARD.match(file))
                frames.append((is_of_user, []))
        elif not line.startswith("    "):
            keeping = False  # the exception itself, which is in the message
        if keeping:
            frames[-1][1].append(line)
    positions = [at for at, (is_of_user, _) in enumerate(frames) if is_of_user]
    if is_standard:
        return []
    if sum(len(lines) for _, lines in frames) > _LINES_MAX and positions:
        deeper = frames[positions[-1] + 1 :]
        frames = [*(frames[at] for at in positions[-_FRAMES_MAX:]), *deeper[-1:]]
    return [line for _, lines in frames for line in lines]


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


def time_of_day(unix_s: float) -> str:
    """Format a Unix time as the time of day in UTC: `12:04:11Z`."""
    return f"{datetime.fromtimestamp(unix_s, UTC):%H:%M:%SZ}"


def number_of(count: int, noun: str, plural: str | None = None) -> str:
    """Format a count with its noun: `1 worker`, `1,200 workers`, `2 tries`."""
    return f"{count:,} {noun if count == 1 else plural or f'{noun}s'}"


def new_table(
    *headings: str,
    numbers: Sequence[str] = (),
    title: str | None = None,
    clipped: Sequence[str] = (),
    least: int | None = None,
) -> Table:
    """Return an empty table: columns with folded text, then columns of right-aligned numbers. With
    `clipped` each row has one line: these columns share the width that the others leave, and have
    at least `least` characters."""
    table = Table(
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        title=title,
        title_style="bold",
        title_justify="left",
        expand=bool(clipped),
    )
    for heading in headings:
        if heading in clipped:
            table.add_column(
                Text(heading), no_wrap=True, overflow="ellipsis", ratio=1, min_width=least
            )
        else:
            table.add_column(Text(heading), no_wrap=bool(clipped), overflow="fold")
    for heading in numbers:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def print_lines(console: Console, lines: Iterable[str], style: str | None = None) -> None:
    """Print lines without markup, highlighting or wrapping."""
    for line in lines:
        console.print(line, style=style, highlight=False, markup=False, soft_wrap=True)


class Terminal(Console):
    """A console that escapes control characters, and shows texts without markup and emoji codes."""

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, highlight=False, **options)

    def render_str(self, text: str, **options: Any) -> Text:  # before its width is measured
        return super().render_str(printable(text), **options)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=printable(segment.text))


def echo(text: str, *, err: bool = False) -> None:
    """Print a text with its control characters escaped."""
    typer.echo(printable(text), err=err)


def echo_json(fields: Mapping[str, Any]) -> None:
    """Print one JSON object on a line, in ASCII."""
    typer.echo(json_of(fields))


def echo_value(value: Any) -> None:
    """Print any value as JSON on a line, in ASCII: records are objects, sets lists, and what JSON
    cannot represent is a text."""
    typer.echo(value_text(value))


def value_text(value: Any) -> str:
    """What `echo_value` prints."""
    return json_of({"": _plain(value)})[len('{"": ') : -1]


def _plain(value: Any) -> Any:
    match value:
        case None | str() | int() | float():
            return value
        case dict():
            return {name: _plain(part) for name, part in value.items()}
        case tuple() if hasattr(value, "_fields"):
            return {name: _plain(part) for name, part in zip(value._fields, value, strict=True)}
        case list() | tuple() | set() | frozenset():
            return [_plain(part) for part in value]
    try:
        return _plain(for_json(value))
    except TypeError:
        return describe(value)


def escape_what_python_prints() -> None:
    """Escape control characters also in log lines and tracebacks that nobody handles."""
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(_Escaping())
    sys.excepthook = _print_exception


class _Escaping(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record))


def _print_exception(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    text = "".join(traceback.format_exception(kind, error, trace)).rstrip()
    echo(without_secrets(text), err=True)
