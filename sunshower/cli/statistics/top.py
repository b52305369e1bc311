"""`sunshower top`: a live full-screen view of topologies, the busiest components first."""

from __future__ import annotations

import select
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from sunshower.cli.cluster_options import ANSWER_WITHIN_S, Address, Window, ask_all, connect
from sunshower.cli.formatting import Terminal, elapsed
from sunshower.errors import SunshowerError

if TYPE_CHECKING:
    from sunshower.actors.cluster import RayCluster
    from sunshower.runtime.control.overview import Overview

_EVERY_S = 1.0
_HELP = "q or Ctrl-C ends"

Topology = Annotated[
    str | None,
    typer.Argument(
        metavar="[NAME]",
        show_default=False,
        help="The topology. By default all topologies.",
    ),
]
Once = Annotated[bool, typer.Option("--once", help="Print the display once.")]


def top(
    name: Topology = None, window: Window = "1m", once: Once = False, address: Address = "auto"
) -> None:
    """Show live which components are busy, which fail, and which wait for a dependency.

    `capacity` is the share of the time in which the tasks of a component were busy, as in Storm:
    the bottleneck is near 100 %. `blocked` is the share in which they waited for slower receivers.
    `wait` and `run` are the times of inputs in the inbox and in the bolt's code; `p99` alone is the
    time from emit to complete tree. Without a terminal the display is printed once.
    """
    console = Terminal()
    with connect(address, as_job=once) as cluster:
        if name is not None:
            cluster.find(name)  # raises ClusterError if it is not there
        if once or not console.is_terminal:
            console.print(frame(cluster, name, window))
        else:
            with pressed_keys() as read_key:
                show_live(console, lambda: frame(cluster, name, window), read_key)


def show_live(
    console: Console, draw: Callable[[], RenderableType], read_key: Callable[[float], str]
) -> None:
    """Draw a frame every second, on a screen of its own, until `q` or Ctrl-C. `read_key` returns
    the key that is pressed within so many seconds, or an empty text."""
    from sunshower.experiments.runner.interrupts import Interrupts

    with Interrupts() as interrupts:
        interrupts.defer()
        with Live(console=console, screen=True, auto_refresh=False) as live:
            while not interrupts.requested:
                live.update(Group(Text(_HELP, style="dim"), draw()), refresh=True)
                if read_key(_EVERY_S) == "q":
                    return


@contextmanager
def pressed_keys() -> Iterator[Callable[[float], str]]:
    """While entered, keys arrive without Enter and are not shown; yields what `show_live` needs.
    The terminal is restored at the end."""
    if not sys.stdin.isatty():
        yield _wait_without_keys
        return
    import termios
    import tty

    before = termios.tcgetattr(sys.stdin)
    tty.setcbreak(sys.stdin)  # Ctrl-C remains a signal
    try:
        yield _read_key
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def frame(cluster: RayCluster, name: str | None, window: str) -> Group:
    """What `top` shows of one topology, or (None) of all."""
    names = cluster.runs() if name is None else [name]
    parts: list[RenderableType] = []
    for one, found in ask_all(names, lambda one: cluster.find(one).overview(ANSWER_WITHIN_S)):
        if isinstance(found, SunshowerError):
            parts.append(Text(f"{one} does not answer: {found}", style="red"))
        else:
            parts.append(topology_frame(found, time.time() - found.since_s, window))
    if not parts:
        parts.append(Text("There is no topology. Start one with: sunshower submit FILE.py"))
    return Group(*parts)


def topology_frame(found: Overview, up_s: float, window: str) -> Group:
    """One topology: its state, the table by capacity, failures by place, problems. `up_s`: since it
    was submitted."""
    from sunshower.cli.health import current_problems
    from sunshower.cli.statistics import load_tables

    snapshot, graph = found.snapshot, found.plan.graph
    acts = load_tables.activities(snapshot, [*graph.components], window, up_s)
    when = load_tables.window_title(window, acts)
    title = f"{snapshot.topology}  ·  {snapshot.state}  ·  up {elapsed(up_s)}  ·  {when}"
    red = [*current_problems(snapshot), *filter(None, (found.error, snapshot.untracked))]
    return Group(
        load_tables.load_table(graph, snapshot, acts, title, by_load=True),
        *map(Text, load_tables.watermark_lines(graph, snapshot)),
        *map(Text, load_tables.fill_lines(graph, snapshot)),
        *(Text(line, style="yellow") for line in load_tables.place_lines(graph, acts, when)),
        *(Text(line, style="red") for line in red),
    )


def _read_key(seconds: float) -> str:
    ready, _, _ = select.select([sys.stdin], [], [], seconds)
    return sys.stdin.read(1) if ready else ""


def _wait_without_keys(seconds: float) -> str:
    time.sleep(seconds)
    return ""
