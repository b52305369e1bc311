"""`sunshower simulate`: runs a topology in the simulator with different faults for each seed."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from sunshower.cli.formatting import Terminal, echo, echo_json
from sunshower.cli.program_options import INTERRUPTED, AsJson, Target

if TYPE_CHECKING:
    from sunshower.experiments.runner.seed_search import ShrunkSeed, SwarmTask

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
