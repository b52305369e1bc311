"""`sunshower run` runs a topology until its spouts are exhausted; `describe` prints it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Annotated, Any

import typer

from sunshower.cli.formatting import echo
from sunshower.cli.program_options import (
    Address,
    Internals,
    LayoutName,
    Settings,
    Stays,
    Target,
    WithPage,
    Workers,
    load_graph,
    settings_of,
)
from sunshower.config import LIMITS, Config
from sunshower.errors import TopologyFailed

Inline = Annotated[
    bool,
    typer.Option(
        "--inline",
        help="Run in this process and thread, without Ray: for a quick try, and for breakpoints.",
    ),
]
Watch = Annotated[
    bool,
    typer.Option(
        "--watch",
        help="With --inline: run again whenever FILE, or a module of its folder that it imports, "
        "is saved.",
    ),
]
ShowsSettings = Annotated[
    bool,
    typer.Option("--settings", help="Print its settings instead, and where each comes from."),
]
Code = Annotated[
    bool,
    typer.Option("--code", help="Print the code that the functions of each stage become instead."),
]
Mermaid = Annotated[
    bool, typer.Option("--mermaid", help="Print a Mermaid flowchart instead of text.")
]


def run(
    target: Target,
    inline: Inline = False,
    watch: Watch = False,
    layout: LayoutName = "pack",
    workers: Workers = None,
    address: Address = None,
    settings: Settings = None,
    with_page: WithPage = False,
    stays: Stays = None,
) -> None:
    """Run a topology until its spouts are exhausted, on Ray or with --inline in this process.

    After Ctrl-C (or SIGTERM) the spouts stop emitting, and pending tuples are finished; a second
    Ctrl-C ends the run at once. Stdout sinks print to the standard output, the display is on the
    standard error. The exit status is 0 if every tuple was processed or became a dead letter.

    While a dependency (a database, a broker) is unavailable, the run waits, and the display shows
    it. If a component never reaches its dependency within thirty seconds, the run ends with exit
    status 1.
    """
    if inline:
        _check_inline(layout=layout, workers=workers, address=address)
    if watch:
        if not inline:
            raise typer.BadParameter("it needs --inline", param_hint="--watch")
        from sunshower.cli.local.watch import run_at_each_save

        options = [f"--set={setting}" for setting in settings or ()]
        run_at_each_save(target, [*options, *(["--ui", "--no-stay"] if with_page else ())])
        return
    graph, modules = load_graph(target, settings, workers)
    from sunshower.cli.formatting import Terminal
    from sunshower.cli.screen import Screen
    from sunshower.cli.session import TopologySession
    from sunshower.cli.ui.page import RunPage, staying
    from sunshower.runtime.plan import Layout
    from sunshower.topologies.describe import state_notes

    # Without a live table: the terminal belongs to what the program prints, and to debuggers.
    screen = Screen(console=Terminal(stderr=True, force_terminal=False) if inline else None)
    for note in state_notes(graph):
        screen.say(note)
    session = TopologySession(screen, address)
    with RunPage(screen, stays) if with_page else nullcontext() as page, staying(page):
        if inline:
            result = session.run_inline(graph, page)
        else:
            result = session.run(graph, Layout(layout), modules, page=page)
        from sunshower.cli.display import summary

        screen.console.print(summary(graph, result))
        if result.snapshot.untracked:
            raise TopologyFailed(result.snapshot.untracked)


def _check_inline(**given: Any) -> None:
    """Raise a usage error for an option that changes nothing in one process."""
    for name, value in given.items():
        if value not in (None, "pack"):
            raise typer.BadParameter(
                "a run with --inline has one process, this one, and no Ray: leave it out",
                param_hint=f"--{name}",
            )


def describe(
    target: Target,
    mermaid: Mermaid = False,
    code: Code = False,
    internals: Internals = False,
    shows_settings: ShowsSettings = False,
    settings: Settings = None,
) -> None:
    """Print a topology: its components, their tasks, streams and groupings, without running it."""
    from sunshower.topologies.describe import as_code, as_mermaid, as_text

    graph, _ = load_graph(target, settings, None)
    if shows_settings:
        _print_settings(target, settings or (), graph.config)
        return
    text = as_text(graph, internals=internals)
    echo(as_code(graph) if code else as_mermaid(graph) if mermaid else text)
    from sunshower.actors.programs import modules_here
    from sunshower.actors.shipping import check_components
    from sunshower.runtime.plan import make_plan

    check_components(make_plan(graph), modules_here(graph.modules))


def _print_settings(target: str, given: Sequence[str], config: Config) -> None:
    from sunshower.cli.formatting import Terminal, new_table
    from sunshower.experiments.runner.loading import split_target

    settings = settings_of(split_target(target)[0].parent, given)
    usual, table = Config(), new_table("setting", "value", "from")
    for name in LIMITS:
        value = getattr(config, name)
        otherwise = "the default" if value == getattr(usual, name) else "the program"
        table.add_row(name, str(value), settings[name].place if name in settings else otherwise)
    Terminal().print(table)
