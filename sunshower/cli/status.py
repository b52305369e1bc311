"""The commands that ask a cluster something: list, status, query, ask."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import asdict
from itertools import product
from math import isfinite
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from sunshower.cli.cluster_options import Address, Name, connect
from sunshower.cli.formatting import (
    Terminal,
    echo,
    echo_json,
    echo_value,
    elapsed,
    format_error,
    new_table,
    print_lines,
)
from sunshower.cli.run import AsJson
from sunshower.errors import ClusterError, TopologyFailed, VersionMismatch
from sunshower.topologies.requests import TypedText

if TYPE_CHECKING:
    from sunshower.runtime.control.overview import Overview
    from sunshower.runtime.events.metrics import Snapshot


Component = Annotated[
    str, typer.Argument(metavar="COMPONENT", show_default=False, help="What keeps the state.")
]
Key = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[KEY]...",
        show_default=False,
        help="The key: one value for each field. `5` is a text or a number, whichever is there. "
        "Write `--` before a negative number.",
    ),
]
Requests = Annotated[
    str, typer.Argument(metavar="REQUESTS", show_default=False, help="A stream of requests.")
]
Value = Annotated[
    str,
    typer.Argument(
        metavar="VALUE",
        show_default=False,
        help="""The fields as JSON, '{"word": "the"}', or the value of the only field. Write `--`
        before a negative number.""",
    ),
]
Timeout = Annotated[
    float, typer.Option("--timeout", min=0.001, metavar="SECONDS", help="How long to wait.")
]
Limit = Annotated[int, typer.Option(min=1, metavar="N", help="Without a KEY: at most so many.")]


def list_(address: Address = "auto") -> None:
    """List all topologies of a cluster, including those that have finished or failed.

    A topology is kept, with its counters and results, until `sunshower kill NAME` removes it.
    """
    from sunshower.cli.health import wait_lines

    table = new_table("topology", "state", "up", "workers", "tasks", "acked", "failed", "restarts")
    waits: list[str] = []
    with connect(address) as cluster:
        names = sorted(cluster.runs())
        for name in names:
            try:
                found = cluster.find(name).overview()
                table.add_row(*_row(name, found))
                waits += [f"{name}: {line}" for line in wait_lines(found.snapshot.waiting())]
            except VersionMismatch:
                table.add_row(name, "of another release")
            except ClusterError:  # it was just removed, or its master is away
                table.add_row(name, "does not answer")
    if names:
        console = Terminal()
        console.print(table)
        print_lines(console, waits, "red")
    else:
        echo("There is no topology. Start one with: sunshower submit FILE.py")


def status(name: Name, as_json: AsJson = False, address: Address = "auto") -> None:
    """Show a topology: its state, counters by component, what it waits for, and what runs where."""
    from sunshower.cli.display import Display
    from sunshower.cli.health import dead_letter_lines, expired_lines, problems

    with connect(address) as cluster:
        found = cluster.find(name).overview()
    up_s = time.time() - found.since_s
    if as_json:
        echo_json(_as_json(found, up_s))
        return
    console, snapshot = Terminal(), found.snapshot
    title = f"{name}  ·  {snapshot.state}  ·  up {elapsed(up_s)}  ·  restarts: {snapshot.restarts}"
    display = Display(found.plan.graph)
    console.print(display.table(snapshot, title, average_s=up_s))
    graph = found.plan.graph
    print_lines(console, display.figures(snapshot))
    print_lines(console, (*dead_letter_lines(graph, snapshot), *expired_lines(graph, snapshot)))
    console.print(_workers(found))
    print_lines(console, problems(snapshot), "red")
    for error in filter(None, (found.error, snapshot.untracked)):
        print_lines(console, [format_error(TopologyFailed(error))], "bold red")


def query(
    name: Name,
    component: Component,
    key: Key = None,
    limit: Limit = 20,
    address: Address = "auto",
) -> None:
    """Print the value of a KEY in the state of a running component, or some keys and their values.

    A value is a line of JSON, as the component's last batch has left it.
    """
    with connect(address) as cluster:
        run = cluster.find(name)
        if not key:
            for found, value in run.entries(component, limit):
                echo_value({"key": found, "value": value})
            return
        for meant in product(*map(_meanings, key)):
            value = run.query(component, meant[0] if len(meant) == 1 else meant)
            if value is not None:
                echo_value(value)
                return
    raise ClusterError(
        f"{component!r} of topology {name!r} has no value for {' '.join(key)}; "
        f"`sunshower query {name} {component}` lists some keys"
    )


def ask(
    name: Name,
    requests: Requests,
    value: Value,
    timeout_s: Timeout = 10.0,
    address: Address = "auto",
) -> None:
    """Send a request to a topology, and print each row of its answer as a line of JSON.

    The rows are printed when all of them are there. Exit status 1: the request failed, was refused,
    or was not answered in time.
    """
    with connect(address) as cluster:
        for row in cluster.find(name).ask(requests, TypedText(value), timeout_s=timeout_s):
            echo_value(row)


def _meanings(text: str) -> list[Any]:
    """The values that an argument may stand for."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return [text]
    return [text] if isinstance(value, list | dict) else [text, value]


