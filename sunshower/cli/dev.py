"""`sunshower dev up`, `down` and `status`: start, end and show a local Kafka and ZooKeeper."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.console import Console

from sunshower.cli.formatting import Terminal, echo, echo_json
from sunshower.cli.program_options import AsJson
from sunshower.errors import ServerError

if TYPE_CHECKING:
    from sunshower.dev.jars import Look
    from sunshower.dev.servers import Servers
    from sunshower.dev.units import Unit

PORTS = {"zookeeper": 2181, "kafka": 9092}  # the usual ports, in starting order

What = Annotated[
    Literal["kafka", "zookeeper", "all"],
    typer.Argument(metavar="kafka|zookeeper|all", show_default=False),
]
Brokers = Annotated[
    int,
    typer.Option(min=1, max=9, metavar="N", help="The number of Kafka brokers."),
]
Folder = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        file_okay=False,
        help="Keep the data here, for the next `up`. By default `down` deletes it.",
    ),
]
Port = Annotated[
    int | None,
    typer.Option(
        min=0,
        max=65_000,
        metavar="N",
        help="The port; further brokers use the ports after it. 0: any free ports. "
        "By default 9092 for Kafka and 2181 for ZooKeeper.",
    ),
]
OnZooKeeper = Annotated[
    bool,
    typer.Option(
        "--on-zookeeper",
        help="Start Kafka 3.9, which publishes its brokers and topics in ZooKeeper, and a "
        "ZooKeeper, unless one runs. By default Kafka 4, which needs no ZooKeeper.",
    ),
]


@dataclass(frozen=True)
class UpOptions:
    """The options of `sunshower dev up`."""

    brokers: int
    folder: Path | None
    port: int | None
    zookeeper: str | None = None  # the ZooKeeper where Kafka registers


dev = typer.Typer(
    name="dev",
    no_args_is_help=True,
    help="Start, show and stop a Kafka and a ZooKeeper for development, on this machine.",
)


@dev.command(no_args_is_help=True)
def up(
    what: What,
    brokers: Brokers = 1,
    folder: Folder = None,
    port: Port = None,
    on_zookeeper: OnZooKeeper = False,
) -> None:
    """Start servers that listen on 127.0.0.1, and wait until they answer.

    They run until `sunshower dev down`. The first start downloads their jars (50 MB). Example:

        sunshower dev up kafka --brokers 3
    """
    if what == "zookeeper" and (brokers > 1 or on_zookeeper):
        raise typer.BadParameter("ZooKeeper has no brokers: these options are for Kafka")
    if what == "all" and port:
        raise typer.BadParameter("of which of the two? Start them one by one", param_hint="--port")
    from sunshower.dev import units

    options = UpOptions(brokers, folder, port)
    console = Terminal(stderr=True)
    with units.locked():
        if on_zookeeper or what != "kafka":
            port_of_zookeeper = port if what == "zookeeper" or not port else None
            of_zookeeper = replace(options, port=port_of_zookeeper)
            connect = _bring_up("zookeeper", of_zookeeper, console).address
            options = replace(options, zookeeper=connect if on_zookeeper else None)
        if what != "zookeeper":
            _bring_up("kafka", options, console)


@dev.command()
def down(what: What = "all") -> None:
    """Stop the servers that `up` started; delete their data unless they had a --folder.

    `sunshower dev down` stops all, `sunshower dev down kafka` only Kafka.
    """
    from sunshower.dev import units

    with units.locked():
        names = list(reversed(PORTS)) if what == "all" else [what]
        ended = [unit for name in names if (unit := units.find(name))]
        for unit in ended:
            units.end(unit)
            place = f" Its data is in {unit.folder}." if unit.kept else ""
            echo(f"{unit.release} is down.{place}")
    if not ended:
        echo("Nothing is up." if what == "all" else f"{what} is not up.")


@dev.command()
def status(as_json: AsJson = False) -> None:
    """Show which servers run, their addresses and their log files.

    `sunshower dev status --json` prints JSON.
    """
    from sunshower.dev import units

    with units.locked():
        running = [unit for name in PORTS if (unit := units.find(name))]
    if as_json:
        rows = [asdict(unit) | {"answers": not unit.silent()} for unit in running]
        echo_json({row["name"]: row for row in rows})
        return
    if not running:
        echo("Nothing is up. Start it with: sunshower dev up kafka")
    for unit in running:
        gone = unit.silent()
        state = f"does not answer at {', '.join(gone)}" if gone else "answers"
        echo(f"{unit.release} {state}")
        _print_address(unit)


def _bring_up(name: str, options: UpOptions, console: Console) -> Unit:
    """Start one unit, unless it is up already. Raises ServerError."""
    from sunshower.dev import units
    from sunshower.dev.servers import PortTaken

    if unit := units.find(name):
        if gone := unit.silent():
            raise ServerError(
                f"{unit.release} was started, and does not answer at {', '.join(gone)} (its logs: "
                f"{', '.join(unit.logs)}). Stop it first: sunshower dev down {name}"
            )
        ending = f"`sunshower dev down {name}` ends it"
        echo(f"{unit.release} is up already, and stays as it is; {ending}.")
        _print_address(unit)
        return unit
    with console.status(f"Starting {name} …") as line:

        def look(doing: str) -> None:
            if console.is_terminal:
                line.update(f"Starting {name}: {doing} …")
            else:
                console.print(f"{name}: {doing} …", highlight=False, soft_wrap=True)

        servers = _servers(name, options, look)
        try:
            servers.start()
        except PortTaken as error:
            raise ServerError(
                f"{error}. Choose another: sunshower dev up {name} --port N (0: any free one)."
            ) from error
    unit = _unit(name, servers, kept=options.folder is not None)
    units.record(unit)
    servers.stay()
    echo(f"{unit.release} is up.")
    _print_address(unit)
    return unit


def _servers(name: str, options: UpOptions, look: Look) -> Servers:
    from sunshower.dev import units
    from sunshower.dev.kafka import Kafka
    from sunshower.dev.servers import Upkeep
    from sunshower.dev.zookeeper import ZooKeeper

    folder = (options.folder or units.state()) / name
    port = PORTS[name] if options.port is None else options.port
    how = Upkeep(folder, keep=options.folder is not None, short_lived=False, look=look)
    if name == "zookeeper":
        return ZooKeeper(how, port=port)
    return Kafka(options.brokers, how, port=port, zookeeper=options.zookeeper)


def _unit(name: str, servers: Servers, *, kept: bool) -> Unit:
    from sunshower.dev.units import Unit, start_time

    return Unit(
        name=name,
        release=servers.release.name,
        address=servers.address,
        logs=tuple(map(str, servers.logs())),
        folder=str(servers.folder),
        kept=kept,
        keeper=servers.keeper,
        started=start_time(servers.keeper) or "",
        processes=servers.processes,
    )


def _print_address(unit: Unit) -> None:
    what = {"kafka": "bootstrap servers", "zookeeper": "connect string"}[unit.name]
    echo(f"  {what}: {unit.address}")
    for log, process in zip_longest(unit.logs, unit.processes, fillvalue="unknown"):
        echo(f"  log of process {process}: {log}")
