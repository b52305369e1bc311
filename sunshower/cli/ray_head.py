"""`sunshower ray up`, `down` and `status`: start, end and show a Ray on this machine."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sunshower.cli.formatting import echo, echo_json, number_of
from sunshower.cli.program_options import AsJson

if TYPE_CHECKING:
    from sunshower.actors.local_head import LocalHead

Port = Annotated[
    int,
    typer.Option(min=0, max=65535, metavar="N", help="The port of its head; 0: any free port."),
]
Cpus = Annotated[
    int | None,
    typer.Option(min=1, metavar="N", help="How many CPUs it offers. By default all."),
]

ray = typer.Typer(
    name="ray",
    no_args_is_help=True,
    help="Start, show and stop a Ray on this machine, on which topologies outlive a command.",
)


@ray.command()
def up(port: Port = 6379, cpus: Cpus = None) -> None:
    """Start a Ray on this machine, with the settings that `sunshower run` gives to one of its own.

    It runs until `sunshower ray down`. Then `sunshower submit FILE.py` uses it, and so does
    `sunshower run FILE.py --address auto`, which need not start one.
    """
    from sunshower.actors import local_head

    with _locked() as folder:
        if head := local_head.find(folder):
            echo("A Ray is up already, and stays as it is; `sunshower ray down` ends it.")
        else:
            echo("Starting Ray …", err=True)
            head = local_head.start(folder, port, cpus)
            echo("Ray is up.")
    _print_address(head)


@ray.command()
def down() -> None:
    """End the Ray that `up` started, and all topologies on it. Another Ray is left alone."""
    from sunshower.actors import local_head

    with _locked() as folder:
        if head := local_head.find(folder):
            local_head.end(folder, head)
    echo("Ray is down." if head else "No Ray is up that `sunshower ray up` started.")


@ray.command()
def status(as_json: AsJson = False) -> None:
    """Show whether the Ray that `up` started runs, and its address."""
    from sunshower.actors import local_head

    with _locked() as folder:
        head = local_head.find(folder)
    if as_json:
        state = {"processes": head.processes(), "answers": head.answers} if head else {}
        echo_json({**asdict(head), **state} if head else {})
    elif head is None:
        echo("No Ray is up. Start one with: sunshower ray up")
    else:
        processes = number_of(len(head.processes()), "process", "processes")
        answers = "answers" if head.answers else "does not answer"
        echo(f"Ray is up, with {processes}, and {answers}.")
        _print_address(head)


def _print_address(head: LocalHead) -> None:
    echo(f"  address: {head.address}  (--address auto finds it)")
    echo(f"  log of its start: {head.log}")


@contextmanager
def _locked() -> Iterator[Path]:
    """The folder of the note, which only one command at a time uses (XDG_STATE_HOME)."""
    import fcntl

    root = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    folder = Path(root).expanduser() / "sunshower" / "ray"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield folder
