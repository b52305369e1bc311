"""`sunshower trace`: lists recorded tuple trees, draws one, or exports them to OpenTelemetry."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

import typer
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from sunshower.cli.cluster_options import Address, Name, connect
from sunshower.cli.formatting import Terminal, duration, echo, echo_json, new_table, print_lines
from sunshower.cli.program_options import AsJson
from sunshower.cli.traces.facts import missing, no_such_tree, traces_fields, why_none
from sunshower.errors import ClusterError, ConfigError
from sunshower.runtime.events.trace_recorder import TraceHop, Traces, TupleTrace
from sunshower.secret import shown

if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.trace import SpanContext

Root = Annotated[
    str | None,
    typer.Argument(metavar="[ROOT]", help="The root id of the tree to draw."),
]
Failed = Annotated[bool, typer.Option("--failed", help="Only trees that have failed.")]
Limit = Annotated[
    int,
    typer.Option(
        min=1, metavar="N", help="The number of rows of each table; with --json, of trees."
    ),
]
Otlp = Annotated[
    str | None,
    typer.Option(
        "--otlp",
        metavar="URL",
        help="Send the trees as spans to an OpenTelemetry receiver: http://localhost:4318",
    ),
]


def trace(
    name: Name,
    root: Root = None,
    failed: Failed = False,
    limit: Limit = 10,
    as_json: AsJson = False,
    otlp: Otlp = None,
    address: Address = "auto",
) -> None:
    """Draw the tree of one tuple, or list the recorded trees.

    Recorded are a share of all trees (the setting `trace_share`), and every replay of a failed
    tuple. A worker keeps the last 1,000 trees, up to 4 MiB.
    """
    if otlp is not None:
        from sunshower.installed import check_packages

        check_packages("traces", "which sends spans", "opentelemetry.exporter.otlp.proto.http")
    with connect(address) as cluster:
        run = cluster.find(name)
        recorded, plan = run.traces(root), run.plan
    trees = recorded.failed if failed else recorded.trees
    if root is not None and not trees:
        raise no_such_tree(name, root, failed=failed)
    if otlp is not None:
        count = export_trees(name, trees, recorded.trees, otlp)
        echo(f"{len(trees):,} trees with {count:,} spans were sent to {shown(otlp)}")
        print_lines(Terminal(stderr=True), missing(recorded), "red")
    elif as_json:
        echo_json(traces_fields(recorded, trees if root is not None else trees[:limit]))
    else:
        console = Terminal()
        one_tree = root is not None
        for part in [drawn_tree(trees[0])] if one_tree else tables(recorded, limit, failed=failed):
            console.print(part)
        if not trees:
            echo(why_none(plan, failed=failed))
        print_lines(console, missing(recorded), "red")


# ---- drawing -------------------------------------------------------------------------------------

_HOPS_MAX = 200
_LINE_MAX = 100  # characters of a record
_ID_MAX = 40


def tables(recorded: Traces, limit: int, *, failed: bool) -> Iterator[RenderableType]:
    """The latest, slowest and failed trees, `limit` of each; `failed`: only the failed ones."""
    kinds = [("failed", recorded.failed)]
    if not failed:
        kinds = [("latest", recorded.trees), ("slowest", recorded.slowest), *kinds]
    for title, trees in kinds:
        if trees:
            shown_count = f" ({limit:,} of {len(trees):,})" if len(trees) > limit else ""
            yield _table(f"{title}{shown_count}", trees[:limit])


def drawn_tree(tree: TupleTrace) -> RenderableType:
    """One tree: each edge below the input that it was made from."""
    drawn = Tree(Text(_place(tree.spout, tree.worker)))
    nodes: dict[str | None, Tree] = {}
    for hop in tree.hops[:_HOPS_MAX]:
        parent = nodes.get(hop.parent, drawn)
        nodes[hop.edge] = parent.add(_hop(hop, tree.outcome))
    hidden = max(0, len(tree.hops) - _HOPS_MAX)
    if hidden:
        drawn.add(f"… and {hidden:,} more edges: see --json")
    if tree.dropped:
        drawn.add(f"… and {tree.dropped:,} edges that were not recorded")
    return Group(_heading(tree), drawn)


def _heading(tree: TupleTrace) -> Text:
    parts = [f"root {tree.root}", tree.outcome]
    if tree.emitted_s is not None:
        parts += [f"message {one_line(tree.message_id, _ID_MAX)}", f"attempt {tree.attempt}"]
        parts += [f"emitted {_clock(tree.emitted_s)}"]
    if tree.latency_s is not None:
        parts.append(duration(tree.latency_s))
    heading = Text("  ·  ".join(parts), style=_style(tree.outcome))
    if tree.outcome == "unknown":
        heading.append("\nthe worker of its spout has died, or recorded it too long ago")
    if tree.reason:
        heading.append(f"\n{one_line(tree.reason, 4 * _LINE_MAX)}")
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
        *columns, numbers=("attempt", "edges", "took"), title=title, clipped=["message"], least=16
    )
    for tree in trees:
        latency_s = tree.latency_s
        table.add_row(
            tree.root,
            Text(tree.cause or tree.outcome, style=_style(tree.outcome)),
            "" if tree.emitted_s is None else _clock(tree.emitted_s),
            f"{tree.spout} {one_line(tree.message_id, _ID_MAX)}",
            str(tree.attempt or "?"),
            f"{len(tree.hops) + tree.dropped:,}",
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


# ---- otlp ----------------------------------------------------------------------------------------
# Exports recorded tuple trees as spans, with the OpenTelemetry library.
#
# A tree is a trace: a span for the message, from its emit to its end, and below it a span for each
# edge, from when it was sent to when it was acked or failed, with an event when its processing
# began. A replay has a link to the attempt before it. Ids follow from those of the tree, so a tree
# that is exported twice has the same ids. Names: OpenTelemetry's conventions for messaging.

_AT_ONCE = 500  # spans of one request
_TIMEOUT_S = 10.0


def export_trees(
    topology: str, trees: Sequence[TupleTrace], known: Iterable[TupleTrace], url: str
) -> int:
    """Send these trees as spans; return how many spans. `known`: trees that links may lead to.

    Raises ConfigError for a text that is not a URL, and ClusterError if the receiver does not take
    them.
    """
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace.export import SpanExportResult

    exporter, count = OTLPSpanExporter(_endpoint(url), timeout=_TIMEOUT_S), 0
    try:
        waiting = spans(topology, trees, known)
        while batch := list(islice(waiting, _AT_ONCE)):
            if exporter.export(batch) is not SpanExportResult.SUCCESS:
                raise ClusterError(
                    f"{shown(url)} does not take spans by OTLP over HTTP, after {count:,} of them: "
                    "the log line above says why. Is a collector listening there?"
                )
            count += len(batch)
    finally:
        exporter.shutdown()
    return count


def spans(
    topology: str, trees: Iterable[TupleTrace], known: Iterable[TupleTrace]
) -> Iterator[ReadableSpan]:
    """The spans of these trees."""
    from opentelemetry.sdk.resources import Resource

    resource = Resource.create({"service.name": topology})
    attempts = {(other.spout, other.number, other.attempt or 1): other for other in known}
    for tree in trees:
        former = attempts.get((tree.spout, tree.number, (tree.attempt or 1) - 1))
        yield _message(tree, former, resource)
        for hop in tree.hops:
            yield _edge(tree, hop, resource)


def _message(tree: TupleTrace, former: TupleTrace | None, resource: Resource) -> ReadableSpan:
    from opentelemetry.trace import Link, SpanKind

    times = [span_time for hop in tree.hops for span_time in _span_times(hop)]
    return _span(
        tree,
        "emit",
        _component(tree.spout),
        _context(tree, tree.root),
        {
            "messaging.operation.type": "send",
            "sunshower.outcome": tree.outcome,
            "sunshower.task": tree.spout,
            "sunshower.worker": tree.worker,
            "sunshower.attempt": tree.attempt,
            "error.type": tree.cause,
        },
        resource=resource,
        links=[] if former is None else [Link(_context(former, former.root))],
        kind=SpanKind.PRODUCER,
        status=_status(tree.reason or tree.cause),
        start_time=_ns(tree.begun_s),
        end_time=_ns(tree.ended_s or max([tree.begun_s, *times])),
    )


def _edge(tree: TupleTrace, hop: TraceHop, resource: Resource) -> ReadableSpan:
    from opentelemetry.sdk.trace import Event
    from opentelemetry.trace import SpanKind

    times = _span_times(hop)
    return _span(
        tree,
        "process",
        _component(hop.target),
        _context(tree, hop.edge),
        {
            "messaging.operation.type": "process",
            "sunshower.source": hop.source,
            "sunshower.task": hop.target,
            "sunshower.worker": hop.worker,
            "sunshower.record": hop.record,
            "error.type": hop.cause,
        },
        resource=resource,
        parent=_context(tree, hop.parent or tree.root),
        events=()
        if hop.delivered_s is None
        else [Event("delivered", timestamp=_ns(hop.delivered_s))],
        kind=SpanKind.CONSUMER,
        status=_status(hop.cause),
        start_time=_ns(min(times)),
        end_time=_ns(max(times)),
    )


def _span(
    tree: TupleTrace,
    operation: str,
    component: str,
    context: SpanContext,
    attributes: dict[str, Any],
    **more: Any,
) -> ReadableSpan:
    """`attributes`: besides those that the message and the edges of a tree share."""
    from opentelemetry.sdk.trace import ReadableSpan

    attributes = {
        "messaging.system": "sunshower",
        "messaging.operation.name": operation,
        "messaging.destination.name": component,
        "messaging.message.id": tree.message_id,
        "sunshower.root": tree.root,
        **attributes,
    }
    known = {name: value for name, value in attributes.items() if value is not None}
    return ReadableSpan(f"{operation} {component}", context, attributes=known, **more)


def _context(tree: TupleTrace, span: str) -> SpanContext:
    """Roots repeat when a topology is submitted again; the edges are drawn at random."""
    from opentelemetry.trace import SpanContext, TraceFlags

    first = int(tree.hops[0].edge, 16) if tree.hops else 0
    trace_id = first << 64 | int(tree.root, 16)
    flags = TraceFlags(TraceFlags.SAMPLED)
    return SpanContext(trace_id or 1, int(span, 16) or 1, is_remote=True, trace_flags=flags)


def _status(why: str | None) -> Any:
    from opentelemetry.trace import Status, StatusCode

    return Status(StatusCode.ERROR, why) if why else Status(StatusCode.UNSET)


def _span_times(hop: TraceHop) -> list[float]:
    times = (hop.sent_s, hop.delivered_s, hop.acked_s, hop.refused_s)
    return [time for time in times if time is not None]


def _component(task: str) -> str:
    return task.rpartition("[")[0] or task


def _ns(at_s: float) -> int:
    return int(at_s * 1e9)


def _endpoint(url: str) -> str:
    """The address of spans; that of a receiver alone gets OpenTelemetry's usual path."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(f"--otlp is {shown(url)}; it must be like http://localhost:4318")
    return url if parts.path.strip("/") else parts._replace(path="/v1/traces").geturl()
