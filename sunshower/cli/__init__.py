"""The command line: names the commands; `main` is the entry point of `sunshower`."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Collection
from importlib import import_module
from typing import Annotated, Any, NamedTuple

import typer

from sunshower.cli.formatting import echo, escape_what_python_prints, format_error
from sunshower.errors import SunshowerError

_ON_CLUSTER = "On a cluster"


class _Command(NamedTuple):
    """Where a command is, and how it is shown."""

    module: str
    function: str  # or the Typer of a group of commands
    panel: str | None = None  # of the help
    helps_if_alone: bool = True  # without arguments


# In the order of the help.
_COMMANDS = {
    "new": _Command("new", "new"),
    "run": _Command("run", "run"),
    "describe": _Command("run", "describe"),
    "simulate": _Command("run", "simulate"),
    "demo": _Command("demo", "demo", helps_if_alone=False),
    "doctor": _Command("doctor", "doctor", helps_if_alone=False),
    "submit": _Command("control", "submit", _ON_CLUSTER),
    "list": _Command("status", "list_", _ON_CLUSTER, helps_if_alone=False),
    "ui": _Command("ui.command", "ui", _ON_CLUSTER, helps_if_alone=False),
    "metrics": _Command("metrics", "metrics", _ON_CLUSTER, helps_if_alone=False),
    "top": _Command("status", "top", _ON_CLUSTER, helps_if_alone=False),
    "status": _Command("status", "status", _ON_CLUSTER),
    "query": _Command("status", "query", _ON_CLUSTER),
    "ask": _Command("status", "ask", _ON_CLUSTER),
    "trace": _Command("traces", "trace", _ON_CLUSTER),
    "logs": _Command("logs", "logs", _ON_CLUSTER),
    "profile": _Command("profiles", "profile", _ON_CLUSTER),
    "activate": _Command("control", "activate", _ON_CLUSTER),
    "deactivate": _Command("control", "deactivate", _ON_CLUSTER),
    "rebalance": _Command("control", "rebalance", _ON_CLUSTER),
    "upgrade": _Command("control", "upgrade", _ON_CLUSTER),
    "kill": _Command("control", "kill", _ON_CLUSTER),
    "experiment": _Command("experiment", "app"),
    "dev": _Command("dev", "dev"),
    "ray": _Command("ray_head", "ray"),
    "kafka": _Command("kafka", "kafka"),
    "dead": _Command("dead", "dead"),
    "state": _Command("states", "state"),
}


def make_app(names: Collection[str] = _COMMANDS.keys()) -> typer.Typer:
    """The command line with the commands of these names, of which only the modules are imported."""
    app = typer.Typer(
        name="sunshower",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode="markdown",
        context_settings={"help_option_names": ["-h", "--help"]},
        callback=sunshower,
    )
    for name in names:
        command = _COMMANDS[name]
        module = import_module(f"sunshower.cli.{command.module}")
        code: Any = getattr(module, command.function)
        if isinstance(code, typer.Typer):
            app.add_typer(code, name=name)
        else:
            options: Any = {"rich_help_panel": command.panel} if command.panel else {}
            app.command(name, no_args_is_help=command.helps_if_alone, **options)(code)
    return app


def _show_version(wanted: bool) -> None:
    if wanted:
        # Importing the package here would break the import rules of the layer test.
        echo(f"sunshower {sys.modules['sunshower'].__version__}")
        raise typer.Exit


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
    words = sys.argv[1:] if arguments is None else arguments
    if arguments is None and words[:2] == ["experiment", "run"]:
        from sunshower.experiments.runner.seed_search import restart_with_hash_seed

        restart_with_hash_seed()
    try:
        # One command alone starts in half the time.
        make_app(words[:1] if words[:1] and words[0] in _COMMANDS else _COMMANDS.keys())(arguments)
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
