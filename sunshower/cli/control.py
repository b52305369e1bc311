"""The commands submit, activate, deactivate, rebalance and upgrade."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NoReturn

import typer

from sunshower.cli.cluster_options import (
    Address,
    Name,
    Wait,
    connect,
    exit_as_job,
    node_news,
    progress,
    without_option,
)
from sunshower.cli.formatting import Terminal, echo, format_error, number_of, print_lines
from sunshower.cli.kill import refuse_savepoint
from sunshower.cli.run import LayoutName, Settings, Target, Workers, load_graph
from sunshower.errors import CodeNotLoaded, LoadError, TopologyFailed

if TYPE_CHECKING:
    from sunshower.actors.run import RayRun

NewWorkers = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="N",
        show_default=False,
        help="The new number of worker processes.",
    ),
]
NewLayout = Annotated[
    Literal["pack", "isolate"] | None,
    typer.Option(help="How tasks share worker processes.", show_default=False),
]
NewTasks = Annotated[
    list[str] | None,
    typer.Option(
        "--tasks",
        metavar="NAME=N",
        show_default=False,
        help="The new number of tasks of component NAME, which must have no state, or be an "
        "operator with a state in a store. May be repeated.",
    ),
]
NewAckers = Annotated[
    int | None,
    typer.Option(min=1, metavar="N", show_default=False, help="The new number of acker tasks."),
]
Timeout = Annotated[
    float,
    typer.Option(
        "--timeout", min=1.0, metavar="SECONDS", help="The time in which the new code must open."
    ),
]
DryRun = Annotated[
    bool,
    typer.Option(
        "--dry-run",
        help="Print the changes, or why they are refused, without making them.",
    ),
]
Resume = Annotated[
    Path | None,
    typer.Option(
        metavar="SAVEPOINT",
        exists=True,
        dir_okay=False,
        show_default=False,
        help="Continue from a file that `kill --keep` has written.",
    ),
]
Inactive = Annotated[
    bool,
    typer.Option("--inactive", help="Emit nothing until `sunshower activate`."),
]
WorkingDir = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        exists=True,
        file_okay=False,
        show_default=False,
        help="A folder with modules and files that the topology needs when it runs; it becomes "
        "the working directory of all workers. With http://… by default the folder of FILE.",
    ),
]
NewCodeDir = Annotated[
    Path | None,
    typer.Option(
        "--working-dir",
        metavar="DIR",
        exists=True,
        file_okay=False,
        show_default=False,
        help="A folder from which FILE imports modules, which are sent with its code. Other files "
        "of the workers do not change. With http://… by default the folder of FILE.",
    ),
]
NoWait = Annotated[
    bool,
    typer.Option(
        "--no-wait",
        help="Return when the workers have started, without waiting until the tasks are open.",
    ),
]
NOT_WORKING = 3  # the exit status of `submit` for a topology that is there, and does not work yet
_OPEN_S = 10.0  # how long `submit` waits until all tasks are open and have reached what they need
_LOOK_EVERY_S = 0.1


def submit(
    target: Target,
    layout: LayoutName = "pack",
    workers: Workers = None,
    settings: Settings = None,
    inactive: Inactive = False,
    working_dir: WorkingDir = None,
    resume: Resume = None,
    no_wait: NoWait = False,
    address: Address = "auto",
) -> None:
    """Start a topology on a running Ray cluster, and return when it works.

    It works when all its tasks are open, and of each spout that emits a tuple is processed. If
    that does not happen within ten seconds, because a dependency is unavailable or a component
    fails, the command prints the cause and ends with exit status 3; the topology is there, and
    keeps trying. The status is 3, too, if the code does not load on a node; then nothing is left.
    With --no-wait the command returns as soon as all workers have started.

    The code is sent to the workers, which need neither the file nor this process. For further
    modules and files that the topology needs when it runs, give --working-dir. Stdout sinks print
    to Ray's log files. A topology that has finished or failed is kept until `sunshower kill NAME`.
    """
    from sunshower.actors.ray_jobs import is_dashboard

    if is_dashboard(address):
        refuse_savepoint("--resume", resume)
        _send_as_job(target, working_dir, address)
    folder = working_dir.resolve() if working_dir else None
    if folder is not None:
        sys.path.insert(0, str(folder))
    graph, modules = load_graph(target, settings, workers, folder)
    from sunshower.actors.output import without_news
    from sunshower.actors.shipping import ship
    from sunshower.runtime.control.savepoint import Savepoint
    from sunshower.runtime.plan import Layout

    savepoint = None if resume is None else Savepoint.from_bytes(str(resume), resume.read_bytes())
    with without_news(), connect(address, working_dir=working_dir) as cluster:
        ship(modules)
        look = node_news(Terminal(stderr=True))
        try:
            run = cluster.submit(
                graph, Layout(layout), active=not inactive, resume=savepoint, look=look
            )
        except (CodeNotLoaded, TopologyFailed) as error:
            print_lines(Terminal(stderr=True), [format_error(error)], "bold red")
            raise typer.Exit(NOT_WORKING) from None
        workers_text = number_of(len(run.plan.workers), "worker")
        echo(
            f"{graph.id} is {'inactive' if inactive else 'active'} on {workers_text}. "
            f"`sunshower status {graph.id}` shows it, `sunshower kill {graph.id}` ends it."
        )
        if not no_wait:
            _wait_until_it_works(run, active=not inactive)


def _send_as_job(
    target: str, working_dir: Path | None, address: str, options: Sequence[str] = ()
) -> NoReturn:
    """Send the folder of the file, and run this command there, with further options. The file is
    not loaded here. Raises typer.Exit."""
    from sunshower.experiments.runner.loading import split_target

    file, name = split_target(target)
    if not file.is_file():
        raise LoadError(f"{file} does not exist; give a Python file, as in: sunshower submit FILE")
    folder = (working_dir or file.parent).resolve()
    if not file.resolve().is_relative_to(folder):
        raise LoadError(f"{file} is not in {folder}, the folder of --working-dir that is sent")
    there = file.resolve().relative_to(folder).as_posix() + (f":{name}" if name else "")
    given = without_option("--working-dir", sys.argv[1:])
    given = [there if one == target else one for one in given]
    exit_as_job(address, [*given, *options], folder)


def activate(name: Name, address: Address = "auto") -> None:
    """Start the spouts of a topology again."""
    with connect(address) as cluster:
        cluster.find(name).activate()
    echo(f"{name} is active.")


def deactivate(name: Name, address: Address = "auto") -> None:
    """Stop the spouts of a topology from emitting; acks, failures and timeouts continue."""
    with connect(address) as cluster:
        cluster.find(name).deactivate()
    echo(f"{name} is inactive. `sunshower activate {name}` resumes it.")


def rebalance(
    name: Name,
    workers: NewWorkers = None,
    tasks: NewTasks = None,
    ackers: NewAckers = None,
    layout: NewLayout = None,
    wait_s: Wait = None,
    address: Address = "auto",
) -> None:
    """Distribute a running topology over more or fewer workers, as more or fewer tasks.

    The spouts stop meanwhile. Tuples that are still pending after the wait are emitted again. A
    state in memory moves to other workers only with snapshot() and restore(). The number of tasks
    of spouts, of components with a state in memory, and of classes with state= cannot change. The
    number of tasks of an operator with a keyed state in a store can change.
    """
    from sunshower.runtime.plan import ACKER, Layout

    numbers = _parse_tasks(tasks or ()) | ({} if ackers is None else {ACKER: ackers})
    with connect(address) as cluster:
        run = cluster.find(name)
        before = run.plan
        look = progress(Terminal(stderr=True), f"Rebalancing {name}")
        new_layout = Layout(layout) if layout else None
        run.rebalance(workers, new_layout, wait_s, tasks=numbers, look=look)
        after = run.plan
    there = {task.id: task.worker for task in before.tasks}
    moved = sum(there.get(task.id, task.worker) != task.worker for task in after.tasks)
    echo(
        f"{name} has {len(after.workers)} workers (before: {len(before.workers)}) and "
        f"{len(after.tasks)} tasks (before: {len(there)}); {moved} tasks have moved."
    )


def _parse_tasks(given: Iterable[str]) -> dict[str, int]:
    """Component → its number of tasks. Raises typer.BadParameter."""
    found: dict[str, int] = {}
    for one in given:
        name, equals, number = one.rpartition("=")
        if not equals or not name or not number.isdecimal():
            raise typer.BadParameter(
                f"{one!r} is not NAME=N, such as count=8", param_hint="--tasks"
            )
        found[name] = int(number)
    return found


def upgrade(
    name: Name,
    target: Target,
    workers: Workers = None,
    settings: Settings = None,
    dry_run: DryRun = False,
    wait_s: Wait = None,
    timeout_s: Timeout = 60.0,
    working_dir: NewCodeDir = None,
    address: Address = "auto",
) -> None:
    """Replace the code of a running topology, which continues at its positions.

    The spouts stop until nothing is pending; tuples that are still pending after the wait are
    emitted again. The new code continues with the positions of the spouts and the states in stores.
    An upgrade is refused if a component has a state in memory, or if a stored state does not fit.
    If the new code does not open in time, the old code continues.
    """
    from sunshower.actors.ray_jobs import is_dashboard

    if is_dashboard(address):  # the job runs in the folder that is sent
        _send_as_job(target, working_dir, address, ["--working-dir", "."] if working_dir else ())
    folder = working_dir.resolve() if working_dir else None
    if folder is not None:
        sys.path.insert(0, str(folder))
    graph, modules = load_graph(target, settings, workers, folder)
    from sunshower.actors.shipping import ship

    with connect(address) as cluster:
        ship(modules)
        run = cluster.find(name)
        look = progress(Terminal(stderr=True), f"Upgrading {name}")
        lines = run.upgrade(graph, wait_s, timeout_s, dry_run=dry_run, look=look)
    for line in lines:
        echo(line)
    echo(f"{name} would have the new code." if dry_run else f"{name} has the new code.")


def _wait_until_it_works(run: RayRun, *, active: bool) -> None:
    """Wait until each task is open and, if active, tuples are processed. Prints what prevents that
    after ten seconds, or at once if the topology has failed or no task is still being opened.
    Raises typer.Exit then."""
    from sunshower.cli.health import SubmittedStart, start_problems

    name, end_s = run.plan.graph.id, time.monotonic() + _OPEN_S
    start = SubmittedStart(run.plan, active=active)
    try:
        while not start.is_decided(snapshot := run.snapshot(), now := time.monotonic()):
            if now >= end_s:
                break
            time.sleep(_LOOK_EVERY_S)
    except TopologyFailed as error:
        print_lines(Terminal(stderr=True), [format_error(error)], "bold red")
        echo(f"{name} has failed. `sunshower kill {name}` removes it.", err=True)
        raise typer.Exit(NOT_WORKING) from None
    if problems := start_problems(snapshot, run.plan):
        print_lines(Terminal(stderr=True), problems, "red")
        echo(f"{name} does not work yet, and keeps trying.", err=True)
        raise typer.Exit(NOT_WORKING)
