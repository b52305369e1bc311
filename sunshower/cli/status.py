"""The commands that query a cluster: list, status, query, ask, top."""

from __future__ import annotations

import select
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.live import Live
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from sunshower.cli.cluster_options import (
    ANSWER_WITHIN_S,
    Address,
    Name,
    Window,
    ask_all,
    connect,
    known_component,
    stored_entries,
)
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
from sunshower.cli.program_options import AsJson, Internals
from sunshower.errors import ClusterError, SunshowerError, TopologyFailed
from sunshower.topologies.requests import TypedText

if TYPE_CHECKING:
    from sunshower.actors.cluster import RayCluster
    from sunshower.runtime.control.overview import Overview


Component = Annotated[
    str,
    typer.Argument(metavar="COMPONENT", help="The component that has the state."),
]
Only = Annotated[
    str | None,
    typer.Option(
        "--component",
        metavar="COMPONENT",
        help="Show the tasks of this component, and all time windows.",
    ),
]
Key = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[KEY]...",
        help="The key: one value for each field. `5` is the text or the number that exists. "
        "Write `--` before a negative number.",
    ),
]
Requests = Annotated[str, typer.Argument(metavar="REQUESTS", help="The stream of requests.")]
Value = Annotated[
    str,
    typer.Argument(
        metavar="VALUE",
        help="""The fields as JSON, '{"word": "the"}', or the value of the only field. Write `--`
        before a negative number.""",
    ),
]
Timeout = Annotated[
    float,
    typer.Option(
        "--timeout", min=0.001, metavar="SECONDS", help="The longest wait for the answer."
    ),
]
Limit = Annotated[
    int,
    typer.Option(min=1, metavar="N", help="The most keys to print, without KEY."),
]


def list_(address: Address = "auto") -> None:
    """List all topologies of a cluster, including those that have finished or failed.

    A topology is kept, with its counters and results, until `sunshower kill NAME` removes it.
    """
    from sunshower.cli.health import wait_lines
    from sunshower.cli.ui.source import why_silent

    titles = ("per s", "behind", "acked", "failed", "restarts")
    table = new_table("topology", "state", "up", numbers=titles)
    waits: list[str] = []
    with connect(address) as cluster:
        answers = ask_all(cluster.runs(), lambda name: cluster.find(name).overview())
    for name, answer in answers:
        if isinstance(answer, SunshowerError):
            table.add_row(name, why_silent(answer))
        else:
            table.add_row(*_row(name, answer))
            waits += [f"{name}: {line}" for line in wait_lines(answer.snapshot.waiting())]
    if answers:
        console = Terminal()
        console.print(table)
        print_lines(console, waits, "red")
    else:
        echo("There is no topology. Start one with: sunshower submit FILE.py")


def status(
    name: Name,
    component: Only = None,
    window: Window = "1m",
    internals: Internals = False,
    as_json: AsJson = False,
    address: Address = "auto",
) -> None:
    """Show a topology: its state, counters by component, outages, and the tasks of each worker.

    The counters of the first table begin with the topology. The second table shows the load of
    components in a time window; `sunshower top` shows it live, and its help explains the columns.
    """
    from sunshower.cli import statistics
    from sunshower.cli.display import Display
    from sunshower.cli.health import (
        dead_letter_lines,
        expired_lines,
        failure_lines,
        late_lines,
        problems,
    )
    from sunshower.cli.statistics import status_fields

    with connect(address) as cluster:
        overview = cluster.find(name).overview()
    up_s = time.time() - overview.since_s
    if as_json:
        echo_json(status_fields(overview, up_s))
        return
    if component is not None:
        _print_component(overview, component, up_s)
        return
    console, snapshot = Terminal(), overview.snapshot
    title = f"{name}  ·  {snapshot.state}  ·  up {elapsed(up_s)}  ·  restarts: {snapshot.restarts}"
    display = Display(overview.plan.graph)
    console.print(display.table(snapshot, title, average_s=up_s, internals=internals))
    print_lines(console, statistics.progress_lines(snapshot))
    graph = overview.plan.graph
    acts = statistics.activities(snapshot, [*graph.components], window, up_s)
    when = statistics.window_title(window, acts)
    console.print(statistics.load_table(graph, snapshot, acts, when, internals=internals))
    print_lines(console, statistics.place_lines(graph, acts, when), "yellow")
    print_lines(console, statistics.watermark_lines(graph, snapshot))
    print_lines(console, late_lines(graph, snapshot), "yellow")
    print_lines(console, statistics.fill_lines(graph, snapshot))
    print_lines(console, statistics.scaling_lines(snapshot))
    print_lines(console, display.figures(snapshot))
    print_lines(console, failure_lines(snapshot), "yellow")
    print_lines(console, (*dead_letter_lines(graph, snapshot), *expired_lines(graph, snapshot)))
    console.print(_workers(overview))
    print_lines(console, problems(snapshot), "red")
    for error in filter(None, (overview.error, snapshot.untracked)):
        print_lines(console, [format_error(TopologyFailed(error))], "bold red")


