"""The output streams of a task: routes records to channels, each with a new edge per target."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Any

import numpy as np

from sunshower.errors import BadEmit, user_errors
from sunshower.records import Schema
from sunshower.runtime.tracking.batch import Anchors, Batch
from sunshower.runtime.tracking.ids import U64, EdgeIds
from sunshower.runtime.transport.channels import Channel, RemoteChannel
from sunshower.runtime.transport.routing import EvenRouter, Router, Share, pick, prepare
from sunshower.texts import describe
from sunshower.topologies.components import DEFAULT
from sunshower.topologies.graph import StreamSpec
from sunshower.topologies.operators.windows.watermarks import WATERMARKS
from sunshower.topologies.retry import DEAD_LETTERS

if TYPE_CHECKING:
    from sunshower.runtime.events.instrument import Instrument

_NO_LIMIT = 1 << 20


@dataclass(frozen=True)
class Route:
    """One subscription of another component, for one sending task."""

    router: Router
    channels: Sequence[Channel]  # one per target task, by ascending task id


@dataclass(slots=True)
class SentCounts:
    """What one task has sent on one stream."""

    emitted: int = 0  # emit calls, as Storm counts them
    transferred: int = 0  # records sent, one per target task


@dataclass(frozen=True)
class OutputStream:
    """One output stream of one task."""

    index: int  # the stream's index in the plan
    spec: StreamSpec
    routes: Sequence[Route]
    classes: Sequence[type[Any]] = ()  # the Enums and record types that may travel in the topology
    counts: SentCounts = field(default_factory=SentCounts, compare=False)


def _free_to_choose(route: Route) -> list[Channel]:
    """Return the channels of a route whose grouping may choose any with credit."""
    if not isinstance(route.router, EvenRouter) or len(route.router.targets) < 2:
        return []
    return [route.channels[target] for target in route.router.targets]


def _needed(route: Route) -> Sequence[Channel]:
    """Return the channels of a route that must all have credit."""
    return () if _free_to_choose(route) else route.channels


class NotSent(Exception):
    """Groupings raised for some records of a `send`; all others were sent."""

    def __init__(self, xors_made: U64 | None, errors: dict[int, BaseException]) -> None:
        super().__init__(f"{len(errors)} records have no way")
        self.made = xors_made  # as `send` returns it
        self.errors = errors  # index of the record → what was raised for it


class OutputStreams:
    """All output streams of one task."""

    def __init__(
        self,
        task: int,
        output_streams: Mapping[str, OutputStream],
        edges: EdgeIds,
        instrument: Instrument,
    ) -> None:
        self._task = task
        self._output_streams = output_streams
        self._edges = edges
        self._instrument = instrument
        routes = [
            route for output_stream in output_streams.values() for route in output_stream.routes
        ]
        self._channels = {channel for route in routes for channel in route.channels}
        self._remote = [channel for channel in self._channels if isinstance(channel, RemoteChannel)]
        self._gates = [channel for route in routes for channel in _needed(route)]
        self._choices = [choice for route in routes if (choice := _free_to_choose(route))]
        often = [out for id, out in output_streams.items() if id not in (DEAD_LETTERS, WATERMARKS)]
        self._metered = {c for stream in often for route in stream.routes for c in route.channels}
        self._widest = max((len(route.channels) for route in routes), default=1)
        self.none = not output_streams  # whether the task has no output stream
        self.counts = {  # by stream, without watermarks: users count records
            id: out.counts for id, out in output_streams.items() if id != WATERMARKS
        }
        self._by_index = {out.index: out.counts for out in output_streams.values()}
        self._blocked_s, self._blocked_since_s = 0.0, inf
        self.alone = False  # mark what is sent, as Batch.alone

    def prepare(self) -> None:
        """Prepare the custom groupings. Raises what they raise, and may then be called again."""
        for output_stream in self._output_streams.values():
            for route in output_stream.routes:
                prepare(route.router)

    @property
    def emitted(self) -> int:
        """Emit calls on all streams."""
        return sum(counts.emitted for counts in self.counts.values())

    @property
    def transferred(self) -> int:
        """Records sent on all streams, one per target task."""
        return sum(counts.transferred for counts in self.counts.values())

    def note_blocked(self, now: float, *, is_blocked: bool) -> None:
        """Note whether the task has something to do and cannot send it, for `Counts.blocked_s`."""
        if is_blocked:
            self._blocked_since_s = min(self._blocked_since_s, now)
        elif self._blocked_since_s < inf:
            self._blocked_s += now - self._blocked_since_s
            self._blocked_since_s = inf

    def counts_at(self, now: float) -> dict[str, Any]:
        """The fields of `Counts` about what the task has sent."""
        return {
            "emitted": self.emitted,
            "transferred": self.transferred,
            "blocked_s": self._blocked_s + max(now - self._blocked_since_s, 0.0),
            "emitted_to": {id: counts.emitted for id, counts in self.counts.items()},
            "transferred_to": {id: counts.transferred for id, counts in self.counts.items()},
            "bytes_to": {
                id: sum(channel.sent_bytes.get(stream.index, 0) for channel in self._remote)
                for id, stream in self._output_streams.items()
                if id in self.counts
            },
        }

    @property
    def default_schema(self) -> Schema | None:
        """The schema of the default stream, or None."""
        output_stream = self._output_streams.get(DEFAULT)
        return None if output_stream is None else output_stream.spec.schema

    @property
    def full(self) -> bool:
        """Whether the task must wait because a receiver has no credit; where the grouping may
        choose, because none of its receivers has."""
        # Not any(): this runs for each slice, and usually finds one channel.
        for channel in self._gates:
            if channel.full:
                return True
        return any(all(channel.full for channel in channels) for channels in self._choices)

    @property
    def overfull(self) -> bool:
        """Whether a receiver is at its hard limit, so that nothing may be sent."""
        return any(channel.overfull for channel in self._channels)

    @property
    def window(self) -> int:
        """The smallest window of the receivers in use: how many records may be emitted at once.

        Receivers of dead letters and watermarks alone do not count: these are few, so the window
        stays small. (Measured: with it, one dead letter permanently cost a spout a third of its
        rate.)
        """
        windows = [channel.window for channel in self._metered if channel.credited and channel.used]
        if not windows:
            windows = [channel.window for channel in self._metered if channel.credited]
        return max(1, min(windows, default=_NO_LIMIT))

    @property
    def spread(self) -> int:
        """How many records a spout may emit at once: a window for each receiver among which every
        grouping may choose, and which has room."""
        if self._gates or not self._choices:
            return self.window
        with_room = [sum(not channel.full for channel in channels) for channels in self._choices]
        return self.window * max(1, min(with_room))

    @property
    def allowance(self) -> int:
        """How many records a bolt may emit at once: a window for each receiver.

        If a grouping sends all of them to one task, that exceeds the task's window by a factor of
        its component's parallelism.
        """
        return self.window * self._widest

    def output_stream(self, stream: str) -> OutputStream:
        """Return the stream by name. Raises BadEmit, listing what exists."""
        output_stream = self._output_streams.get(stream)
        if output_stream is None:
            raise BadEmit(
                f"there is no output stream {stream!r}; declared are: "
                f"{', '.join(self._output_streams) or 'none'}. Declare it with streams={{…}}"
            )
        return output_stream

    def schema(self, stream: str) -> Schema:
        """The schema of a stream. Raises BadEmit."""
        return self.output_stream(stream).spec.schema

    def values(self, stream: str, record: Any) -> dict[str, Any]:
        """A record of a stream as field → value."""
        schema = self.schema(stream)
        (values,) = schema.rows([record])
        return dict(zip(schema.fields, values, strict=True))

    def check(self, stream: str, records: Sequence[Any]) -> int | None:
        """Return the index of the first record that does not fit `stream`, or None."""
        return self.output_stream(stream).spec.schema.misfit(records)

    def fits(self, stream: str, records: Sequence[Any], kinds: set[type]) -> bool:
        """Whether the stream exists and all records, whose types are `kinds`, fit it."""
        output_stream = self._output_streams.get(stream)
        return output_stream is not None and output_stream.spec.schema.fits(records, kinds)

    def misfit_error(self, stream: str, record: Any) -> BadEmit:
        """Return the error for a record that does not fit."""
        schema = self.schema(stream)
        if why := schema.loss(record):
            return BadEmit(f"{describe(record, 200)} cannot be emitted on stream {stream!r}: {why}")
        return BadEmit(
            f"{record!r} (a {type(record).__name__}) does not fit stream {stream!r}, whose records "
            f"are {schema.name}: {schema.remedy(record)}. Yield records, or return a list of them"
        )

    def send(self, stream: str, records: Any, anchors: Anchors | None) -> U64 | None:
        """Send n records, record i with anchor i; None: they are untracked. With shared anchors
        they are sent as shared batches, which are part of the trees of all anchors.

        Returns, per record, the XOR of the edges made for it (zero without subscribers); per anchor
        if they are shared: each has one for each target, so that the edges of a tree with several
        anchors do not cancel out. Raises NotSent when groupings have raised: nothing of those
        records was sent, and nothing at all if the anchors are shared.
        """
        output_stream = self.output_stream(stream)
        count = len(records)
        shares = self.shares(output_stream, records, count)
        if isinstance(shares, BaseException):
            return self._send_singly(stream, records, anchors, shares)
        output_stream.counts.emitted += count
        xors = None if anchors is None else np.zeros(len(anchors), np.uint64)
        for route, shared in zip(output_stream.routes, shares, strict=True):
            for target, which in shared:
                part = pick(records, which)
                batch = Batch(output_stream.index, self._task, part, alone=self.alone)
                if xors is not None and anchors is not None:
                    chosen = anchors.select(which)
                    edges = self._edges.draw(len(chosen))
                    xors[slice(None) if anchors.shared else which] ^= edges
                    batch.roots, batch.edges, batch.offsets = chosen.with_edges(edges)
                    batch.shared = anchors.shared
                self.send_batch(route.channels[target], batch)
        return xors

    def shares(
        self, output_stream: OutputStream, records: Any, count: int
    ) -> list[list[Share]] | BaseException:
        """Return the shares for each route, or the exception that a grouping raised."""
        try:
            return [route.router.shares(records, count) for route in output_stream.routes]
        except user_errors() as error:
            return error

    def _send_singly(
        self, stream: str, records: Any, anchors: Anchors | None, error: BaseException
    ) -> U64 | None:
        """Send records one by one, to find those for which a grouping raises."""
        count = len(records)
        xors = None if anchors is None else np.zeros(len(anchors), np.uint64)
        if count == 1 or (anchors is not None and anchors.shared):
            self.output_stream(stream).counts.emitted += count
            raise NotSent(xors, {0: error})
        errors: dict[int, BaseException] = {}
        for index in range(count):
            position = np.array([index])
            try:
                sent = self.send(
                    stream, pick(records, position), anchors and anchors.select(position)
                )
            except NotSent as refused:
                errors[index] = refused.errors[0]
            else:
                if xors is not None and sent is not None:
                    xors[position] = sent
        if errors:
            raise NotSent(xors, errors)
        return xors

    def send_batch(self, channel: Channel, batch: Batch) -> None:
        """Send a batch to one target."""
        self._by_index[batch.stream].transferred += len(batch)
        if self._instrument.records:
            self._instrument.sent(batch, channel.target)
        channel.push(batch)

    def draw_edges(self, count: int) -> list[int]:
        """Draw `count` edge ids, as plain integers."""
        edges: list[int] = self._edges.draw(count).tolist()
        return edges
