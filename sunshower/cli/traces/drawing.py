"""Draws a recorded tuple tree, and the tables of recorded trees, for the terminal."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from sunshower.cli.formatting import duration, new_table
from sunshower.runtime.tuple_traces import TraceHop, Traces, TupleTrace

_HOPS_MAX = 200
_LINE_MAX = 100  # characters of a record
_ID_MAX = 40


def tables(found: Traces, limit: int, *, failed: bool) -> Iterator[RenderableType]:
    """The latest, slowest and failed trees, `limit` of each; `failed`: only the failed ones."""
    kinds = [("failed", found.failed)]
    if not failed:
        kinds = [("latest", found.trees), ("slowest", found.slowest), *kinds]
    for title, trees in kinds:
        if trees:
            some = f" ({limit:,} of {len(trees):,})" if len(trees) > limit else ""
            yield _table(f"{title}{some}", trees[:limit])


def drawn_tree(found: TupleTrace) -> RenderableType:
    """One tree: each edge below the input that it was made from."""
    drawn = Tree(Text(_place(found.spout, found.worker)))
    nodes: dict[str | None, Tree] = {}
    for hop in found.hops[:_HOPS_MAX]:
        parent = nodes.get(hop.parent, drawn)
        nodes[hop.edge] = parent.add(_hop(hop, found.outcome))
    hidden = max(0, len(found.hops) - _HOPS_MAX)
    if hidden:
        drawn.add(f"… and {hidden:,} more edges: see --json")
    if found.dropped:
        drawn.add(f"… and {found.dropped:,} edges that were not recorded")
    return Group(_heading(found), drawn)


def _heading(found: TupleTrace) -> Text:
    parts = [f"root {found.root}", found.outcome]
    if found.emitted_s is not None:
        parts += [f"message {one_line(found.message_id, _ID_MAX)}", f"attempt {found.attempt}"]
        parts += [f"emitted {_clock(found.emitted_s)}"]
    if found.latency_s is not None:
        parts.append(duration(found.latency_s))
    heading = Text("  ·  ".join(parts), style=_style(found.outcome))
    if found.outcome == "unknown":
        heading.append("\nthe worker of its spout has died, or recorded it too long ago")
    if found.reason:
        heading.append(f"\n{one_line(found.reason, 4 * _LINE_MAX)}")
    return heading


def _hop(hop: TraceHop, outcome: str) -> Text:
    line = Text(_place(hop.target, hop.worker))
    line.append(f"  {_times(hop, outcome)}", style=_hop_style(hop))
    if hop.record:
        line.append(f"  {one_line(hop.record, _LINE_MAX)}", style="cyan")
    return line


def _times(hop: TraceHop, outcome: str) -> str:
    """How long the record was on its way, and how long its processing took."""
    if outcome == "complete" and hop.acked_s is None:
        return "its worker has died, or recorded it too long ago"
    ended_s = hop.acked_s if hop.acked_s is not None else hop.refused_s
    if hop.delivered_s is None:
        if ended_s is None:
            return "not processed"
        return f"refused: {hop.cause}"
    parts = []
    if hop.sent_s is not None:
        parts.append(f"waited {_length(hop.delivered_s - hop.sent_s)}")
    if ended_s is None:
        parts.append("not acked")
    else:
        parts.append(f"processed in {_length(ended_s - hop.delivered_s)}")
    if hop.refused_s is not None:
        parts.append(f"failed: {hop.cause}")
    return ", ".join(parts)


def _hop_style(hop: TraceHop) -> str:
    if hop.refused_s is not None:
        return "red"
    return "dim" if hop.acked_s is not None else "yellow"


def _table(title: str, trees: tuple[TupleTrace, ...]) -> Table:
    columns = ("root", "outcome", "emitted", "message")
    table = new_table(
        *columns, numbers=("attempt", "edges", "took"), title=title, clipped=["message"]
    )
    for found in trees:
        latency_s = found.latency_s
        table.add_row(
            found.root,
            Text(found.cause or found.outcome, style=_style(found.outcome)),
            "" if found.emitted_s is None else _clock(found.emitted_s),
            f"{found.spout} {one_line(found.message_id, _ID_MAX)}",
            str(found.attempt or "?"),
            f"{len(found.hops) + found.dropped:,}",
            "" if latency_s is None else _length(latency_s),
        )
    return table


def one_line(text: str, longest: int) -> str:
    """The text in one line, cut to `longest` characters."""
    text = " ".join(text.split())
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def _style(outcome: str) -> str:
    return {"failed": "red", "open": "yellow", "unknown": "yellow"}.get(outcome, "green")


def _place(task: str, worker: int | None) -> str:
    return task if worker is None else f"{task} on worker {worker}"


def _clock(at_s: float) -> str:
    return datetime.fromtimestamp(at_s).astimezone().strftime("%H:%M:%S.%f")[:-3]


def _length(seconds: float) -> str:
    """A duration between clocks of two machines may be slightly negative."""
    return duration(max(0.0, seconds))
