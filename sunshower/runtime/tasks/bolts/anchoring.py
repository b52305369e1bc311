"""Anchors single emits as Storm does, one record at a time, for manual bolts and spouts.

    for each target task and each anchor:  one new edge, shared by all roots of the anchor
    an anchor keeps the XOR of the edges made from it; its ack reports  edge ^ that XOR
    two anchors with a common root:        the record carries the XOR of both edges

Storm: org.apache.storm.executor.bolt.BoltOutputCollectorImpl.boltEmit
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from sunshower.errors import BadEmit
from sunshower.runtime.tracking.batch import Batch
from sunshower.runtime.transport.channels import Channel
from sunshower.runtime.transport.output_streams import OutputStream, OutputStreams, Route
from sunshower.runtime.transport.routing import Share, pick


@dataclass(slots=True, eq=False)
class Anchor:
    """A node of one or several tuple trees, from which further edges can be made."""

    roots: Sequence[int]
    made: int = 0  # XOR of the edges made from it


@dataclass(frozen=True, slots=True)
class _Sending:
    record: Any
    anchors: Sequence[Anchor]


_Key = tuple[str, int | None]  # a stream and, for a direct emit, its task


class _Group(NamedTuple):
    key: _Key
    sendings: list[_Sending]


@dataclass(frozen=True, slots=True)
class Unsent:
    """A record that was not sent because a grouping raised."""

    anchors: Sequence[Anchor]
    error: BaseException


class AnchoredSender:
    """Collects single emits and sends them as batches. `flush` draws the edges.

    Emits to one direct task arrive there in their order, also of several streams. All others are
    in order within a stream: this makes larger batches.
    """

    def __init__(self, output_streams: OutputStreams) -> None:
        self._output_streams = output_streams
        self._groups: list[_Group] = []  # to be sent in this order
        self._latest: dict[_Key, _Group] = {}  # of each stream and direct task, the one to add to
        self._stream_to: dict[int, str] = {}  # direct task → the stream of the last emit to it
        self._count = 0

    def __len__(self) -> int:
        """The number of records that wait to be sent."""
        return self._count

    def check(self, stream: str, record: Any, task: int | None = None) -> None:
        """Raise BadEmit for an unknown stream, a record that does not fit, a direct stream without
        a task, a task for a stream that is not direct, or a task that does not subscribe."""
        output_stream = self._output_streams.output_stream(stream)
        if output_stream.spec.schema.misfit([record]) is not None:
            raise self._output_streams.misfit_error(stream, record)
        if task is None:
            if output_stream.spec.direct:
                raise BadEmit(
                    f"stream {stream!r} is direct: name the task, in emit_direct(task, …)"
                )
            return
        if not output_stream.spec.direct:
            raise BadEmit(f"stream {stream!r} is not direct: its grouping chooses the task")
        listening = [channel.target for route in output_stream.routes for channel in route.channels]
        if task not in listening:
            raise BadEmit(
                f"task {task} does not subscribe to direct stream {stream!r}; the tasks that do "
                f"are {sorted(listening)}"
            )

    def add(
        self, stream: str, record: Any, anchors: Sequence[Anchor], task: int | None = None
    ) -> None:
        """Add a checked record, to be sent by the stream's groupings or to one direct task."""
        key = stream, task
        if task is not None and self._stream_to.get(task) != stream:
            self._stream_to[task] = stream
            self._latest.pop(key, None)
        group = self._latest.get(key)
        if group is None:
            group = self._latest[key] = _Group(key, [])
            self._groups.append(group)
        group.sendings.append(_Sending(record, anchors))
        self._count += 1

    def discard(self) -> list[Sequence[Anchor]]:
        """Drop all added records. Returns the anchors of each."""
        return [sending.anchors for group in self._take() for sending in group.sendings]

    def flush(self) -> list[Unsent]:
        """Send all added records. Returns those that a grouping raised for; the others are sent."""
        unsent: list[Unsent] = []
        for (stream, task), here in self._take():
            output_stream = self._output_streams.output_stream(stream)
            output_stream.counts.emitted += len(here)
            if task is None:
                unsent += self._send_routed(output_stream, here)
            else:
                for route in output_stream.routes:
                    for channel in (c for c in route.channels if c.target == task):
                        self._send(output_stream, channel, here)
        return unsent

    def _take(self) -> list[_Group]:
        groups, self._groups, self._count = self._groups, [], 0
        self._latest.clear()
        self._stream_to.clear()
        return groups

    def _send_routed(self, output_stream: OutputStream, sendings: list[_Sending]) -> list[Unsent]:
        records = [sending.record for sending in sendings]
        shares = self._output_streams.shares(output_stream, records, len(records))
        if isinstance(shares, BaseException):
            if len(sendings) == 1:
                return [Unsent(sendings[0].anchors, shares)]
            return [
                no for sending in sendings for no in self._send_routed(output_stream, [sending])
            ]
        for route, shared in zip(output_stream.routes, shares, strict=True):
            self._send_shares(output_stream, route, shared, sendings)
        return []

    def _send_shares(
        self,
        output_stream: OutputStream,
        route: Route,
        shares: list[Share],
        sendings: list[_Sending],
    ) -> None:
        for target, which in shares:
            self._send(output_stream, route.channels[target], pick(sendings, which))

    def _send(
        self, output_stream: OutputStream, channel: Channel, sendings: Sequence[_Sending]
    ) -> None:
        edges = iter(self._output_streams.draw_edges(sum(len(s.anchors) for s in sendings)))
        ids_of_each: list[dict[int, int]] = []
        for sending in sendings:
            ids: defaultdict[int, int] = defaultdict(int)
            for anchor in sending.anchors:
                edge = next(edges)
                if anchor.roots:
                    anchor.made ^= edge
                for root in anchor.roots:
                    ids[root] ^= edge
            ids_of_each.append(ids)
        records = [sending.record for sending in sendings]
        alone = self._output_streams.alone
        batch = Batch(output_stream.index, channel.source, records, alone=alone)
        batch.anchor(ids_of_each)
        self._output_streams.send_batch(channel, batch)
