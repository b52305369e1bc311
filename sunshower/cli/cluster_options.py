"""Shared by several commands: their options, the connection, times, the wait display."""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from sunshower.cli.formatting import print_lines
from sunshower.errors import ClusterError

if TYPE_CHECKING:
    from sunshower.actors.cluster import RayCluster
    from sunshower.runtime.events.metrics import Snapshot

_LINE_EVERY_S = 2.0
_CONNECT_S = 5.0
_AGO = re.compile(r"(\d+(?:\.\d+)?)([smhd])")
_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400}

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
RunsFolder = Annotated[
    Path,
    typer.Option("--folder", metavar="DIR", help="Where the folders of all experiment runs are."),
]
RUNS_FOLDER = Path("experiments")
Wait = Annotated[
    float | None,
    typer.Option(
        "--wait",
        min=0,
        metavar="SECONDS",
        show_default=False,
        help="How long to wait for pending tuples. By default the message timeout.",
    ),
]


def connect(address: str) -> RayCluster:
    """Connect to the Ray at `address`, where topologies outlive this process. Raises
    ClusterError."""
    from sunshower.actors.cluster import RayCluster

    check_address(address)
    return RayCluster(address, detached=True)


def progress(console: Console, doing: str) -> Callable[[Snapshot], None]:
    """Return a function that prints, at once and then every two seconds, how many records of a
    snapshot are pending and which tasks wait for a dependency."""
    from sunshower.cli.health import wait_lines

    due_s = 0.0

    def look(snapshot: Snapshot) -> None:
        nonlocal due_s
        now = time.monotonic()
        if now >= due_s:
            due_s = now + _LINE_EVERY_S
            unsettled = sum(task.unsettled for task in snapshot.tasks())
            print_lines(console, [f"{doing}: {unsettled:,} pending …"], "dim")
            print_lines(console, (f"  {one}" for one in wait_lines(snapshot.waiting())), "red")

    return look


def check_address(address: str) -> None:
    """Raise ClusterError unless the port is open: Ray itself would try for minutes."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not colon or not port.isdigit():
        return  # "auto" and the like
    try:
        socket.create_connection((host, int(port)), _CONNECT_S).close()
    except OSError as error:
        raise ClusterError(
            f"no Ray answers at {address}: {error}. Start one with `ray start --head`, which says "
            "its address, or leave --address away"
        ) from error


def moment_of(text: str, now_s: float, hint: str) -> float:
    """The Unix time that `2026-01-31T12:00`, in local time unless it has an offset, or `15m`, so
    long before now, stands for. Raises typer.BadParameter."""
    if found := _AGO.fullmatch(text):
        return now_s - float(found[1]) * _UNITS_S[found[2]]
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError, OSError):
        raise typer.BadParameter(
            f"{text!r} is no time; write 2026-01-31T12:00, or 30s, 15m, 2h or 7d for so long ago",
            param_hint=hint,
        ) from None
