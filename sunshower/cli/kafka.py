"""`sunshower kafka lag`: shows the progress of a consumer group in its topics."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from sunshower.cli.formatting import Terminal, echo_json, new_table
from sunshower.cli.program_options import (
    AsJson,
    FromEnvironment,
    FromFile,
    made_of_options,
    read_secrets,
    refuse_secret,
)
from sunshower.errors import ConfigError

if TYPE_CHECKING:
    from sunshower.kafka.partitions.ports import Lag

kafka = typer.Typer(name="kafka", no_args_is_help=True)


@kafka.callback()
def _group() -> None:
    """Show the progress of the consumer groups of a Kafka."""


Group = Annotated[str, typer.Argument(metavar="GROUP")]
Bootstrap = Annotated[
    str, typer.Option(metavar="HOST:PORT,…", help="The addresses of some brokers.")
]
Topics = Annotated[
    list[str] | None,
    typer.Option(
        "--topic",
        metavar="NAME",
        help="Only this topic, including partitions without a commit. May be repeated.",
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="A setting of librdkafka, such as security.protocol=SSL. May be repeated.",
    ),
]


def client_settings(
    settings: Settings = None,
    from_files: FromFile = None,
    from_environment: FromEnvironment = None,
) -> dict[str, Any]:
    """The settings of a client of Kafka, from options. Raises ConfigError and BadParameter."""
    of_client: dict[str, Any] = {}
    for setting in settings or ():
        name, equals, value = setting.partition("=")
        if not equals:
            raise ConfigError(f"--set {name}: a value is missing, as in --set {name}=…")
        refuse_secret(name)
        of_client[name] = value
    return of_client | read_secrets(from_files, from_environment)


@kafka.command(no_args_is_help=True)
@made_of_options(settings=client_settings)
def lag(
    group: Group,
    bootstrap: Bootstrap = "127.0.0.1:9092",
    topic: Topics = None,
    *,
    settings: dict[str, Any],
    as_json: AsJson = False,
) -> None:
    """Show the number of messages that a group has not yet read, by partition.

    Last stable: the offset at which readers of committed messages wait for an open transaction.
    Removed: messages that retention deleted before the group committed them.
    `sunshower kafka lag words --json` prints JSON. Passwords: --set-from-file sasl.password=FILE.
    """
    from sunshower.kafka.partitions.broker_offsets import lags
    from sunshower.kafka.partitions.ports import total

    partitions = lags({"bootstrap.servers": bootstrap, **settings}, group, topic or ())
    if as_json:
        rows = [_row(partition) for partition in partitions]
        echo_json({"group": group, "lag": total(partitions), "partitions": rows})
        return
    Terminal().print(_table(group, partitions))


def _row(of_partition: Lag) -> dict[str, object]:
    topic, number = of_partition.partition
    figures = asdict(of_partition) | {"lag": of_partition.lag, "removed": of_partition.removed}
    return {"topic": topic, "number": number, **figures, "partition": str(of_partition.partition)}


def _table(group: str, partitions: list[Lag]) -> Table:
    from sunshower.kafka.partitions.ports import total

    table = new_table(
        "partition",
        numbers=("begin", "committed", "last stable", "end", "lag", "removed"),
        title=f"group {group}  ·  lag {total(partitions):,}",
    )
    for partition in partitions:
        at = "–" if partition.committed is None else f"{partition.committed:,}"
        removed = f"{partition.removed:,}" if partition.removed else ""
        stable = "–" if partition.last_stable is None else f"{partition.last_stable:,}"
        cells = (
            f"{partition.begin:,}",
            at,
            stable,
            f"{partition.end:,}",
            f"{partition.lag:,}",
            removed,
        )
        table.add_row(str(partition.partition), *cells, style="bold" if partition.lag else None)
    return table
