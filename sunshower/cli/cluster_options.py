"""Shared by several commands: options, the connection, queries of topologies, wait display."""

from __future__ import annotations

import json
import re
import socket
import sys
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, TypeVar

import typer
from rich.console import Console

from sunshower.cli.formatting import echo, print_lines
from sunshower.errors import ClusterError, VersionMismatch

if TYPE_CHECKING:
    from sunshower.actors.cluster import RayCluster
    from sunshower.runtime.cluster import Run
    from sunshower.runtime.events.log_lines import LogLine
    from sunshower.runtime.events.metrics import Snapshot
    from sunshower.topologies.graph import Component, Graph

T = TypeVar("T")
_LINE_EVERY_S = 2.0
_CONNECT_S = 5.0
_AGO = re.compile(r"(\d+(?:\.\d+)?)([smhd])")
_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400}

Name = Annotated[
    str,
    typer.Argument(metavar="NAME", help="The topology, as in `list`."),
]
Address = Annotated[
    str,
    typer.Option(
        metavar="HOST:PORT",
        envvar="RAY_ADDRESS",
        help="The Ray cluster; `auto` is that of this machine. With the address of its dashboard, "
        "`http://HOST:8265`, the command runs on the head as a Ray job.",
    ),
]
RunsFolder = Annotated[
    Path,
    typer.Option("--folder", metavar="DIR", help="The folder of all experiment runs."),
]
RUNS_FOLDER = Path("experiments")
ANSWER_WITHIN_S = 5.0  # of a master; Prometheus waits for ten seconds
_AT_ONCE = 16  # topologies that are asked at the same time


def _known_window(name: str) -> str:
    from sunshower.runtime.events.metrics import NAMES

    if name not in NAMES:
        raise typer.BadParameter(f"{name!r} is none of {', '.join(NAMES)}")
    return name


Window = Annotated[
    str,
    typer.Option(
        metavar="1m|10m|1h|all", callback=_known_window, help="The time window of the rates."
    ),
]
Wait = Annotated[
    float | None,
    typer.Option(
        "--wait",
        min=0,
        metavar="SECONDS",
        help="The longest wait for pending tuples. By default the message timeout.",
    ),
]


def connect(address: str, *, as_job: bool = True, working_dir: Path | None = None) -> RayCluster:
    """Connect to the Ray at `address`, where topologies outlive this process.

    If that is the address of a dashboard, this command runs there instead, as a Ray job, and
    typer.Exit is raised with its exit status; without `as_job`, because the command needs this
    machine, it is refused. Raises ClusterError.
    """
    from sunshower.actors.cluster import RayCluster
    from sunshower.actors.ray_jobs import is_dashboard

    if is_dashboard(address) and as_job:
        exit_as_job(address, sys.argv[1:])
    check_address(address)
    return RayCluster(address, detached=True, working_dir=working_dir)


def exit_as_job(
    address: str, arguments: Sequence[str], working_dir: Path | None = None
) -> NoReturn:
    """Run a command of Sunshower where that dashboard is. Raises typer.Exit with its status."""
    from sunshower.actors.ray_jobs import run_as_job

    _check_port(re.sub(r"^https?://|/.*$", "", address))
    job_arguments = without_option("--address", arguments)
    raise typer.Exit(run_as_job(address, job_arguments, echo, working_dir))


def without_option(name: str, arguments: Sequence[str]) -> list[str]:
    """The arguments of a command without the option of that name and its value."""
    others: list[str] = []
    rest = iter(arguments)
    for argument in rest:
        if argument == name:
            next(rest, None)
        elif not argument.startswith(f"{name}="):
            others.append(argument)
    return others


def ask_all(
    names: Iterable[str], ask: Callable[[str], T]
) -> list[tuple[str, T | ClusterError | VersionMismatch]]:
    """Ask topologies at the same time; returns their answers by name, sorted. An error says that a
    master is away, or of another release."""

    def answer(name: str) -> T | ClusterError | VersionMismatch:
        try:
            return ask(name)
        except (ClusterError, VersionMismatch) as error:
            return error

    ordered = sorted(names)
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(zip(ordered, pool.map(answer, ordered), strict=True))


def known_component(graph: Graph, name: str) -> Component:
    """Return a component. Raises ClusterError, which names those that are there."""
    if (component := graph.components.get(name)) is None:
        raise ClusterError(
            f"topology {graph.id!r} has no component {name!r}; it has {', '.join(graph.components)}"
        )
    return component


