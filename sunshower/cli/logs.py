"""`sunshower logs`: prints the log; separate because each command is a module of its own."""

from __future__ import annotations

import time
from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from sunshower.cli.cluster_options import Address, Name, connect, new_lines
from sunshower.cli.formatting import echo, echo_json

if TYPE_CHECKING:
    from sunshower.runtime.events.log_lines import LogLine

_EVERY_S = 0.5

Components = Annotated[
    list[str] | None,
    typer.Option(
        "--component", metavar="ID", help="Only lines of this component. May be repeated."
    ),
]
Follow = Annotated[bool, typer.Option("--follow", "-f", help="Wait for new lines, until Ctrl-C.")]
AsJsonLines = Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")]


def logs(
    name: Name,
    component: Components = None,
    follow: Follow = False,
    as_json: AsJsonLines = False,
    address: Address = "auto",
) -> None:
    """Print the log of a topology: its events, and the log records of your code.

    The master keeps the last 2,000 lines, as long as it runs.
    """
    with connect(address) as cluster:
        run, after = cluster.find(name), 0
        while True:
            lines, after = new_lines(run, component or (), after)
            for line in lines:
                if as_json:
                    echo_json(asdict(line))
                else:
                    echo(line_text(line))
            if not follow:
                return
            time.sleep(_EVERY_S)


def line_text(line: LogLine) -> str:
    """One line of text: `12:04:11.205 warning failed count[0]: …`; without a traceback."""
    at = datetime.fromtimestamp(line.time).astimezone().isoformat(" ", "milliseconds")[:23]
    place = line.component if line.task is None else f"{line.component}[{line.task}]"
    if not place and line.worker is not None:
        place = f"worker {line.worker}"
    often = f" ({line.count:,} times)" if line.count > 1 else ""
    what, first = line.logger or line.event, line.text.partition("\n")[0]
    return f"{at} {line.level:7} {what}{f' {place}' * bool(place)}: {first}{often}"
