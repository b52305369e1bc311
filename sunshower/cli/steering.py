"""`sunshower activate`, `deactivate`, `rebalance`, `kill`: what a running topology can be asked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from sunshower.cli.reach import Address, Name, Wait, progress, reach

if TYPE_CHECKING:
    from rich.console import Console

    from sunshower.runtime.lifecycle import KillReport

Workers = Annotated[
    int | None,
    typer.Option(min=1, metavar="N", show_default=False, help="How many worker processes."),
]
NewLayout = Annotated[
    Literal["pack", "isolate"] | None,
    typer.Option(help="How tasks share worker processes from now on.", show_default=False),
]
Now = Annotated[
    bool,
    typer.Option("--now", help="End every process at once: nothing is finished, nothing closed."),
]


def activate(name: Name, address: Address = "auto") -> None:
    """Let the spouts of a topology emit again."""
    with reach(address) as cluster:
        cluster.find(name).activate()
    typer.echo(f"{name} is active.")


def deactivate(name: Name, address: Address = "auto") -> None:
    """Let the spouts of a topology rest: nothing is emitted; acks, failures, timeouts go on."""
    with reach(address) as cluster:
        cluster.find(name).deactivate()
    typer.echo(f"{name} is inactive. `sunshower activate {name}` lets it go on.")


def rebalance(
    name: Name,
    workers: Workers = None,
    layout: NewLayout = None,
    wait_s: Wait = None,
    address: Address = "auto",
) -> None:
    """Share the tasks of a topology out among more or fewer workers, while it runs.

    The spouts rest meanwhile. What is still pending after the wait is emitted again. The number of
    tasks does not change; one whose state is in memory moves only with snapshot() and restore().
    """
    from rich.console import Console

    from sunshower.runtime.plan import Layout

    console = Console(stderr=True)
    with reach(address) as cluster:
        run = cluster.find(name)
        before = run.plan
        look = progress(console, f"Rebalancing {name}")
        run.rebalance(workers, Layout(layout) if layout else None, wait_s, look=look)
        after = run.plan
    moved = sum(
        old.worker != new.worker for old, new in zip(before.tasks, after.tasks, strict=True)
    )
    typer.echo(
        f"{name} has {len(after.workers)} workers (before: {len(before.workers)}); "
        f"{moved} of {len(after.tasks)} tasks have moved."
    )


def kill(name: Name, wait_s: Wait = None, now: Now = False, address: Address = "auto") -> None:
    """End a topology and remove it.

    Its spouts emit nothing fresh, and what is pending may finish; then every task is closed.
    """
    if now and wait_s is not None:
        raise typer.BadParameter(
            "--now does not wait: leave one of the two away", param_hint="--wait"
        )
    from rich.console import Console

    from sunshower.actors.stopping import kill as end

    with reach(address) as cluster:
        run = cluster.find(name)
        if now:
            end(run)
            run.stop()
            typer.echo(f"{name} is gone; nothing was finished.")
            return
        report = run.kill(wait_s, look=progress(Console(stderr=True), f"Draining {name}"))
    _tell(Console(), name, report)


def _tell(console: Console, name: str, report: KillReport) -> None:
    from sunshower.cli.display import duration

    for spout, counts in report.spouts.items():
        console.print(
            f"{spout}: {counts.emitted:,} emitted, {counts.acked:,} acked, "
            f"{counts.failed:,} failed, {counts.replayed:,} replayed",
            highlight=False,
            soft_wrap=True,
        )
    pending = (
        f"{report.unsettled:,} records were still pending: only their source can give them again"
        if report.unsettled
        else "nothing was pending any more"
    )
    console.print(
        f"{name} is gone after {duration(report.seconds)}; {pending}.",
        highlight=False,
        soft_wrap=True,
    )
