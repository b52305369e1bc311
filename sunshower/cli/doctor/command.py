"""The command `sunshower doctor` and its page: findings, remedies and a summary."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from sunshower.cli.doctor.checks import Check, Severity, all_checks
from sunshower.cli.formatting import Terminal, echo_json, new_table
from sunshower.cli.run import AsJson

Start = Annotated[bool, typer.Option("--start", help="Also start and stop a local Ray.")]
_MARKS = {
    Severity.FINE: ("✓", "green"),
    Severity.OPTIONAL: ("–", "dim"),
    Severity.DOUBTFUL: ("?", "yellow"),
    Severity.BROKEN: ("✗", "bold red"),
}


def doctor(start: Start = False, as_json: AsJson = False) -> None:
    """Show what is installed, what is missing, and how to install it.

    The exit status is 1 if the core cannot work; a missing extra is not an error.
    """
    checks = all_checks(start=start)
    healthy = all(check.level is not Severity.BROKEN for check in checks)
    if as_json:
        echo_json({"healthy": healthy, "checks": [asdict(c) for c in checks]})
    else:
        show(checks, Terminal())
    raise typer.Exit(not healthy)


def show(checks: Sequence[Check], console: Console) -> None:
    """Print the page. A command stays on one line, so that it can be copied."""
    table = new_table("", "part", "what", "found")
    for check in checks:
        mark, style = _MARKS[check.level]
        table.add_row(Text(mark, style), *map(Text, (check.part, check.name, check.found)))
    console.print(table)
    for text in (conclusion(checks), *_advice(checks)):
        console.print(Text(text), soft_wrap=True)


def conclusion(checks: Sequence[Check]) -> str:
    """Say whether the core works."""
    broken = [check.name for check in checks if check.level is Severity.BROKEN]
    if broken:
        return f"The core cannot work: {', '.join(broken)}."
    return "The core is complete; try: sunshower demo"


def _advice(checks: Sequence[Check]) -> Iterator[str]:
    """Yield each remedy once, with the names of its checks."""
    remedies: dict[str, list[str]] = {}
    for check in checks:
        if check.remedy:
            remedies.setdefault(check.remedy, []).append(check.name)
    for remedy, names in remedies.items():
        yield f"\nFor {', '.join(names)}:\n    {remedy}"
