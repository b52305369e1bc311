"""`sunshower ui`: serves the page for all topologies of a cluster."""

from __future__ import annotations

from typing import Annotated

import typer

from sunshower.cli.cluster_options import Address, connect
from sunshower.cli.formatting import echo
from sunshower.cli.kafka import Settings, client_pairs
from sunshower.cli.run import FromEnvironment, FromFile
from sunshower.cli.ui.page import check_packages, opened_page

_LOOK_EVERY_S = 1.0

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
