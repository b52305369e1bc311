"""`sunshower profile`: records running workers, writes a flame graph, prints shares of time."""

from __future__ import annotations

import json
import os
import time
from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import sha256
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer
from rich.console import Group, RenderableType

from sunshower.cli.cluster_options import Address, Name, connect, known_component
from sunshower.cli.formatting import Terminal, echo, new_table, number_of, print_lines
from sunshower.errors import ClusterError, ConfigError, LifecycleError, SourceError
from sunshower.runtime.profiles import (
    RUNTIME,
    WORKER,
    Profile,
    Stacks,
    TimePart,
    colour_part,
    frame_from,
    frames_of,
    split_time,
)
from sunshower.texts import printable, utf8

if TYPE_CHECKING:
    from sunshower.actors.run import RayRun

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
        help="Only workers that run tasks of this component. By default all.",
    ),
]
Seconds = Annotated[float, typer.Option(metavar="N", help="The seconds to record, from 1 to 300.")]
Output = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="The file to write or replace. By default NAME-COMPONENT.svg here."
    ),
]
AsFormat = Annotated[
    ProfileFormat,
    typer.Option(
        "--format", help="An image for a browser, a file for speedscope.app, or one stack per line."
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
    if not 1.0 <= seconds <= _SECONDS_MAX:
        raise ConfigError(f"--seconds {seconds:g} is not between 1 and {_SECONDS_MAX:g}")
    if output is None:
        output = Path(f"{'-'.join(filter(None, (name, component)))}.{_ENDINGS[form]}")
    _check_writable(output)
    errors = Terminal(stderr=True)
    with connect(address, as_job=False) as cluster:
        run = cluster.find(name)
        workers = profiled_workers(run, component)
        doing = f"Recording {number_of(len(workers), 'worker')}"
        if not errors.is_terminal:  # where `status` shows nothing
            print_lines(errors, [f"{doing} for {seconds:g} s …"])
        with errors.status(f"{doing} …") as status:
            recorded = record_run(
                run,
                workers,
                seconds,
                in_process=in_process,
                look=lambda passed_s: status.update(f"{doing}: {passed_s:.0f} of {seconds:g} s"),
            )
    print_lines(errors, remarks(recorded), "yellow")
    title = " · ".join(filter(None, (name, component)))
    match form:
        case ProfileFormat.FLAMEGRAPH:
            content = flame_graph(recorded.stacks, title)
        case ProfileFormat.SPEEDSCOPE:
            content = speedscope(recorded.stacks, title)
        case _:
            content = collapsed(recorded.stacks)
    _write(output, content)
    Terminal().print(time_table(recorded, component))
    echo(f"{sum(recorded.stacks.values()):,} samples are in {output}.")


def record_run(
    run: RayRun,
    workers: Sequence[int],
    seconds: float,
    *,
    in_process: bool = False,
    look: Callable[[float], None] = lambda _: None,
) -> Profile:
    """The profile of some workers. `look`: as `record`. Raises ClusterError if there is nothing."""
    from sunshower.actors.profile_recording import record

    recorded = record(run.id, workers, seconds, in_process=in_process, look=look)
    if not recorded.stacks:
        raise ClusterError(
            f"nothing was recorded of {run.topology!r}: its workers were restarted meanwhile; try "
            "again"
        )
    return recorded


def recorded_profile(
    run: RayRun, component: str | None, seconds: float
) -> tuple[dict[str, Any], str]:
    """A profile of a topology, or of a component, for the page. Raises as `record_run` and
    `profiled_workers`."""
    recorded = record_run(run, profiled_workers(run, component), seconds)
    return profile_facts(recorded, run.topology, component)


def profile_facts(
    recorded: Profile, topology: str, component: str | None
) -> tuple[dict[str, Any], str]:
    """What `sunshower profile` prints, and the flame graph as SVG."""
    title = " · ".join(filter(None, (topology, component)))
    shares = time_shares(recorded, component)._asdict()
    facts = {**shares, "remarks": remarks(recorded), "graph": title}
    return facts, flame_graph(recorded.stacks, title)


def profiled_workers(run: RayRun, component: str | None) -> Sequence[int]:
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


def remarks(recorded: Profile) -> list[str]:
    """A line for each reason why py-spy did not sample, and for each worker that is missing."""
    lines = []
    for reason in dict.fromkeys(recorded.refusals.values()):
        ids = [str(worker) for worker, why in recorded.refusals.items() if why == reason]
        who = f"worker {ids[0]} was" if len(ids) == 1 else f"workers {', '.join(ids)} were"
        lines.append(f"{who} sampled by a thread in the process: {reason}")
    return lines + [
        f"worker {worker} is missing: {why}" for worker, why in recorded.missing.items()
    ]


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
    """Write the whole file, or nothing; directly into what is not a regular file. Raises
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


# ---- flame graph ---------------------------------------------------------------------------------
# Draws stacks as a flame graph: one SVG file that loads no other file.
#
# The outermost function is at the top, and a box is as wide as the share of samples in which its
# function, or one that it called, was running. A click on a box shows it in the full width.

_WIDTH, _ROW, _TOP = 1200, 18, 66
_NARROWEST = 0.0005  # of the whole: boxes below are left out
_CHARACTER = 6.6  # width of one, in the font below
_COLOURS = {
    TimePart.USER: "#f4a259",
    TimePart.OPERATORS: "#b5d99c",
    TimePart.SERIALISATION: "#9bc1e8",
    TimePart.RECORDS: "#e3b7c8",
    TimePart.ROUTING: "#c9b6e4",
    TimePart.TRACKING: "#d4c4b0",
    TimePart.SPOUTS: "#a9dcd6",
    TimePart.BOLTS: "#c8d5b9",
    TimePart.REST: "#d3d6da",
    TimePart.WAITING: "#eef0f2",
}
_LIBRARY = "#f7dfa5"


@dataclass
class _Node:
    text: str
    count: int = 0
    children: dict[str, _Node] = field(default_factory=dict)


def flame_graph(stacks: Stacks, title: str) -> str:
    """The text of an SVG file."""
    root = _Node("all")
    for stack, count in sorted(stacks.items()):
        node = root
        node.count += count
        for text in stack.split(";"):
            node = node.children.setdefault(text, _Node(text))
            node.count += count
    boxes = list(_boxes(root, root.count))
    depth = max(row for row, _, _ in boxes) + 1
    height = _TOP + depth * _ROW + 12
    body = "\n".join(_box(row, left, node, root.count) for row, left, node in boxes)
    return f"""<?xml version="1.0" encoding="UTF-8"?>
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" font-size="11"
 font-family="ui-monospace, monospace" role="img" aria-label="{_safe(title)}">
<style>{_STYLE}</style>
<rect width="100%" height="100%" fill="#ffffff"/>
<text x="8" y="20" font-size="15">{_safe(title)}</text>
<text x="8" y="37">{root.count:,} samples. Click a box to enlarge it, the top box for all.</text>
{_legend()}
<g id="boxes">
{body}
</g>
<script><![CDATA[{_script()}]]></script>
</svg>
"""


_STYLE = """
.box { cursor: pointer }
.box:hover rect { stroke: #333 }
text { fill: #1d1f21 }
"""


def _script() -> str:
    return "\n" + files("sunshower.cli.profiles").joinpath("flame_graph.js").read_text("utf-8")


def graph_policy() -> str:
    """The Content-Security-Policy with which a browser shows a flame graph, and nothing else."""
    digests = (sha256(text.encode()).digest() for text in (_script(), _STYLE))
    script, style = (f"'sha256-{b64encode(digest).decode()}'" for digest in digests)
    return f"default-src 'none'; script-src {script}; style-src {style}; frame-ancestors 'none'"


def _boxes(root: _Node, total: int) -> Iterator[tuple[int, int, _Node]]:
    """Row, samples to its left, and node, of each box that is wide enough."""
    waiting = [(0, 0, root)]
    while waiting:
        row, left, node = waiting.pop()
        yield row, left, node
        for child in node.children.values():
            if child.count >= _NARROWEST * total:
                waiting.append((row + 1, left, child))
            left += child.count


def _box(row: int, left: int, node: _Node, total: int) -> str:
    x, width = left / total * _WIDTH, node.count / total * _WIDTH
    y = _TOP + row * _ROW
    name = frame_from(node.text).name
    room = int((width - 6) / _CHARACTER)
    label = name if len(name) <= room else f"{name[: room - 1]}…" if room > 2 else ""
    share = f"{node.count:,} samples, {node.count / total:.1%}"
    return (
        f'<g class="box" data-x="{left}" data-w="{node.count}" data-name="{_safe(name)}">'
        f"<title>{_safe(node.text)}: {share}</title>"
        f'<rect x="{x:.2f}" y="{y}" width="{width:.2f}" height="{_ROW - 1}" rx="1" '
        f'fill="{_colour(node.text)}"/>'
        f'<text x="{x + 3:.2f}" y="{y + 13}">{_safe(label)}</text></g>'
    )


def _colour(text: str) -> str:
    frame = frame_from(text)
    if frame.file == "<none>":  # a thread, or what stands for several frames
        return _COLOURS[TimePart.REST]
    part = colour_part(frame)
    return _LIBRARY if part is None else _COLOURS[part]


def _legend() -> str:
    shown, x = [], 8
    for name, colour in [*_COLOURS.items(), ("libraries", _LIBRARY)]:
        shown.append(
            f'<rect x="{x}" y="45" width="11" height="11" fill="{colour}" stroke="#999"/>'
            f'<text x="{x + 15}" y="55">{name}</text>'
        )
        x += 32 + int(len(name) * _CHARACTER)
    return "\n".join(shown)


def _safe(text: str) -> str:
    return escape(printable(text))


# ---- forms ---------------------------------------------------------------------------------------

_COLUMNS = (TimePart.USER, TimePart.OPERATORS, TimePart.SERIALISATION)


def time_table(recorded: Profile, component: str | None = None) -> RenderableType:
    """Where the time of the sampled workers went; the component that was asked for comes first."""
    shares = time_shares(recorded, component)
    table = new_table(shares.columns[0], numbers=shares.columns[1:], title=shares.title)
    for row in shares.rows:
        table.add_row(*row)
    return Group(table, shares.runtime)


class TimeShares(NamedTuple):
    """Where the time of the sampled workers went, as texts."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]  # of each component, and of all
    runtime: str  # a sentence about the parts of the runtime


def time_shares(recorded: Profile, component: str | None = None) -> TimeShares:
    """As `time_table`."""
    split = split_time(recorded.stacks)
    total: Counter[TimePart] = sum(split.values(), Counter())
    workers = number_of(len(recorded.samplers), "worker")
    samplers = sorted(set(recorded.samplers.values()))
    names = sorted(
        split, key=lambda item: (item != component, item == WORKER, -split[item].total())
    )
    parts = ", ".join(f"{part.value} {_share(total[part], total.total())}" for part in RUNTIME)
    return TimeShares(
        f"{total.total():,} samples of {workers}, by {' and '.join(samplers)}",
        ("component", "share", *(part.value for part in _COLUMNS), "runtime", "waiting"),
        [
            *(_row(name or "(no task)", split[name], total.total()) for name in names),
            _row("all", total, total.total()),
        ],
        f"The runtime: {parts}.",
    )


def collapsed(stacks: Stacks) -> str:
    """One line for each stack, `thread;frame;frame 12`, as the tools for flame graphs read it."""
    return "".join(f"{stack} {count}\n" for stack, count in sorted(stacks.items()))


def speedscope(stacks: Stacks, title: str) -> str:
    """A JSON text for speedscope, with a profile for each thread."""
    numbers: dict[str, int] = {}
    frames: list[dict[str, Any]] = []
    threads: dict[str, tuple[list[list[int]], list[int]]] = {}
    for stack, count in sorted(stacks.items()):
        samples, weights = threads.setdefault(stack.partition(";")[0], ([], []))
        for frame in frames_of(stack):
            if str(frame) not in numbers:
                numbers[str(frame)] = len(frames)
                frames.append({"name": frame.name, "file": frame.file, "line": frame.line})
        samples.append([numbers[str(frame)] for frame in frames_of(stack)])
        weights.append(count)
    profiles = [
        {
            "type": "sampled",
            "name": thread,
            "unit": "none",
            "startValue": 0,
            "endValue": sum(weights),
            "samples": samples,
            "weights": weights,
        }
        for thread, (samples, weights) in threads.items()
    ]
    return json.dumps(
        {
            "$schema": "https://www.speedscope.app/file-format-schema.json",
            "name": title,
            "exporter": "sunshower",
            "shared": {"frames": frames},
            "profiles": profiles,
        }
    )


def _row(name: str, parts: Counter[TimePart], of: int) -> list[str]:
    runtime = sum(parts[part] for part in RUNTIME)
    counts = [*(parts[part] for part in _COLUMNS), runtime, parts[TimePart.WAITING]]
    return [name, *(_share(count, of) for count in (parts.total(), *counts))]


def _share(count: int, of: int) -> str:
    return f"{count / of:.1%}" if of else ""
