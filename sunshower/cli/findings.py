"""The doctor's findings as a page: a table, what to do, and one sentence on how things stand."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from sunshower.cli.checks import Check, Level

_MARKS = {
    Level.FINE: ("✓", "green"),
    Level.OPTIONAL: ("–", "dim"),
    Level.DOUBTFUL: ("?", "yellow"),
    Level.BROKEN: ("✗", "bold red"),
}


def show(checks: Sequence[Check], console: Console) -> None:
    """The whole page; however narrow the console, a command can be copied whole, in one line."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("", "part", "what", "found"):
        table.add_column(heading, overflow="fold")
    for check in checks:
        mark, style = _MARKS[check.level]
        table.add_row(Text(mark, style), *map(Text, (check.part, check.name, check.found)))
    console.print(table)
    for text in (sentence(checks), *_advice(checks)):
        console.print(Text(text), soft_wrap=True)


def sentence(checks: Sequence[Check]) -> str:
    """How things stand."""
    broken = [check.name for check in checks if check.level is Level.BROKEN]
    if broken:
        return f"The core cannot work: {', '.join(broken)}."
    return "The core is complete; try: sunshower demo"


def _advice(checks: Sequence[Check]) -> Iterator[str]:
    """Each remedy once, with the names of what it is for."""
    remedies: dict[str, list[str]] = {}
    for check in checks:
        if check.remedy:
            remedies.setdefault(check.remedy, []).append(check.name)
    for remedy, names in remedies.items():
        yield f"\nFor {', '.join(names)}:\n    {remedy}"
