"""The command line. `main` is what `sunshower` calls; each command has a file of its own."""

from __future__ import annotations

import sys
from functools import partial
from typing import Annotated

import typer

from sunshower.cli.complaints import complaint
from sunshower.cli.describe import describe
from sunshower.cli.dev import dev
from sunshower.cli.doctor import doctor
from sunshower.cli.experiment import app as experiment
from sunshower.cli.hashes import start_again
from sunshower.cli.kafka import kafka
from sunshower.cli.run import run
from sunshower.cli.simulate import simulate
from sunshower.cli.status import list_, status
from sunshower.cli.steering import activate, deactivate, kill, rebalance
from sunshower.cli.submit import submit
from sunshower.demo.command import demo
from sunshower.errors import SunshowerError

app = typer.Typer(
    name="sunshower",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (run, describe, simulate, demo, doctor):
    app.command(no_args_is_help=command in (run, describe, simulate))(command)
app.add_typer(experiment, name="experiment")
app.add_typer(dev)
app.add_typer(kafka)
on_cluster = partial(app.command, rich_help_panel="On a cluster")
on_cluster(no_args_is_help=True)(submit)
on_cluster("list")(list_)
for steer in (status, activate, deactivate, rebalance, kill):
    on_cluster(no_args_is_help=True)(steer)


def _show_version(wanted: bool) -> None:
    if wanted:
        # The package itself was imported before this module; the house asks nobody to import it.
        typer.echo(f"sunshower {sys.modules['sunshower'].__version__}")
        raise typer.Exit


@app.callback()
def sunshower(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Storm's guaranteed processing (spouts, bolts, tuple trees) on Ray, in plain Python.

    Start with `sunshower demo`: it counts words on Ray, kills an actor in the middle and proves
    that no line is missing.
    """


def main(arguments: list[str] | None = None) -> None:
    """Run one command and exit: 0 done, 1 an error of ours, 2 wrong usage, 130 interrupted."""
    if arguments is None and sys.argv[1:3] == ["experiment", "run"]:
        start_again()
    try:
        app(arguments)
    except SunshowerError as error:
        typer.echo(complaint(error), err=True)
        sys.exit(1)
