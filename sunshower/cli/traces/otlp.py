"""Exports recorded tuple trees as spans, with the OpenTelemetry library.

A tree is a trace: a span for the message, from its emit to its end, and below it a span for each
edge, from when it was sent to when it was acked or failed, with an event when its processing began.
A replay has a link to the attempt before it. Ids follow from those of the tree, so a tree that is
exported twice has the same ids. Names: OpenTelemetry's conventions for messaging.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from sunshower.errors import ClusterError, ConfigError
from sunshower.runtime.tuple_traces import TraceHop, TupleTrace
from sunshower.secret import shown

if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.trace import SpanContext

_AT_ONCE = 500  # spans of one request
_TIMEOUT_S = 10.0
_SYSTEM = {"messaging.system": "sunshower"}


def export_trees(
    topology: str, trees: Sequence[TupleTrace], known: Iterable[TupleTrace], url: str
) -> int:
    """Send these trees as spans; return how many spans. `known`: trees that links may lead to.

    Raises ConfigError for a text that is no URL, and ClusterError if the receiver does not take
    them.
    """
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace.export import SpanExportResult

    exporter, count = OTLPSpanExporter(_endpoint(url), timeout=_TIMEOUT_S), 0
    try:
        waiting = spans(topology, trees, known)
        while some := list(islice(waiting, _AT_ONCE)):
            if exporter.export(some) is not SpanExportResult.SUCCESS:
                raise ClusterError(
                    f"{shown(url)} does not take spans by OTLP over HTTP, after {count:,} of them: "
                    "the log line above says why. Is a collector listening there?"
                )
            count += len(some)
    finally:
        exporter.shutdown()
    return count


def spans(
    topology: str, trees: Iterable[TupleTrace], known: Iterable[TupleTrace]
) -> Iterator[ReadableSpan]:
    """The spans of these trees."""
    from opentelemetry.sdk.resources import Resource

    resource = Resource.create({"service.name": topology})
    attempts = {(one.spout, one.number, one.attempt or 1): one for one in known}
    for tree in trees:
        former = attempts.get((tree.spout, tree.number, (tree.attempt or 1) - 1))
        yield _message(tree, former, resource)
        for hop in tree.hops:
            yield _edge(tree, hop, resource)


def _message(tree: TupleTrace, former: TupleTrace | None, resource: Resource) -> ReadableSpan:
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.trace import Link, SpanKind

    component = _component(tree.spout)
    attributes: dict[str, Any] = {
        **_SYSTEM,
        "messaging.operation.name": "emit",
        "messaging.operation.type": "send",
        "messaging.destination.name": component,
        "messaging.message.id": tree.message_id,
        "sunshower.root": tree.root,
        "sunshower.outcome": tree.outcome,
        "sunshower.task": tree.spout,
        "sunshower.worker": tree.worker,
        "sunshower.attempt": tree.attempt,
        "error.type": tree.cause,
    }
    times = [one for hop in tree.hops for one in _times(hop)]
    end_s = tree.ended_s or max([tree.begun_s, *times])
    return ReadableSpan(
        f"emit {component}",
        _context(tree, tree.root),
        resource=resource,
        attributes=_there(attributes),
        links=[] if former is None else [Link(_context(former, former.root))],
        kind=SpanKind.PRODUCER,
        status=_status(tree.reason or tree.cause),
        start_time=_ns(tree.begun_s),
        end_time=_ns(end_s),
    )


def _edge(tree: TupleTrace, hop: TraceHop, resource: Resource) -> ReadableSpan:
    from opentelemetry.sdk.trace import Event, ReadableSpan
    from opentelemetry.trace import SpanKind

    component = _component(hop.target)
    attributes: dict[str, Any] = {
        **_SYSTEM,
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": component,
        "messaging.message.id": tree.message_id,
        "sunshower.root": tree.root,
        "sunshower.source": hop.source,
        "sunshower.task": hop.target,
        "sunshower.worker": hop.worker,
        "sunshower.record": hop.record,
        "error.type": hop.cause,
    }
    times = _times(hop)
    begins = [] if hop.delivered_s is None else [Event("delivered", timestamp=_ns(hop.delivered_s))]
    return ReadableSpan(
        f"process {component}",
        _context(tree, hop.edge),
        parent=_context(tree, hop.parent or tree.root),
        resource=resource,
        attributes=_there(attributes),
        events=begins,
        kind=SpanKind.CONSUMER,
        status=_status(hop.cause),
        start_time=_ns(min(times)),
        end_time=_ns(max(times)),
    )


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


def _times(hop: TraceHop) -> list[float]:
    times = (hop.sent_s, hop.delivered_s, hop.acked_s, hop.refused_s)
    return [one for one in times if one is not None]


def _there(attributes: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in attributes.items() if value is not None}


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
