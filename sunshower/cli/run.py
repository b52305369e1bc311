"""`sunshower run`: one topology on Ray, until its spouts are exhausted or somebody interrupts."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, Literal

import typer

from sunshower.config import LIMITS, Config
from sunshower.errors import ConfigError, TopologyFailed

Target = Annotated[
    str,
    typer.Argument(
        metavar="FILE.py[:NAME]",
        show_default=False,
        help="A Python file, and the name of the Topology in it: by default the "
        "only one that is there, or `topology`.",
    ),
]
LayoutName = Annotated[
    Literal["pack", "isolate"],
    typer.Option(
        help="How tasks share worker processes: side by side, for throughput, or each in "
        "one of its own, for experiments."
    ),
]
Workers = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="N",
        show_default=False,
        help="How many worker processes `pack` uses; short for --set workers=N.",
    ),
]
Address = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT",
        show_default=False,
        help="A running Ray to use. By default one is started here, and ended with the run.",
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        show_default=False,
        help="Overrides a setting of the topology's Config; may be repeated: "
        "--set spout_pending=1000 --set message_timeout_s=5",
    ),
]


def run(
    target: Target,
    layout: LayoutName = "pack",
    workers: Workers = None,
    address: Address = None,
    settings: Settings = None,
) -> None:
    """Run a topology until its spouts are exhausted.

    Ctrl-C (or SIGTERM) once: the spouts emit no more, and what is under way is finished. Twice:
    everything ends at once. What Stdout sinks print goes to the standard output, the display to the
    standard error. The exit status is 0 when every tuple was processed, or is among the dead
    letters where the topology has some.

    A dependency that goes away (a database, a broker) is waited for, and the display says so. One
    that a component has never reached ends the run after ten seconds, with exit status 1.
    """
    from sunshower.cli.loading import load

    changes = parse_settings([*(settings or ()), *([f"workers={workers}"] if workers else ())])
    loaded = load(target)
    graph = loaded.topology.graph()
    graph = replace(graph, config=replace(graph.config, **changes))

    from sunshower.cli.screen import Screen
    from sunshower.cli.session import Session
    from sunshower.cli.summary import summary
    from sunshower.runtime.plan import Layout

    screen = Screen()
    ended = Session(screen, address).run(graph, Layout(layout), loaded.modules)
    screen.console.print(summary(graph, ended))
    if ended.snapshot.untracked:
        raise TopologyFailed(ended.snapshot.untracked)


def parse_settings(settings: list[str]) -> dict[str, Any]:
    """`name=value` as arguments of Config. Raises a usage error for what Config does not have."""
    found: dict[str, Any] = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals or name not in LIMITS:
            raise typer.BadParameter(
                f"{setting!r} is not NAME=VALUE with a NAME of these: {', '.join(LIMITS)}",
                param_hint="--set",
            )
        try:
            found[name] = LIMITS[name].read(value)
        except ValueError:
            raise typer.BadParameter(
                f"{name} is {LIMITS[name].typed}, not {value!r}", param_hint="--set"
            ) from None
    try:
        Config(**found)
    except ConfigError as error:
        raise typer.BadParameter(str(error), param_hint="--set") from None
    return found
