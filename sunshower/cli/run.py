"""The commands for a program on this machine: run, describe, simulate."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sunshower.cli.formatting import Terminal, echo, echo_json
from sunshower.cli.program_options import (
    INTERRUPTED,
    Address,
    AsJson,
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

if TYPE_CHECKING:
    from sunshower.experiments.runner.seed_search import ShrunkSeed, SwarmTask

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
        from sunshower.cli.watch import run_at_each_save

        options = [f"--set={setting}" for setting in settings or ()]
        run_at_each_save(target, [*options, *(["--ui", "--no-stay"] if with_page else ())])
        return
    graph, modules = load_graph(target, settings, workers)
    from sunshower.cli.display import Screen
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


def _check_inline(**options: Any) -> None:
    """Raise a usage error for an option that changes nothing in one process."""
    for name, value in options.items():
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


# ---- simulate ------------------------------------------------------------------------------------

Seeds = Annotated[int, typer.Option(min=1, metavar="N", help="The number of seeds.")]
First = Annotated[int, typer.Option(min=0, metavar="N", help="The first seed.")]
Seed = Annotated[
    int | None,
    typer.Option(min=0, metavar="N", help="Run only this seed, to repeat a failure."),
]
JobCount = Annotated[
    int | None,
    typer.Option(
        "--jobs",
        min=1,
        metavar="J",
        help="The number of processes to use. By default one per processor.",
    ),
]
Messages = Annotated[
    int,
    typer.Option(min=1, metavar="N", help="Drain the sources after about this number of messages."),
]


def simulate(
    target: Target,
    seeds: Seeds = 1000,
    first: First = 0,
    seed: Seed = None,
    jobs: JobCount = None,
    messages: Messages = 200,
    as_json: AsJson = False,
) -> None:
    """Simulate a topology with many seeds, and search for one that breaks a guarantee.

    The topology runs unchanged, in one thread and in virtual time. The seed determines which faults
    occur (crashes, pauses, a bad network, errors …), and how often. The run of the first seed that
    fails is reduced to a minimal run that still fails, which is shown. The output of user code is
    not shown. The exit status is 0 if no seed is BROKEN and at least one HOLDS.
    """
    from sunshower.experiments.runner.seed_search import SwarmTask, simulate_seeds

    numbers = range(first, first + seeds) if seed is None else range(seed, seed + 1)
    task, console = SwarmTask(target, messages), Terminal(stderr=True)
    processes = min(jobs or len(os.sched_getaffinity(0)), len(numbers))
    searched = simulate_seeds(task, numbers, processes, console)
    if as_json:
        echo_json(searched.tally.to_fields())
    else:
        echo(f"{searched.tally}.")
    lines = [*searched.tally.unknown_reasons()]
    lines += _shrunk_lines(searched.shrunk, task) if searched.shrunk else ()
    for line in lines:
        echo(line, err=as_json)
    if searched.busy is not None:
        busy = ", ".join(map(str, searched.busy)) or "none"
        echo(f"Interrupted. These seeds were being simulated: {busy}.", err=True)
        raise typer.Exit(INTERRUPTED)
    raise typer.Exit(not searched.tally.holds)


def _shrunk_lines(shrunk: ShrunkSeed, task: SwarmTask) -> Iterator[str]:
    command = ["sunshower", "simulate", task.target, "--seed", str(shrunk.seed)]
    yield ""
    yield f"Seed {shrunk.seed} is BROKEN. Repeat it with:"
    yield f"    {shlex.join([*command, '--messages', str(task.messages)])}"
    yield (
        f"The shortest failing run ({shrunk.tries} tries): about {shrunk.messages} messages and "
        f"{len(shrunk.steps)} of {shrunk.steps_before} faults"
    )
    yield from (f"    {step}" for step in shrunk.steps)
    for finding in shrunk.findings:
        yield f"{finding.checker}: {'; '.join(finding.reasons)}"
        yield from (f"    {line}" for line in finding.evidence)
    if shrunk.history:
        yield "Its history, of these messages and the faults:"
        yield from (f"    {line}" for line in shrunk.history)
