"""The command line: registers the commands; `main` is the entry point of `sunshower`."""

from __future__ import annotations

import errno
import os
import sys
from functools import partial
from typing import Annotated

import typer

from sunshower.cli.control import activate, deactivate, rebalance, submit, upgrade
from sunshower.cli.dead.command import dead
from sunshower.cli.demo import demo
from sunshower.cli.dev import dev
from sunshower.cli.doctor.command import doctor
from sunshower.cli.experiment import app as experiment
from sunshower.cli.formatting import echo, escape_what_python_prints, format_error
from sunshower.cli.kafka import kafka
from sunshower.cli.kill.command import kill
from sunshower.cli.logs.command import logs
from sunshower.cli.metrics.command import metrics
from sunshower.cli.new.command import new
from sunshower.cli.profiles.command import profile
from sunshower.cli.run import describe, run
from sunshower.cli.simulate import simulate
from sunshower.cli.statistics.top import top
from sunshower.cli.status import ask, list_, query, status
from sunshower.cli.traces.command import trace
from sunshower.cli.ui.command import ui
from sunshower.errors import SunshowerError

app = typer.Typer(
    name="sunshower",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (new, run, describe, simulate, demo, doctor):
    app.command(no_args_is_help=command not in (demo, doctor))(command)
app.add_typer(experiment, name="experiment")
app.add_typer(dev)
app.add_typer(kafka)
app.add_typer(dead)
on_cluster = partial(app.command, rich_help_panel="On a cluster")
on_cluster(no_args_is_help=True)(submit)
on_cluster("list")(list_)
on_cluster()(ui)
on_cluster()(metrics)
on_cluster()(top)
changing = (activate, deactivate, rebalance, upgrade, kill)
for steer in (status, query, ask, trace, logs, profile, *changing):
    on_cluster(no_args_is_help=True)(steer)


def _show_version(wanted: bool) -> None:
    if wanted:
        # Importing the package here would break the import rules of the layer test.
        echo(f"sunshower {sys.modules['sunshower'].__version__}")
        raise typer.Exit


@app.callback()
def sunshower(
    version: Annotated[  # noqa: ARG001
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Storm's guaranteed processing (spouts, bolts, tuple trees) on Ray, in plain Python.

    Start with `sunshower demo`: it counts words on Ray, kills a worker during the run, and checks
    that no line is missing.
    """
    escape_what_python_prints()  # not earlier: Typer sets a hook for tracebacks when it is called


def main(arguments: list[str] | None = None) -> None:
    """Run one command and exit: 0 success, 1 SunshowerError or a full disk, 2 wrong usage,
    130 interrupted."""
    _open_standard_files()
    if arguments is None and sys.argv[1:3] == ["experiment", "run"]:
        from sunshower.experiments.runner.job_pool import restart_with_hash_seed

        restart_with_hash_seed()
    try:
        app(arguments)
    except SunshowerError as error:
        echo(format_error(error), err=True)
        sys.exit(1)
    except OSError as error:
        if error.errno != errno.ENOSPC or error.filename is not None:
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes it again
        echo(f"sunshower: the output cannot be written: {error.strerror}", err=True)
        sys.exit(1)


def _open_standard_files() -> None:
    """Open the null device in place of standard files that the caller has closed (`>&-`). The next
    file that is opened would get the number of such a one, and what is printed."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)
            if opened != number:
                os.dup2(opened, number)
                os.close(opened)
            os.set_inheritable(number, True)
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, "w" if number else "r", closefd=False))
