"""The way out of a task: its records, each with a new edge per target, into the right channels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sunshower.errors import BadEmit
from sunshower.records import Schema
from sunshower.runtime.batch import Anchors, Batch
from sunshower.runtime.channels import Channel
from sunshower.runtime.history import Scribe, What
from sunshower.runtime.ids import U64, EdgeIds
from sunshower.runtime.routing import Even, Router, Share, pick, prepare
from sunshower.runtime.usercode import RAISED
from sunshower.topologies.components import DEFAULT
from sunshower.topologies.graph import StreamSpec
from sunshower.topologies.retry import DEAD_LETTERS

_NO_LIMIT = 1 << 20


@dataclass(frozen=True)
class Route:
    """One subscription of another component, seen from one sending task."""

    router: Router
    channels: Sequence[Channel]  # one per target task, by ascending task id


@dataclass(frozen=True)
class Outlet:
    """One output stream of one task."""

    index: int  # the stream's place in the plan
    spec: StreamSpec
    routes: Sequence[Route]


def _free_to_choose(route: Route) -> list[Channel]:
    """The channels of a route whose grouping takes any of them that has room."""
    if not isinstance(route.router, Even) or len(route.router.targets) < 2:
        return []
    return [route.channels[target] for target in route.router.targets]


def _needed(route: Route) -> Sequence[Channel]:
    """The channels that must all have room."""
    return () if _free_to_choose(route) else route.channels


class NotSent(Exception):
    """Groupings raised for some records of a `send`; all others have been sent."""

    def __init__(self, made: U64 | None, errors: dict[int, BaseException]) -> None:
        super().__init__(f"{len(errors)} records have no way")
        self.made = made  # as `send` returns it
        self.errors = errors  # index of the record → what was raised for it


class Outlets:
    """All output streams of one task."""

    def __init__(
        self,
        task: int,
        outlets: Mapping[str, Outlet],
        edges: EdgeIds,
        scribe: Scribe | None = None,
    ) -> None:
        self._task = task
        self._outlets = outlets
        self._edges = edges
        self._scribe = scribe
        routes = [route for outlet in outlets.values() for route in outlet.routes]
        self._channels = {channel for route in routes for channel in route.channels}
        self._gates = [channel for route in routes for channel in _needed(route)]
        self._choices = [found for route in routes if (found := _free_to_choose(route))]
        seldom = outlets[DEAD_LETTERS].routes if DEAD_LETTERS in outlets else ()
        self._metered = self._channels - {c for route in seldom for c in route.channels}
        self._widest = max((len(route.channels) for route in routes), default=1)
        self.emitted = 0  # emit calls, as Storm counts them
        self.transferred = 0  # records sent, one per target task

    def prepare(self) -> None:
        """Get the custom groupings ready. Raises what they raise, and may then be called again."""
        for outlet in self._outlets.values():
            for route in outlet.routes:
                prepare(route.router)

    @property
    def none(self) -> bool:
        """Whether the task has no output stream at all."""
        return not self._outlets

    @property
    def default_schema(self) -> Schema | None:
        """Of the default stream, if there is one."""
        outlet = self._outlets.get(DEFAULT)
        return None if outlet is None else outlet.spec.schema

    @property
    def full(self) -> bool:
        """Whether a receiver has no room, so that this task has to wait; where any of several will
        do, whether none has."""
        # Not any(): asked for each slice, and mostly there is one.
        for channel in self._gates:
            if channel.full:
                return True
        return any(all(channel.full for channel in channels) for channels in self._choices)

    @property
    def overfull(self) -> bool:
        """Whether a receiver has so much ahead of it that nothing more may be sent at all."""
        return any(channel.overfull for channel in self._channels)

    @property
    def window(self) -> int:
        """The smallest window of the receivers in use: what may be emitted in one go.

        Dead letters are few, so their receiver's window stays small, and says nothing about the
        rest. (Measured: with it, one dead letter cost a spout a third of its rate, for good.)
        """
        windows = [channel.window for channel in self._metered if channel.credited and channel.used]
        if not windows:
            windows = [channel.window for channel in self._metered if channel.credited]
        return max(1, min(windows, default=_NO_LIMIT))

    @property
    def allowance(self) -> int:
        """How many records a bolt may emit in one go: a window for each receiver.

        Where a grouping sends all of them to one task, that is more than its window by as many
        times as its component has tasks.
        """
        return self.window * self._widest

    def outlet(self, stream: str) -> Outlet:
        """The stream by name. Raises BadEmit, listing what exists."""
        found = self._outlets.get(stream)
        if found is None:
            raise BadEmit(
                f"there is no output stream {stream!r}; declared are: "
                f"{', '.join(self._outlets) or 'none'}. Declare it with streams={{…}}"
            )
        return found

    def check(self, stream: str, records: Sequence[Any]) -> int | None:
        """The index of the first record that does not fit `stream`, or None."""
        return self.outlet(stream).spec.schema.misfit(records)

    def fits(self, stream: str, records: Sequence[Any], kinds: set[type]) -> bool:
        """Whether the stream exists and all records, whose types are `kinds`, fit it."""
        outlet = self._outlets.get(stream)
        return outlet is not None and outlet.spec.schema.fits(records, kinds)

    def misfit_error(self, stream: str, record: Any) -> BadEmit:
        """What to say about a record that does not fit."""
        schema = self.outlet(stream).spec.schema
        return BadEmit(
            f"{record!r} (a {type(record).__name__}) does not fit stream {stream!r}, whose records "
            f"are {schema.name}. Yield records, or return a list of them"
        )

    def send(self, stream: str, records: Any, anchors: Anchors | None) -> U64 | None:
        """Send n records, record i with anchor i; None: nobody follows them.

        Returns, per record, the XOR of the edges made for it (zero where nobody subscribes).
        Raises NotSent when groupings have raised: nothing of those records was sent.
        """
        outlet = self.outlet(stream)
        count = len(records)
        shares = self.shares(outlet, records, count)
        if isinstance(shares, BaseException):
            return self._send_singly(stream, records, anchors, shares)
        self.emitted += count
        made = None if anchors is None else np.zeros(count, np.uint64)
        for route, shared in zip(outlet.routes, shares, strict=True):
            for target, which in shared:
                batch = Batch(outlet.index, self._task, pick(records, which))
                if made is not None and anchors is not None:
                    edges = self._edges.draw(len(batch))
                    made[which] ^= edges
                    batch.roots, batch.edges, batch.offsets = anchors.select(which).with_edges(
                        edges
                    )
                self.transferred += len(batch)
                if self._scribe is not None:
                    sent = (self._task, batch.roots, batch.edges)
                    self._scribe.note_edges(What.SENT, *sent, route.channels[target].target)
                route.channels[target].push(batch)
        return made

    def shares(self, outlet: Outlet, records: Any, count: int) -> list[list[Share]] | BaseException:
        """Who gets what, for each route; or what a grouping has raised."""
        try:
            return [route.router.shares(records, count) for route in outlet.routes]
        except RAISED as error:
            return error

    def _send_singly(
        self, stream: str, records: Any, anchors: Anchors | None, error: BaseException
    ) -> U64 | None:
        """Find out which records have no way, and send the others."""
        count = len(records)
        made = None if anchors is None else np.zeros(count, np.uint64)
        if count == 1:
            self.emitted += 1
            raise NotSent(made, {0: error})
        errors: dict[int, BaseException] = {}
        for index in range(count):
            one = np.array([index])
            try:
                sent = self.send(stream, pick(records, one), anchors and anchors.select(one))
            except NotSent as refused:
                errors[index] = refused.errors[0]
            else:
                if made is not None and sent is not None:
                    made[one] = sent
        if errors:
            raise NotSent(made, errors)
        return made

    def send_batch(self, channel: Channel, batch: Batch) -> None:
        """Send what anchoring.py has put together for one target."""
        self.transferred += len(batch)
        if self._scribe is not None:
            sent = (self._task, batch.roots, batch.edges)
            self._scribe.note_edges(What.SENT, *sent, channel.target)
        channel.push(batch)

    def draw_edges(self, count: int) -> list[int]:
        """`count` edge ids as plain integers."""
        edges: list[int] = self._edges.draw(count).tolist()
        return edges
