"""The commands that change what runs: submit, activate, deactivate, rebalance, upgrade, kill."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from types import ModuleType
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
from sunshower.cli.formatting import Terminal, duration, echo, format_error, number_of, print_lines
from sunshower.cli.program_options import LayoutName, Settings, Target, Workers, load_graph
from sunshower.errors import ClusterError, CodeNotLoaded, LifecycleError, LoadError, TopologyFailed

if TYPE_CHECKING:
    from sunshower.actors.run import RayRun
    from sunshower.runtime.cluster import Run
    from sunshower.runtime.control.lifecycle import KillReport
    from sunshower.runtime.control.savepoint import Savepoint
    from sunshower.state.sqlite import NewFile
    from sunshower.topologies.graph import Graph

NewWorkers = Annotated[
    int | None,
    typer.Option(min=1, metavar="N", help="The new number of worker processes."),
]
NewLayout = Annotated[
    Literal["pack", "isolate"] | None,
    typer.Option(help="How tasks share worker processes."),
]
NewTasks = Annotated[
    list[str] | None,
    typer.Option(
        "--tasks",
        metavar="NAME=N",
        help="The new number of tasks of component NAME, which must have no state, or be an "
        "operator with a state in a store. May be repeated.",
    ),
]
Auto = Annotated[
    bool,
    typer.Option(
        "--auto", help="Let all numbers that are declared with between() follow the load again."
    ),
]
NewAckers = Annotated[
    int | None,
    typer.Option(min=1, metavar="N", help="The new number of acker tasks."),
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
        "--dry-run", help="Print the changes, or why they are refused, without making them."
    ),
]
Resume = Annotated[
    Path | None,
    typer.Option(
        metavar="SAVEPOINT",
        exists=True,
        dir_okay=False,
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


# ---- kill ----------------------------------------------------------------------------------------
# The order in which `sunshower kill` stores a savepoint and ends a topology.
#
#     unfinished file made ─▶ tasks packed ─▶ file written ─▶ topology ended ─▶ file has its name
#
# If a step before the end fails, the topology continues, and the file is removed.

Now = Annotated[
    bool,
    typer.Option(
        "--now", help="End every process at once, without finishing tuples or closing tasks."
    ),
]
Keep = Annotated[
    Path | None,
    typer.Option(
        metavar="SAVEPOINT",
        help="Write positions and states in memory to this new file, for `submit --resume`.",
    ),
]


def kill(
    name: Name,
    wait_s: Wait = None,
    now: Now = False,
    keep: Keep = None,
    address: Address = "auto",
) -> None:
    """End a topology and remove it.

    The spouts emit nothing new, and pending tuples are finished, for at most --wait seconds; then
    every task is closed. With --keep, records that are still pending are in the savepoint.
    `sunshower submit FILE --resume SAVEPOINT` emits them again when it continues the topology, also
    on another cluster.
    """
    if now and (wait_s is not None or keep is not None):
        raise typer.BadParameter(
            "--now neither waits nor keeps anything: leave one of them away", param_hint="--now"
        )
    with ExitStack() as stack:
        file = None if keep is None else stack.enter_context(_new_file(keep, address))
        run = stack.enter_context(connect(address)).find(name)
        if now:
            run.kill_actors()
            run.stop()
            echo(f"{name} is gone; nothing was finished.")
            return
        if file is not None:
            savepoint = run.keep(wait_s, look=progress(Terminal(stderr=True), f"Packing {name}"))
            report = end_with_savepoint(run, savepoint, file)
        else:
            look = progress(Terminal(stderr=True), f"Draining {name}")
            report = run.kill(wait_s, look=look)
    _print_report(name, report, keep)


def end_with_savepoint(run: Run, savepoint: Savepoint, file: NewFile) -> KillReport:
    """Write a savepoint, and end its topology, which is packed. If this raises, the topology goes
    on and the file is removed, or the error says where the savepoint is. Raises ClusterError."""
    name = savepoint.topology
    try:
        file.write(savepoint.to_bytes())
    except BaseException as error:  # also Ctrl-C
        with suppress(Exception):  # if the master does not answer, it continues within a minute
            run.go_on()
        if isinstance(error, OSError):
            raise LifecycleError(
                f"the savepoint cannot be written ({error}), so {name!r} is not ended"
            ) from error
        raise
    try:
        report = run.kill(0.0)
    except BaseException as error:
        _check_end(run, name, file, error)
        raise
    _publish(name, file)
    return report


def _check_end(run: Run, name: str, file: NewFile, error: BaseException) -> None:
    """Return if the topology continues although a kill was tried; else raise an error."""
    try:
        goes_on = run.go_on()
    except Exception:
        file.leave()
        raise ClusterError(
            f"it is not known whether {name!r} has ended ({_text(error)}). If `sunshower list` "
            f"does not show it, its savepoint is {file.unfinished}: rename that file. If it goes "
            "on, remove the file"
        ) from error
    if not goes_on:
        _publish(name, file)
        raise ClusterError(
            f"{name!r} ends, and its savepoint is {file.path}, but not all of the topology may be "
            f"removed ({_text(error)}): `sunshower kill {name} --now` removes the rest"
        ) from error


def _publish(name: str, file: NewFile) -> None:
    try:
        file.publish()
    except OSError as error:
        file.leave()
        raise ClusterError(
            f"{name!r} has ended, and its savepoint is {file.unfinished}, because that file cannot "
            f"be renamed ({error}). Rename it, and continue with `sunshower submit FILE --resume`"
        ) from error


def _text(error: BaseException) -> str:
    return str(error) or type(error).__name__


def refuse_savepoint(option: str, file: Path | None) -> None:
    """Raise typer.BadParameter if a file is given to a command that is sent to a dashboard."""
    if file is not None:
        raise typer.BadParameter(
            "a command that is sent to a dashboard has no files of this machine: run it on a node "
            "of the cluster",
            param_hint=option,
        )


def _new_file(keep: Path, address: str) -> NewFile:
    """The file of a savepoint. Raises typer.BadParameter unless it can be made."""
    from sunshower.actors.ray_jobs import is_dashboard
    from sunshower.state.sqlite import NewFile

    refuse_savepoint("--keep", keep if is_dashboard(address) else None)
    try:
        return NewFile(keep)
    except OSError as error:
        is_there = isinstance(error, FileExistsError)
        why = "is there already" if is_there else f"cannot be made ({error.strerror})"
        raise typer.BadParameter(
            f"{error.filename} {why}; name another file", param_hint="--keep"
        ) from None


def _print_report(name: str, report: KillReport, keep: Path | None) -> None:
    for spout, counts in report.spouts.items():
        echo(
            f"{spout}: {counts.emitted:,} emitted, {counts.acked:,} acked, "
            f"{counts.failed:,} failed, {counts.replayed:,} replayed"
        )
    if keep is not None:
        echo(f"{name} is gone. `sunshower submit FILE --resume {keep}` continues it.")
        return
    pending = (
        f"{number_of(report.unsettled, 'record')} still pending, which only a source can give again"
        if report.unsettled
        else "nothing was pending any more"
    )
    echo(f"{name} is gone after {duration(report.seconds)}; {pending}.")


# ---- submit, upgrade -----------------------------------------------------------------------------


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
    graph, modules = _loaded(target, settings, workers, working_dir)
    from sunshower.actors.shipping import ship
    from sunshower.actors.starting import without_news
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


def _loaded(
    target: str, settings: list[str] | None, workers: int | None, working_dir: Path | None
) -> tuple[Graph, tuple[ModuleType, ...]]:
    """The graph, and the modules to ship; those of `working_dir` can be imported."""
    folder = working_dir.resolve() if working_dir else None
    if folder is not None:
        sys.path.insert(0, str(folder))
    return load_graph(target, settings, workers, folder)


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
    sent = file.resolve().relative_to(folder).as_posix() + (f":{name}" if name else "")
    job_arguments = without_option("--working-dir", sys.argv[1:])
    job_arguments = [sent if argument == target else argument for argument in job_arguments]
    exit_as_job(address, [*job_arguments, *options], folder)


def activate(name: Name, address: Address = "auto") -> None:
    """Start the spouts of a topology again."""
    with connect(address) as cluster:
        cluster.find(name).activate()
    echo(f"{name} is active.")


def deactivate(name: Name, address: Address = "auto") -> None:
    """Stop the spouts of a topology from emitting; acks, failures and timeouts continue, and
    batches that have begun are committed."""
    with connect(address) as cluster:
        cluster.find(name).deactivate()
    echo(f"{name} is inactive. `sunshower activate {name}` resumes it.")


def rebalance(
    name: Name,
    workers: NewWorkers = None,
    tasks: NewTasks = None,
    ackers: NewAckers = None,
    layout: NewLayout = None,
    auto: Auto = False,
    wait_s: Wait = None,
    address: Address = "auto",
) -> None:
    """Distribute a running topology over more or fewer workers, as more or fewer tasks.

    The spouts stop meanwhile. Tuples that are still pending after the wait are emitted again. A
    state in memory moves to other workers only with snapshot() and restore(). The number of tasks
    of spouts, of components with a state in memory, and of classes with state= cannot change. The
    number of tasks of an operator with a keyed state in a store can change. A number that is
    declared with between() must lie within its bounds, and no longer follows the load.
    """
    from sunshower.runtime.control.scaling import bounds_of
    from sunshower.runtime.plan import ACKER, Layout

    numbers = _parse_tasks(tasks or ()) | ({} if ackers is None else {ACKER: ackers})
    with connect(address) as cluster:
        run = cluster.find(name)
        before = run.plan
        look = progress(Terminal(stderr=True), f"Rebalancing {name}")
        new_layout = Layout(layout) if layout else None
        run.rebalance(workers, new_layout, wait_s, tasks=numbers, auto=auto, look=look)
        after = run.plan
    worker_of = {task.id: task.worker for task in before.tasks}
    moved = sum(worker_of.get(task.id, task.worker) != task.worker for task in after.tasks)
    echo(
        f"{name} has {len(after.workers)} workers (before: {len(before.workers)}) and "
        f"{len(after.tasks)} tasks (before: {len(worker_of)}); {moved} tasks have moved."
    )
    bounds = bounds_of(after)
    held = [f"the tasks of {id}" for id in numbers if id in bounds]
    held += ["the workers"] if workers is not None and bounds else []
    if held:
        echo(
            f"The number of {' and '.join(held)} no longer follows the load. "
            f"`sunshower rebalance {name} --auto` lets it do so again."
        )


def _parse_tasks(texts: Iterable[str]) -> dict[str, int]:
    """Component → its number of tasks. Raises typer.BadParameter."""
    numbers: dict[str, int] = {}
    for text in texts:
        name, equals, number = text.rpartition("=")
        if not (equals and name and number.isdecimal() and len(number) < 10):
            raise typer.BadParameter(
                f"{text!r} is not NAME=N, such as count=8", param_hint="--tasks"
            )
        numbers[name] = int(number)
    return numbers


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
    graph, modules = _loaded(target, settings, workers, working_dir)
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