def progress(console: Console, doing: str) -> Callable[[Snapshot], None]:
    """Return a function that prints, at once and then every two seconds, how many records of a
    snapshot are pending, which batches are open, and which tasks wait for a dependency or workers
    for a node."""
    from sunshower.cli.health import wait_lines
    from sunshower.cli.statistics import batch_lines

    due_s = 0.0

    def look(snapshot: Snapshot) -> None:
        nonlocal due_s
        now = time.monotonic()
        if now >= due_s:
            due_s = now + _LINE_EVERY_S
            unsettled = sum(task.unsettled for task in snapshot.tasks())
            print_lines(console, [f"{doing}: {unsettled:,} pending …"], "dim")
            print_lines(console, (f"  {line}" for line in batch_lines(snapshot)), "dim")
            waits = [*wait_lines(snapshot.waiting()), *snapshot.unplaced]
            print_lines(console, (f"  {wait}" for wait in waits), "red")

    return look


def node_news(console: Console) -> Callable[[Snapshot], None]:
    """Return a function that prints which workers wait for a node, whenever that changes."""
    printed: list[str] = []

    def look(snapshot: Snapshot) -> None:
        lines = list(snapshot.unplaced)
        if lines and lines != printed:
            print_lines(console, lines, "yellow")
            printed[:] = lines

    return look


def check_address(address: str) -> None:
    """Raise ClusterError unless the port is open: Ray itself would try for minutes. `auto` may
    stand for a Ray that is gone, whose address is still in a file."""
    if address == "auto":
        from sunshower.actors.starting import address_here

        if last := address_here():
            _check_port(
                last,
                "name one with --address HOST:PORT. This is the address that the last Ray on this "
                "machine has left",
            )
    if "://" in address:
        raise ClusterError(
            f"this command cannot use {address}: it reads or writes files, or listens, on this "
            "machine. Give HOST:PORT, the head's, on a node of the cluster"
            if address.startswith("http")
            else f"{address} is an address of Ray's client, which Sunshower does not use: give the "
            "dashboard's, http://HOST:8265, or HOST:PORT, the head's, on a node of the cluster"
        )
    _check_port(address)


def _check_port(address: str, otherwise: str = "leave --address away") -> None:
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdigit():
        return  # "auto" and the like
    try:
        socket.create_connection((host, int(port)), _CONNECT_S).close()
    except OSError as error:
        raise ClusterError(
            f"no Ray answers at {address}: {error}. Start one with `ray start --head`, which says "
            f"its address, or {otherwise}"
        ) from error


def moment_of(text: str, now_s: float, hint: str) -> float:
    """The Unix time that `2026-01-31T12:00`, in local time unless it has an offset, or `15m`, so
    long before now, stands for. Raises typer.BadParameter."""
    if ago := _AGO.fullmatch(text):
        return now_s - float(ago[1]) * _UNITS_S[ago[2]]
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError, OSError):
        raise typer.BadParameter(
            f"{text!r} is not a time; write 2026-01-31T12:00, or 30s, 15m, 2h or 7d before now",
            param_hint=hint,
        ) from None


def new_lines(run: Run, components: Collection[str], after: int) -> tuple[list[LogLine], int]:
    """The lines of these components, or of all, with a number above `after`; and the number of the
    last one. Raises ClusterError for a component that is not there."""
    for component in components:
        known_component(run.plan.graph, component)
    lines = run.log_lines(after)
    chosen = [line for line in lines if not components or line.component in components]
    return chosen, lines[-1].number if lines else after


def stored_entries(
    run: Run, component: str, key: Sequence[str], limit: int
) -> list[tuple[Any, Any]]:
    """The key that these texts mean with its value, if there is one; without texts, up to `limit`
    keys with their values. Raises as Run.query."""
    if not key:
        return run.entries(component, limit)
    for meant in product(*map(_meanings, key)):
        one_key = meant[0] if len(meant) == 1 else meant
        if (value := run.query(component, one_key)) is not None:
            return [(one_key, value)]
    return []


def _meanings(text: str) -> list[Any]:
    """The values that an argument may stand for."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return [text]
    return [text] if isinstance(value, list | dict) else [text, value]
