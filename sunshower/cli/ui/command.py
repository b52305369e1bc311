"""`sunshower ui`: serves the page for all topologies of a cluster, and for stored experiments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sunshower.cli.cluster_options import RUNS_FOLDER, Address, RunsFolder, connect
from sunshower.cli.formatting import echo
from sunshower.cli.kafka import client_settings
from sunshower.cli.program_options import made_of_options
from sunshower.cli.ui.page import check_server, opened_page
from sunshower.errors import ClusterError

if TYPE_CHECKING:
    from sunshower.cli.ui.source import TopologySource
    from sunshower.runtime.control.overview import Overview


Host = Annotated[
    str,
    typer.Option(
        metavar="HOST",
        help="The address to listen on. Everyone who connects can read; actions need the token.",
    ),
]
Port = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=0,
        max=65535,
        help="The port; 0: any free port. By default 8127, or a free port if that is in use.",
    ),
]


@made_of_options(kafka=client_settings)
def ui(
    host: Host = "127.0.0.1",
    port: Port = None,
    *,
    kafka: dict[str, Any],
    address: Address = "auto",
    folder: RunsFolder = RUNS_FOLDER,
) -> None:
    """Serve a web page that shows the topologies of a cluster, until Ctrl-C.

    The page shows live graphs with rates, latencies, failures and outages. Its actions (activate,
    deactivate, rebalance, kill, replays of dead letters) need the token that is printed at the
    start. --set and --set-from-… add settings, such as passwords, of the Kafka client that reads
    topics with dead letters. The page also shows the runs of experiments in a folder; if there are
    any, it works without Ray.
    """
    from sunshower.experiments.runner.interrupts import Interrupts

    check_server()
    with (
        Interrupts() as interrupts,
        _topologies(address, folder, kafka) as (source, note),
        opened_page(source, host, port, folder) as lines,
    ):
        interrupts.defer()
        for line in [*lines, note]:
            echo(line)
        interrupts.wait_for_request()


@contextmanager
def _topologies(
    address: str, folder: Path, kafka: Mapping[str, Any]
) -> Iterator[tuple[TopologySource, str]]:
    """Yields the topologies of the Ray at `address`, and a line for the user; none if no Ray runs
    on this machine and `folder` has runs of experiments."""
    from sunshower.cli.profiles import recorded_profile
    from sunshower.cli.ui.source import RaySource, TopologySource
    from sunshower.experiments.runner.run_folders import run_paths

    try:
        connected = connect(address, as_job=False)
    except ClusterError:
        if address != "auto" or not run_paths(folder):
            raise
        note = f"No Ray runs on this machine: the page has the runs in {folder} alone."
        yield TopologySource(list, _no_ray), f"{note} Ctrl-C ends this server."
        return
    with connected as cluster:
        note = "Ctrl-C ends this server; the topologies go on."
        yield RaySource(cluster.runs, cluster.find, "kill", recorded_profile, kafka), note


def _no_ray(name: str) -> Overview:
    raise ClusterError(f"there is no topology {name!r}: no Ray ran here when this server started")
