"""`sunshower simulate`: a topology in the simulator, hurt in another way with every seed."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from sunshower.cli.run import Target

if TYPE_CHECKING:
    from sunshower.cli.seeds import Minimum, Task

INTERRUPTED = 130  # as shells have it: 128 + SIGINT

Seeds = Annotated[int, typer.Option(min=1, metavar="N", help="How many seeds.")]
First = Annotated[int, typer.Option(min=0, metavar="N", help="The first of them.")]
Seed = Annotated[
    int | None,
    typer.Option(min=0, metavar="N", show_default=False, help="Only this one, to see it again."),
]
JobCount = Annotated[
    int | None,
    typer.Option(
        "--jobs",
        min=1,
        metavar="J",
        show_default=False,
        help="How many processes share the work. By default one for each processor.",
    ),
]
Messages = Annotated[
    int,
    typer.Option(min=1, metavar="N", help="The sources are told to end after about so many."),
]
AsJson = Annotated[
    bool, typer.Option("--json", help="Print the counts as one JSON object, and nothing else.")
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
    """Simulate a topology with many seeds, and look for one that breaks a promise.

    The topology runs unchanged, in one thread and on virtual time; each seed draws which faults
    there are (deaths, pauses, a bad network, errors …), and how often. The first seed that fails is
    run again with less and less, and the least that still fails is shown. What user code prints is
    not. The exit status is 0 when nothing is BROKEN and at least one seed HOLDS.
    """
    from rich.console import Console

    from sunshower.cli.jobs import cores
    from sunshower.cli.seeds import Task
    from sunshower.cli.swarming import simulate_all

    numbers = range(first, first + seeds) if seed is None else range(seed, seed + 1)
    task, console = Task(target, messages), Console(stderr=True)
    ended = simulate_all(task, numbers, min(jobs or cores(), len(numbers)), console)
    if as_json:
        typer.echo(json.dumps(ended.tally.to_fields()))
    else:
        typer.echo(f"{ended.tally}.")
    told = [*ended.tally.doubts(), *(_told(ended.minimum, task) if ended.minimum else ())]
    for line in told:
        typer.echo(line, err=as_json)
    if ended.busy is not None:
        busy = ", ".join(map(str, ended.busy)) or "none"
        typer.echo(f"Interrupted. These seeds were being simulated: {busy}.", err=True)
        raise typer.Exit(INTERRUPTED)
    raise typer.Exit(not ended.tally.proves)


def _told(minimum: Minimum, task: Task) -> Iterator[str]:
    """The least that fails, line by line."""
    command = ["sunshower", "simulate", task.target, "--seed", str(minimum.seed)]
    yield ""
    yield f"Seed {minimum.seed} is BROKEN. It is the same each time:"
    yield f"    {shlex.join([*command, '--messages', str(task.messages)])}"
    yield (
        f"The least that still fails ({minimum.tries} runs): about {minimum.messages} messages and "
        f"{len(minimum.steps)} of {minimum.steps_before} faults"
    )
    yield from (f"    {step}" for step in minimum.steps)
    for finding in minimum.findings:
        yield f"{finding.checker}: {'; '.join(finding.reasons)}"
        yield from (f"    {line}" for line in finding.evidence)
    if minimum.history:
        yield "Its history, of these messages and the faults:"
        yield from (f"    {line}" for line in minimum.history)
