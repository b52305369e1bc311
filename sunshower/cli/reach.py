"""What the commands for a running cluster share: its address, a topology's name, a long wait."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from sunshower.actors.cluster import RayCluster
    from sunshower.runtime.metrics import Snapshot

_LINE_EVERY_S = 2.0

Name = Annotated[
    str,
    typer.Argument(metavar="NAME", show_default=False, help="A topology, as `list` shows it."),
]
Address = Annotated[
    str,
    typer.Option(
        metavar="HOST:PORT",
        envvar="RAY_ADDRESS",
        help="The Ray cluster; `auto` is the one on this machine.",
    ),
]
Wait = Annotated[
    float | None,
    typer.Option(
        "--wait",
        min=0,
        metavar="SECONDS",
        show_default=False,
        help="How long what is pending may take at most. By default the message timeout.",
    ),
]


def reach(address: str) -> RayCluster:
    """The Ray at `address`; what is submitted there outlives us. Raises ClusterError."""
    from sunshower.actors.cluster import RayCluster
    from sunshower.cli.session import check_address

    check_address(address)
    return RayCluster(address, detached=True)


def progress(console: Console, doing: str) -> Callable[[Snapshot], None]:
    """Say now and then how many records are still pending: one line each, the first one at once.
    Below it: what tasks wait for, so that what is pending cannot be finished."""
    from sunshower.cli.waits import wait_lines

    due_s = 0.0

    def look(snapshot: Snapshot) -> None:
        nonlocal due_s
        now = time.monotonic()
        if now >= due_s:
            due_s = now + _LINE_EVERY_S
            unsettled = sum(task.unsettled for task in snapshot.tasks())
            console.print(f"{doing}: {unsettled:,} pending …", style="dim", highlight=False)
            for line in wait_lines(snapshot.waiting()):
                console.print(f"  {line}", style="red", highlight=False, markup=False)

    return look
