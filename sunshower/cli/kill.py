"""The command `sunshower kill`, and the order in which a savepoint is stored and a topology ends.

    unfinished file made ─▶ tasks packed ─▶ file written ─▶ topology ended ─▶ file has its name

If a step before the end fails, the topology continues, and the file is removed.
"""

from __future__ import annotations

from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sunshower.cli.cluster_options import Address, Name, Wait, connect, progress
from sunshower.cli.formatting import Terminal, duration, echo
from sunshower.errors import ClusterError, LifecycleError

if TYPE_CHECKING:
    from sunshower.runtime.cluster import Run
    from sunshower.runtime.control.lifecycle import KillReport
    from sunshower.runtime.control.savepoint import Savepoint
    from sunshower.state.sqlite import NewFile

Now = Annotated[
    bool,
    typer.Option(
        "--now",
        help="End every process at once, without finishing tuples or closing tasks.",
    ),
]
Keep = Annotated[
    Path | None,
    typer.Option(
        metavar="SAVEPOINT",
        show_default=False,
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
        f"{report.unsettled:,} records were still pending: only their source can give them again"
        if report.unsettled
        else "nothing was pending any more"
    )
    echo(f"{name} is gone after {duration(report.seconds)}; {pending}.")
