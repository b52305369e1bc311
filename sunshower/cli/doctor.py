"""`sunshower doctor`: what is installed, what is missing, and the command that mends it."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated

import typer

Start = Annotated[bool, typer.Option("--start", help="Also start a local Ray and end it again.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the findings as one JSON object.")]


def doctor(start: Start = False, as_json: AsJson = False) -> None:
    """Say what is installed, what is missing, and what to do about it.

    The exit status is 1 when the core cannot work; a missing extra is no illness.
    """
    from rich.console import Console

    from sunshower.cli.checks import Level, examine
    from sunshower.cli.findings import show

    checks = examine(start=start)
    healthy = all(check.level is not Level.BROKEN for check in checks)
    if as_json:
        typer.echo(json.dumps({"healthy": healthy, "checks": [asdict(c) for c in checks]}))
    else:
        show(checks, Console())
    raise typer.Exit(not healthy)