def query(
    name: Name,
    component: Component,
    key: Key = None,
    limit: Limit = 20,
    address: Address = "auto",
) -> None:
    """Print the value of KEY in the state of a running component, or of some keys without KEY.

    Each value is a line of JSON, as written by the last batch of the component.
    """
    with connect(address) as cluster:
        for stored_key, value in stored_entries(cluster.find(name), component, key or (), limit):
            echo_value(value if key else {"key": stored_key, "value": value})
            if key:
                return
        if not key:
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

    The rows are printed when the answer is complete. Exit status 1: the request failed, was
    refused, or was not answered in time.
    """
    with connect(address) as cluster:
        for row in cluster.find(name).ask(requests, TypedText(value), timeout_s=timeout_s):
            echo_value(row)


def _row(name: str, overview: Overview) -> list[str]:
    from sunshower.cli.ui.source import summary_facts

    facts = summary_facts(name, overview, time.time())
    fields = ("rate", "lag", "acked", "failed", "restarts")
    numbers = ("" if facts[field] is None else f"{facts[field]:,.0f}" for field in fields)
    state = ", ".join([facts["state"], *facts["marks"]])
    return [name, state, elapsed(facts["up_s"]), *numbers]


def _workers(overview: Overview) -> Table:
    table = new_table("worker", "life", "node", "process", "tasks")
    from sunshower.cli.statistics import worker_fields

    for worker in worker_fields(overview):
        tasks = ", ".join(worker["tasks"])
        cells = (worker["worker"], worker["life"], (worker["node"] or "")[:8], worker["process"])
        table.add_row(*("" if cell is None else str(cell) for cell in cells), tasks)
    return table


def _print_component(overview: Overview, name: str, up_s: float) -> None:
    """Print the tables of one component. Raises ClusterError if there is none of this name."""
    from sunshower.cli import statistics

    graph, console = overview.plan.graph, Terminal()
    component = known_component(graph, name)
    console.print(statistics.windows_table(graph, overview.snapshot, component, up_s))
    console.print(statistics.tasks_table(overview.plan, overview.snapshot, component))
    print_lines(console, statistics.stream_lines(overview.snapshot.component(name)))


# ---- top -----------------------------------------------------------------------------------------

_EVERY_S = 1.0
_HELP = "q or Ctrl-C ends · s sorts by {order} · j and k scroll"
_FAILURES = 6  # lines of groups of failures, two for each

Topology = Annotated[
    str | None,
    typer.Argument(metavar="[NAME]", help="The topology. By default all topologies."),
]
Once = Annotated[bool, typer.Option("--once", help="Print the display once.")]


def top(
    name: Topology = None,
    window: Window = "1m",
    once: Once = False,
    internals: Internals = False,
    address: Address = "auto",
) -> None:
    """Show live which components are busy, which fail, and which wait for a dependency.

    `capacity` is the share of the time in which the tasks of a component were busy, as in Storm:
    the bottleneck is near 100 %. `blocked` is the share in which they waited for slower receivers.
    `wait` and `run` are the times of inputs in the inbox and in the bolt's code; `p99` alone is the
    time from emit to complete tree. Without a terminal the display is printed once.
    """
    console = Terminal()
    with connect(address, as_job=once) as cluster:
        if name is not None:
            cluster.find(name)  # raises ClusterError if it is not there
        if once or not console.is_terminal:
            console.print(frame(cluster, name, window, internals=internals))
        else:
            with pressed_keys() as read_key:
                draw = partial(frame, cluster, name, window, internals=internals)
                show_live(console, draw, read_key)


def show_live(
    console: Console, draw: Callable[[str], RenderableType], read_key: Callable[[float], str]
) -> None:
    """Draw a frame every second, on a screen of its own, until `q` or Ctrl-C. `draw` gets what to
    sort by; `read_key` returns the key that is pressed within so many seconds, or an empty text."""
    from sunshower.cli.statistics import ORDERS
    from sunshower.experiments.runner.interrupts import Interrupts

    with Interrupts() as interrupts:
        interrupts.defer()
        orders, first = [*ORDERS], 0  # of the lines that are shown
        with Live(console=console, screen=True, auto_refresh=False) as live:
            while not interrupts.requested:
                text = Text(_HELP.format(order=orders[0]), style="dim")
                live.update(Group(text, _Scrolled(draw(orders[0]), first)), refresh=True)
                match read_key(_EVERY_S):
                    case "q":
                        return
                    case "s":
                        orders = [*orders[1:], orders[0]]
                    case "j":
                        first += 1
                    case "k":
                        first = max(0, first - 1)


class _Scrolled:
    """A frame from its line `first` on."""

    def __init__(self, frame: RenderableType, first: int) -> None:
        self._frame, self._first = frame, first

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        lines = console.render_lines(self._frame, options.update(height=None), pad=False)
        for line in lines[self._first :]:
            yield from line
            yield Segment.line()


@contextmanager
def pressed_keys() -> Iterator[Callable[[float], str]]:
    """While entered, keys arrive without Enter and are not shown; yields what `show_live` needs.
    The terminal is restored at the end."""
    if not sys.stdin.isatty():
        yield _wait_without_keys
        return
    import termios
    import tty

    before = termios.tcgetattr(sys.stdin)
    tty.setcbreak(sys.stdin)  # Ctrl-C remains a signal
    try:
        yield _read_key
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def frame(
    cluster: RayCluster,
    name: str | None,
    window: str,
    order: str = "capacity",
    *,
    internals: bool = False,
) -> Group:
    """What `top` shows of one topology, or (None) of all; `order`: see `load_table`."""
    names = cluster.runs() if name is None else [name]
    parts: list[RenderableType] = []
    for topology, answer in ask_all(
        names, lambda topology: cluster.find(topology).overview(ANSWER_WITHIN_S)
    ):
        if isinstance(answer, SunshowerError):
            parts.append(Text(f"{topology} does not answer: {answer}", style="red"))
        else:
            up_s = time.time() - answer.since_s
            parts.append(topology_frame(answer, up_s, window, order, internals=internals))
    if not parts:
        parts.append(Text("There is no topology. Start one with: sunshower submit FILE.py"))
    return Group(*parts)


def topology_frame(
    overview: Overview,
    up_s: float,
    window: str,
    order: str = "capacity",
    *,
    internals: bool = False,
) -> Group:
    """One topology: its state, the table, failures by place, problems. `up_s`: since it was
    submitted; `order`: see `load_table`."""
    from sunshower.cli.health import current_problems, failure_lines
    from sunshower.cli.statistics import (
        activities,
        fill_lines,
        load_table,
        place_lines,
        progress_lines,
        watermark_lines,
        window_title,
    )

    snapshot, graph = overview.snapshot, overview.plan.graph
    acts = activities(snapshot, [*graph.components], window, up_s)
    when = window_title(window, acts)
    title = f"{snapshot.topology}  ·  {snapshot.state}  ·  up {elapsed(up_s)}  ·  {when}"
    red = [*current_problems(snapshot), *filter(None, (overview.error, snapshot.untracked))]
    return Group(
        load_table(graph, snapshot, acts, title, order=order, internals=internals),
        *map(Text, progress_lines(snapshot)),
        *map(Text, watermark_lines(graph, snapshot)),
        *map(Text, fill_lines(graph, snapshot)),
        *(Text(line, style="yellow") for line in place_lines(graph, acts, when)),
        *(Text(line, style="yellow") for line in islice(failure_lines(snapshot), _FAILURES)),
        *(Text(line, style="red") for line in red),
    )


def _read_key(seconds: float) -> str:
    ready, _, _ = select.select([sys.stdin], [], [], seconds)
    return sys.stdin.read(1) if ready else ""


def _wait_without_keys(seconds: float) -> str:
    time.sleep(seconds)
    return ""
