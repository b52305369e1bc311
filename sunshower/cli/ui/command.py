"""`sunshower ui`: serves the page for all topologies of a cluster, and for kept experiments."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sunshower.cli.cluster_options import RUNS_FOLDER, Address, RunsFolder, connect
from sunshower.cli.formatting import echo
from sunshower.errors import ClusterError, ConfigError

if TYPE_CHECKING:
    from sunshower.actors.run import RayRun
    from sunshower.cli.screen import Screen
    from sunshower.runtime.control.overview import Overview
    from sunshower.runtime.events.metrics import Snapshot
    from sunshower.web.source import TopologySource

_LOOK_EVERY_S = 1.0
_PACKAGES = ("starlette", "uvicorn")

Host = Annotated[
    str,
    typer.Option(
        metavar="HOST",
        help="Where to listen. Everyone who can connect can read the page; actions need the token.",
    ),
]
Port = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=0,
        max=65535,
        show_default=False,
        help="Where to listen; 0: any free port. By default 8127, or a free one if that is taken.",
    ),
]


def ui(
    host: Host = "127.0.0.1",
    port: Port = None,
    address: Address = "auto",
    folder: RunsFolder = RUNS_FOLDER,
) -> None:
    """Serve a web page that shows the topologies of a cluster, until Ctrl-C.

    The page is live: graphs with rates, latencies, failures and outages. Its actions (activate,
    deactivate, rebalance, kill) need the token that is printed at the start. It also shows the runs
    of experiments in a folder; if there are any, it needs no Ray.
    """
    from sunshower.experiments.runner.interrupts import Interrupts

    check_packages()
    with (
        Interrupts() as interrupts,
        _topologies(address, folder) as (source, note),
        opened_page(source, host, port, folder) as lines,
    ):
        interrupts.defer()
        for line in [*lines, note]:
            echo(line)
        while not interrupts.requested:
            interrupts.wait(_LOOK_EVERY_S)


@contextmanager
def _topologies(address: str, folder: Path) -> Iterator[tuple[TopologySource, str]]:
    """Yields the topologies of the Ray at `address`, and a line for the user; none if no Ray runs
    on this machine and `folder` has runs of experiments."""
    from sunshower.cli.ui.source import OverviewSource, RaySource
    from sunshower.experiments.runner.run_folders import run_paths

    with ExitStack() as stack:
        try:
            cluster = stack.enter_context(connect(address))
        except ClusterError:
            if address != "auto" or not run_paths(folder):
                raise
            note = f"No Ray runs on this machine: the page has the runs in {folder} alone."
            yield OverviewSource(list, _no_ray), f"{note} Ctrl-C ends this server."
        else:
            note = "Ctrl-C ends this server; the topologies go on."
            yield RaySource(cluster.runs, cluster.find, "kill"), note


def _no_ray(name: str) -> Overview:
    raise ClusterError(f"there is no topology {name!r}: no Ray ran here when this server started")


def check_packages() -> None:
    """Raise ConfigError if a package that serves the page is missing."""
    from importlib.util import find_spec

    from sunshower.cli.doctor.packages import install_command

    for name in _PACKAGES:
        if find_spec(name) is None:
            raise ConfigError(f"{name}, which serves the page, is missing: {install_command('ui')}")


@contextmanager
def opened_page(
    source: TopologySource,
    host: str = "127.0.0.1",
    port: int | None = None,
    folder: Path = RUNS_FOLDER,
) -> Iterator[list[str]]:
    """Serve the page with a new token; yields the lines that tell the user both. `folder`: of the
    runs of experiments."""
    from sunshower.cli.ui.experiments import ExperimentFolders
    from sunshower.web.server import served_page

    token = secrets.token_urlsafe(16)
    with served_page(source, token, host, port, ExperimentFolders(folder)) as url:
        yield [f"The page is at {url}", f"Its actions need this token: {token}"]


@contextmanager
def page_of_run(screen: Screen) -> Iterator[Callable[[RayRun, Snapshot], None]]:
    """Yields what TopologySession.run calls with each snapshot: the first call opens the page,
    which the end of this context closes."""
    check_packages()
    from sunshower.cli.ui.source import RaySource

    with ExitStack() as stack:
        opened: list[RayRun] = []

        def look(run: RayRun, snapshot: Snapshot) -> None:  # noqa: ARG001
            if not opened:
                opened.append(run)
                source = RaySource(lambda: [run.topology], partial(_find, run), "drain")
                for line in stack.enter_context(opened_page(source)):
                    screen.say(line)

        yield look


def _find(run: RayRun, name: str) -> RayRun:
    if name != run.topology:
        raise ClusterError(f"this page shows {run.topology!r} alone, not {name!r}")
    return run