def _row(name: str, found: Overview) -> list[str]:
    snapshot = found.snapshot
    spouts = [snapshot.component(spout.id) for spout in found.plan.graph.spouts]
    numbers = (
        len(found.plan.workers),
        len(found.plan.tasks),
        sum(counts.acked for counts in spouts),
        sum(counts.failed for counts in spouts),
        snapshot.restarts,
    )
    up = elapsed(time.time() - found.since_s)
    marks = ["degraded"] * bool(snapshot.degraded) + ["waiting"] * bool(snapshot.waiting())
    return [name, ", ".join([snapshot.state, *marks]), up, *(f"{number:,}" for number in numbers)]


def _workers(found: Overview) -> Table:
    table = new_table("worker", "life", "node", "process", "tasks")
    for worker in _worker_facts(found):
        tasks = ", ".join(worker["tasks"])
        cells = (worker["worker"], worker["life"], (worker["node"] or "")[:8], worker["process"])
        table.add_row(*("" if cell is None else str(cell) for cell in cells), tasks)
    return table


def _worker_facts(found: Overview) -> list[dict[str, Any]]:
    facts = []
    for worker in found.plan.workers:
        node, process = found.processes.get(worker, (None, None))
        stats = found.snapshot.workers.get(worker)
        facts.append(
            {
                "worker": worker,
                "life": stats.incarnation if stats else None,
                "node": node,
                "process": process,
                "tasks": [f"{t.component}[{t.index}]" for t in found.plan.tasks_on(worker)],
                "links": {str(p): for_s for p, for_s in stats.links.items()} if stats else {},
                "crash_reports": stats.crash_reports if stats else None,
            }
        )
    return facts


def _as_json(found: Overview, up_s: float) -> dict[str, Any]:
    snapshot = found.snapshot
    components = {}
    for component in found.plan.graph.components.values():
        latencies = snapshot.latencies(component.id)
        components[component.id] = {
            "parallelism": component.parallelism,
            **asdict(snapshot.component(component.id)),
            **{f"p{percent}_s": latencies.percentile(percent) for percent in (50, 90, 99)},
            "max_s": latencies.percentile(100),
            "figures": {
                name: number if isfinite(number) else None
                for name, number in snapshot.figures(component.id).items()
            },
        }
    return {
        "topology": snapshot.topology,
        "state": snapshot.state,
        "up_s": up_s,
        "restarts": snapshot.restarts,
        "error": found.error,
        "untracked": snapshot.untracked,
        "degraded": [error.story for error in snapshot.degraded.values()],
        "waiting": list(_waits(snapshot)),
        "silent": {str(worker): for_s for worker, for_s in snapshot.silent.items()},
        "stuck": [asdict(call) for call in snapshot.stuck.values()],
        "components": components,
        "workers": _worker_facts(found),
    }


def _waits(snapshot: Snapshot) -> Iterator[dict[str, Any]]:
    from sunshower.cli.health import error_text

    for task in snapshot.waiting():
        if (wait := task.health.wait) is not None:
            yield {
                "component": task.component,
                "task": wait.error.index,
                "worker": wait.error.worker,
                "kind": wait.kind,
                "for_s": wait.for_s,
                "tries": wait.tries,
                "error": error_text(wait.error),
                "reached": wait.reached,
            }
