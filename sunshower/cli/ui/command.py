"""`sunshower ui`: serves the page for all topologies of a cluster."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from sunshower.cli.cluster_options import Address, connect
from sunshower.cli.formatting import echo
from sunshower.cli.kafka import Settings, client_pairs
from sunshower.cli.run import FromEnvironment, FromFile
from sunshower.errors import ClusterError, ConfigError

if TYPE_CHECKING:
    from sunshower.actors.run import RayRun
    from sunshower.cli.screen import Screen
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
    settings: Settings = None,
    from_files: FromFile = None,
    from_environment: FromEnvironment = None,
    address: Address = "auto",
) -> None:
    """Serve a web page that shows the topologies of a cluster, until Ctrl-C.

    The page is live: graphs with rates, latencies, failures and outages. Its actions (activate,
    deactivate, rebalance, kill, replays of dead letters) need the token that is printed at the
    start. The settings are those of Kafka's client that reads topics with dead letters, added to
    those of the topology: passwords, for example.
    """
    from sunshower.experiments.runner.interrupts import Interrupts

    check_packages()
    from sunshower.cli.ui.source import RaySource

    kafka = client_pairs(settings, from_files, from_environment)
    with Interrupts() as interrupts, connect(address) as cluster:
        source = RaySource(cluster.runs, cluster.find, "kill", kafka)
        with opened_page(source, host, port) as lines:
            interrupts.defer()
            for line in lines:
                echo(line)
            echo("Ctrl-C ends this server; the topologies go on.")
            while not interrupts.requested:
                interrupts.wait(_LOOK_EVERY_S)


def check_packages() -> None:
    """Raise ConfigError if a package that serves the page is missing."""
    from importlib.util import find_spec

    from sunshower.cli.doctor.packages import install_command

    for name in _PACKAGES:
        if find_spec(name) is None:
            raise ConfigError(f"{name}, which serves the page, is missing: {install_command('ui')}")


@contextmanager
def opened_page(
    source: TopologySource, host: str = "127.0.0.1", port: int | None = None
) -> Iterator[list[str]]:
    """Serve the page with a new token; yields the lines that tell the user both."""
    from sunshower.web.server import served_page

    token = secrets.token_urlsafe(16)
    with served_page(source, token, host, port) as url:
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
