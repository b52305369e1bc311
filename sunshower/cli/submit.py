"""`sunshower submit`: a topology onto a running cluster, where it stays when we are gone."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from sunshower.cli.reach import Address, reach
from sunshower.cli.run import LayoutName, Settings, Target, Workers, parse_settings

if TYPE_CHECKING:
    from sunshower.actors.run import RayRun

_OPEN_S = 3.0  # how long at most to look whether tasks open
_LOOK_EVERY_S = 0.1

Inactive = Annotated[
    bool,
    typer.Option("--inactive", help="Let the spouts emit nothing until `sunshower activate`."),
]


def submit(
    target: Target,
    layout: LayoutName = "pack",
    workers: Workers = None,
    settings: Settings = None,
    inactive: Inactive = False,
    address: Address = "auto",
) -> None:
    """Start a topology on a running Ray cluster, and return when all its workers are there.

    Its code travels along: workers need neither the file nor this process. What sinks print goes
    into Ray's log files. It stays until `sunshower kill NAME`, also when it has finished or failed.
    A topology whose dependency is away goes on trying: `sunshower status NAME` says what it waits
    for.
    """
    from rich.console import Console

    from sunshower.cli.loading import load

    changes = parse_settings([*(settings or ()), *([f"workers={workers}"] if workers else ())])
    loaded = load(target)
    graph = loaded.topology.graph()
    graph = replace(graph, config=replace(graph.config, **changes))

    from sunshower.actors.shipping import ship
    from sunshower.runtime.plan import Layout

    with reach(address) as cluster:
        ship(loaded.modules)
        run = cluster.submit(graph, Layout(layout), active=not inactive)
        count = len(run.plan.workers)
        waits = _first_waits(run)
        console = Console()
        console.print(
            f"{graph.id} is {'inactive' if inactive else 'active'} on {count} "
            f"worker{'s'[: count != 1]}. `sunshower status {graph.id}` shows it, "
            f"`sunshower kill {graph.id}` ends it.",
            highlight=False,
            soft_wrap=True,
        )
        for line in waits:
            console.print(line, style="red", highlight=False, markup=False, soft_wrap=True)
        if waits:
            console.print(f"{graph.id} goes on trying.", highlight=False, soft_wrap=True)


def _first_waits(run: RayRun) -> list[str]:
    """What tasks wait for as soon as each of them was opened, or could not be opened; or so far."""
    from sunshower.cli.waits import is_opened, wait_lines

    end_s = time.monotonic() + _OPEN_S
    while True:
        snapshot = run.snapshot()
        if is_opened(snapshot, run.plan) or time.monotonic() >= end_s:
            return list(wait_lines(snapshot.waiting()))
        time.sleep(_LOOK_EVERY_S)
