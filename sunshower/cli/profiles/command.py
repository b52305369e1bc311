"""`sunshower profile`: records running workers, writes a flame graph, prints shares of time."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sunshower.cli.cluster_options import Address, Name, connect, known_component
from sunshower.cli.formatting import Terminal, echo, number_of, print_lines
from sunshower.errors import ClusterError, ConfigError, LifecycleError, SourceError
from sunshower.texts import utf8

if TYPE_CHECKING:
    from sunshower.actors.run import RayRun
    from sunshower.runtime.profiles.stacks import Profile

_SECONDS_MAX = 300.0


class ProfileFormat(StrEnum):
    """What is written."""

    FLAMEGRAPH = "flamegraph"
    SPEEDSCOPE = "speedscope"
    COLLAPSED = "collapsed"


_ENDINGS = {
    ProfileFormat.FLAMEGRAPH: "svg",
    ProfileFormat.SPEEDSCOPE: "speedscope.json",
    ProfileFormat.COLLAPSED: "collapsed",
}

ComponentId = Annotated[
    str | None,
    typer.Option(
        "--component",
        metavar="ID",
        show_default=False,
        help="Only workers that run tasks of this component. By default all.",
    ),
]
Seconds = Annotated[float, typer.Option(metavar="N", help="The seconds to record, from 1 to 300.")]
Output = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        show_default=False,
        help="The file to write or replace. By default NAME-COMPONENT.svg here.",
    ),
]
AsFormat = Annotated[
    ProfileFormat,
    typer.Option(
        "--format",
        help="An image for a browser, a file for speedscope.app, or one stack per line.",
    ),
]
InProcess = Annotated[
    bool,
    typer.Option("--in-process", help="Sample by a thread in the worker, without py-spy."),
]


def profile(
    name: Name,
    component: ComponentId = None,
    seconds: Seconds = 10.0,
    output: Output = None,
    form: AsFormat = ProfileFormat.FLAMEGRAPH,
    in_process: InProcess = False,
    address: Address = "auto",
) -> None:
    """Profile running workers: a flame graph, and the share of each part of the work.

    py-spy (the extra `profile`) takes 100 samples per second. If py-spy is missing or not
    permitted, a thread in the worker takes them, and the command prints this.
    """
    from sunshower.actors.profiles.recording import record

    if not 1.0 <= seconds <= _SECONDS_MAX:
        raise ConfigError(f"--seconds {seconds:g} is not between 1 and {_SECONDS_MAX:g}")
    if output is None:
        output = Path(f"{'-'.join(filter(None, (name, component)))}.{_ENDINGS[form]}")
    _check_writable(output)
    errors = Terminal(stderr=True)
    with connect(address, as_job=False) as cluster:
        run = cluster.find(name)
        workers = _workers(run, component)
        doing = f"Recording {number_of(len(workers), 'worker')}"
        if not errors.is_terminal:  # where `status` shows nothing
            print_lines(errors, [f"{doing} for {seconds:g} s …"])
        with errors.status(f"{doing} …") as status:
            found = record(
                run.id,
                workers,
                seconds,
                in_process=in_process,
                look=lambda passed_s: status.update(f"{doing}: {passed_s:.0f} of {seconds:g} s"),
            )
    print_lines(errors, _remarks(found), "yellow")
    if not found.stacks:
        raise ClusterError(
            f"nothing was recorded of {name!r}: its workers were restarted meanwhile; try again"
        )
    _write(output, _content(found, form, " · ".join(filter(None, (name, component)))))
    from sunshower.cli.profiles.forms import time_table

    Terminal().print(time_table(found, component))
    echo(f"{sum(found.stacks.values()):,} samples are in {output}.")


def _workers(run: RayRun, component: str | None) -> Sequence[int]:
    """The workers to profile. Raises ClusterError for an unknown component, LifecycleError if the
    topology does not run, TopologyFailed if it has failed."""
    from sunshower.runtime.control.lifecycle import State

    plan, state = run.plan, run.snapshot().state
    if component is not None:
        known_component(plan.graph, component)
    if state in {State.STARTING, State.FINISHED, State.KILLED}:
        raise LifecycleError(
            f"topology {plan.graph.id!r} is {state}: there is nothing to record. Profile it while "
            "it is active"
        )
    if component is None:
        return plan.workers
    return sorted({task.worker for task in plan.tasks_of(component)})


def _remarks(found: Profile) -> list[str]:
    """A line for each reason why py-spy did not sample, and for each worker that is missing."""
    lines = []
    for reason in dict.fromkeys(found.refusals.values()):
        ids = [str(one) for one, why in found.refusals.items() if why == reason]
        who = f"worker {ids[0]} was" if len(ids) == 1 else f"workers {', '.join(ids)} were"
        lines.append(f"{who} sampled by a thread in the process: {reason}")
    return lines + [f"worker {one} is missing: {why}" for one, why in found.missing.items()]


def _content(found: Profile, form: ProfileFormat, title: str) -> str:
    from sunshower.cli.profiles.flame_graph import flame_graph
    from sunshower.cli.profiles.forms import collapsed, speedscope

    match form:
        case ProfileFormat.FLAMEGRAPH:
            return flame_graph(found.stacks, title)
        case ProfileFormat.SPEEDSCOPE:
            return speedscope(found.stacks, title)
        case ProfileFormat.COLLAPSED:
            return collapsed(found.stacks)


def _check_writable(output: Path) -> None:
    """Raise SourceError before anything is recorded, rather than after it."""
    folder = output.parent
    if output.is_dir():
        raise SourceError(f"{output} is a folder; give the name of a file to --output")
    if not folder.is_dir():
        raise SourceError(f"{output} cannot be written: there is no folder {folder}")
    if not os.access(output if output.exists() else folder, os.W_OK):
        raise SourceError(
            f"{output} cannot be written: no permission. Give another file to --output"
        )


def _write(output: Path, content: str) -> None:
    """Write the whole file, or nothing; into what is no regular file, directly. Raises
    SourceError."""
    output = output.resolve()
    part = output.with_name(f".{output.name}.{time.time_ns()}")
    try:
        if output.exists() and not output.is_file():
            output.write_bytes(utf8(content))
            return
        part.write_bytes(utf8(content))
        part.replace(output)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise SourceError(f"{output} cannot be written: {error.strerror or error}") from None
