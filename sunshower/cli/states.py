"""`sunshower state list|get|export|import`: the states of a program from outside."""

from __future__ import annotations

import os
import secrets
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sunshower.cli.formatting import Terminal, echo, echo_json, new_table, number_of
from sunshower.cli.program_options import AsJson, Settings, Target, load_graph
from sunshower.errors import ClusterError, ConfigError
from sunshower.json_values import key_of

if TYPE_CHECKING:
    from sunshower.topologies.graph import Graph
    from sunshower.trident.states.stored_states import StoredState, Summary

state = typer.Typer(
    name="state",
    no_args_is_help=True,
    help="List, read, export and import the states that a program has in stores.",
)
Name = Annotated[
    str, typer.Argument(metavar="NAME", help="The state, or its component, as in `list`.")
]
File = Annotated[
    Path,
    typer.Argument(
        metavar="FILE", help="JSON lines (.jsonl), or Parquet (.parquet), by its suffix."
    ),
]
Address = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT",
        envvar="RAY_ADDRESS",
        help="The Ray cluster that is asked whether the program runs. By default that of this "
        "machine, if there is one.",
    ),
]


@state.command("list", no_args_is_help=True)
def list_(target: Target, settings: Settings = None, as_json: AsJson = False) -> None:
    """List the states of a program, and what else is in its stores.

    A state without a component is one that this program does not declare.
    """
    graph, _ = load_graph(target, settings, None)
    rows = [(stored, stored.summary()) for stored in _states(graph)]
    if as_json:
        echo_json({"states": [_facts(stored, summary) for stored, summary in rows]})
        return
    if not rows:
        echo(f"topology {graph.id} has no state in a store")
        return
    for where in dict.fromkeys(stored.factory.where for stored, _ in rows):
        columns = ("state", "component", "of", "last write")
        table = new_table(*columns, numbers=("tasks", "keys", "version"))
        for stored, summary in rows:
            if stored.factory.where == where:
                last = summary.last_write or "–"
                if summary.importing:
                    last = f"importing {summary.importing}"
                table.add_row(
                    *(stored.name, stored.component or "–", stored.holder, last),
                    *(str(summary.tasks or "–"), f"{summary.keys:,}", str(summary.version or "–")),
                )
        echo(where)
        Terminal().print(table)


@state.command(no_args_is_help=True)
def get(
    target: Target,
    name: Name,
    key: Annotated[
        str,
        typer.Argument(
            metavar="KEY",
            help="A text, or JSON: 7, '\"7\"', or '[\"de\", 7]' for a key of two fields.",
        ),
    ],
    settings: Settings = None,
) -> None:
    """Print the value of a key, as a line of JSON."""
    stored = _find(load_graph(target, settings, None)[0], name)
    for candidate in _keys(key):
        if (value := stored.get(candidate)) is not None:
            echo(stored.text(value))
            return
    raise ConfigError(f"state {stored.name!r} has no key {key}")


@state.command("export", no_args_is_help=True)
def export_(target: Target, name: Name, file: File, settings: Settings = None) -> None:
    """Write all keys and values of a state to a new file."""
    from sunshower.connectors.state_files import content_of, is_parquet
    from sunshower.state.sqlite import NewFile

    parquet = is_parquet(file)
    stored = _find(load_graph(target, settings, None)[0], name)
    entries = sorted(stored.items(), key=lambda entry: repr(entry[0]))
    data = content_of(stored, entries, parquet=parquet)
    try:
        with NewFile(file) as new:
            new.write(data)
            new.publish()
    except OSError as error:
        raise ConfigError(f"{file} cannot be written: {os.strerror(error.errno or 0)}") from error
    echo(f"{file} has {number_of(len(entries), 'key')} of state {stored.name!r}.")


@state.command("import", no_args_is_help=True)
def import_(
    target: Target,
    name: Name,
    file: File,
    instead: Annotated[
        bool,
        typer.Option(
            "--instead",
            help="Complete with this file an import of another one that was interrupted, whose "
            "file is gone. What that one has written stays, beside the keys of this file, which "
            "may be empty: then `export` shows what there is.",
        ),
    ] = False,
    settings: Settings = None,
    address: Address = None,
) -> None:
    """Write the keys and values of a file to a state: all of them, or none.

    Other keys stay as they are; a key whose value is null is removed. The program must not run.
    """
    from sunshower.connectors.state_files import is_parquet, read_into
    from sunshower.trident.states.stored_states import StateImport

    is_parquet(file)
    graph = load_graph(target, settings, None)[0]
    stored = _find(graph, name)
    try:
        data = file.read_bytes()
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {os.strerror(error.errno or 0)}") from error
    checksum, process = zlib.crc32(data), secrets.token_hex(8)
    importing = StateImport(graph.id, stored, file.name, checksum, process=process, instead=instead)
    read_into(importing, stored, file, data)
    _check_stopped(graph.id, address)
    written, removed = importing.write()
    gone = f", {number_of(removed, 'key')} removed" if removed else ""
    echo(f"{number_of(written, 'key')} imported into state {stored.name!r}{gone}.")


def _states(graph: Graph) -> list[StoredState]:
    """The states in stores that outlive a process."""
    from sunshower.trident.states.factories import MemoryState
    from sunshower.trident.states.stored_states import states_of_program

    states = states_of_program(graph)
    return [stored for stored in states if not isinstance(stored.factory, MemoryState)]


def _find(graph: Graph, name: str) -> StoredState:
    """The state of this name, or of the component of this name."""
    states = _states(graph)
    for attribute in ("name", "component"):
        matching = [stored for stored in states if getattr(stored, attribute) == name]
        if len(matching) == 1:
            return matching[0]
    names = ", ".join(sorted({stored.name for stored in states})) or "none"
    several = [stored for stored in states if stored.name == name]
    if several:
        components = ", ".join(stored.component or stored.factory.where for stored in several)
        raise ConfigError(f"{len(several)} states are called {name!r}: say which by {components}")
    raise ConfigError(f"topology {graph.id!r} has no state {name!r} in a store; there are: {names}")


def _keys(text: str) -> list[Any]:
    """The keys that a text of a command line may mean."""
    try:
        return [text, key_of(text)]
    except (ValueError, TypeError, KeyError):
        return [text]


def _check_stopped(topology: str, address: str | None) -> None:
    """Raise ConfigError if the program runs on that cluster."""
    from sunshower.actors.local_head import is_announced
    from sunshower.cli.cluster_options import connect

    if address is None and not is_announced():
        return
    try:
        with connect(address or "auto", as_job=False) as cluster:
            runs = cluster.runs()
    except ClusterError:
        if address is not None:
            raise
        return
    if topology in runs:
        raise ConfigError(
            f"topology {topology!r} runs, and would write the state meanwhile: end it with "
            f"`sunshower kill {topology}`, import, and submit it again"
        )


def _facts(stored: StoredState, summary: Summary) -> dict[str, Any]:
    return {
        "state": stored.name,
        "component": stored.component or None,
        "of": stored.holder,
        "kind": stored.factory.kind.value,
        "store": stored.factory.where,
        **summary._asdict(),
    }
