"""`sunshower kafka lag`: how far a group has read its topics."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from sunshower.errors import ConfigError

if TYPE_CHECKING:
    from rich.table import Table

    from sunshower.kafka.lag import Lag

kafka = typer.Typer(
    name="kafka", no_args_is_help=True, help="Look at a Kafka: how far its groups have read."
)


@kafka.callback()
def _room() -> None:
    """Look at a Kafka: how far its groups have read."""


Group = Annotated[str, typer.Argument(metavar="GROUP", show_default=False)]
Bootstrap = Annotated[
    str, typer.Option(metavar="HOST:PORT,…", help="Where some of the brokers listen.")
]
Topics = Annotated[
    list[str] | None,
    typer.Option(
        "--topic",
        metavar="NAME",
        show_default=False,
        help="Only this topic, also where the group has committed nothing. May be given again.",
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        show_default=False,
        help="A setting of librdkafka's, such as security.protocol=SSL. May be given again.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")]


@kafka.command(no_args_is_help=True)
def lag(
    group: Group,
    bootstrap: Bootstrap = "127.0.0.1:9092",
    topic: Topics = None,
    settings: Settings = None,
    as_json: AsJson = False,
) -> None:
    """Show how many messages a group has still to read, partition by partition.

    `sunshower kafka lag words --json` says it to programs.
    """
    from sunshower.kafka.groups import lags
    from sunshower.kafka.lag import total

    found = lags({"bootstrap.servers": bootstrap, **_pairs(settings or [])}, group, topic or ())
    if as_json:
        rows = [_row(one) for one in found]
        typer.echo(json.dumps({"group": group, "lag": total(found), "partitions": rows}))
        return
    from rich.console import Console

    Console().print(_table(group, found))


def _pairs(settings: list[str]) -> dict[str, str]:
    pairs = [setting.partition("=") for setting in settings]
    if wrong := [name for name, equals, _ in pairs if not equals]:
        raise ConfigError(f"--set {wrong[0]}: a value is missing, as in --set {wrong[0]}=…")
    return {name: value for name, _, value in pairs}


def _row(one: Lag) -> dict[str, object]:
    topic, number = one.partition
    figures = asdict(one) | {"lag": one.lag, "removed": one.removed}
    return {"topic": topic, "number": number, **figures, "partition": str(one.partition)}


def _table(group: str, found: list[Lag]) -> Table:
    from rich import box
    from rich.table import Table

    from sunshower.kafka.lag import total

    table = Table(
        title=f"group {group}  ·  lag {total(found):,}",
        title_style="bold",
        title_justify="left",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
    )
    table.add_column("partition", overflow="fold")
    for heading in ("begin", "committed", "end", "lag", "removed unread"):
        table.add_column(heading, justify="right", no_wrap=True)
    for one in found:
        at = "–" if one.committed is None else f"{one.committed:,}"
        removed = f"{one.removed:,}" if one.removed else ""
        cells = (f"{one.begin:,}", at, f"{one.end:,}", f"{one.lag:,}", removed)
        table.add_row(str(one.partition), *cells, style="bold" if one.lag else None)
    return table
