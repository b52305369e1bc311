"""Storm's own arithmetic of anchors, a record at a time: what the manual levels are made of.

    for each target task, for each anchor:  one new edge, shared by all roots of the anchor
    the anchor remembers the XOR of its edges; what it reports at its ack is  edge ^ that
    two anchors with one root in common:    the record carries the XOR of both edges

Storm: org.apache.storm.executor.bolt.BoltOutputCollectorImpl.boltEmit
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sunshower.errors import BadEmit
from sunshower.runtime.batch import Batch
from sunshower.runtime.channels import Channel
from sunshower.runtime.outlets import Outlet, Outlets, Route
from sunshower.runtime.routing import Share, pick


@dataclass(slots=True, eq=False)
class Anchor:
    """A place in one or several trees that further edges can grow from."""

    roots: Sequence[int]
    made: int = 0  # XOR of the edges made from it


@dataclass(frozen=True, slots=True)
class _Sending:
    record: Any
    anchors: Sequence[Anchor]


@dataclass(frozen=True, slots=True)
class Unsent:
    """A record that was not sent at all, for a grouping raised."""

    anchors: Sequence[Anchor]
    error: BaseException


class AnchoredSender:
    """Gathers single emits and sends them as batches. Edges exist once `flush` has returned."""

    def __init__(self, outlets: Outlets) -> None:
        self._outlets = outlets
        self._sendings: defaultdict[tuple[str, int | None], list[_Sending]] = defaultdict(list)
        self._count = 0

    def __len__(self) -> int:
        """How many records wait to be sent."""
        return self._count

    def check(self, stream: str, record: Any, task: int | None = None) -> None:
        """Raise BadEmit for an unknown stream, a record that does not fit, a direct stream without
        a task or the other way round, or a task that does not subscribe."""
        outlet = self._outlets.outlet(stream)
        if outlet.spec.schema.misfit([record]) is not None:
            raise self._outlets.misfit_error(stream, record)
        if task is None:
            if outlet.spec.direct:
                raise BadEmit(
                    f"stream {stream!r} is direct: name the task, in emit_direct(task, …)"
                )
            return
        if not outlet.spec.direct:
            raise BadEmit(f"stream {stream!r} is not direct: its grouping chooses the task")
        listening = [channel.target for route in outlet.routes for channel in route.channels]
        if task not in listening:
            raise BadEmit(
                f"task {task} does not subscribe to direct stream {stream!r}; the tasks that do "
                f"are {sorted(listening)}"
            )

    def add(
        self, stream: str, record: Any, anchors: Sequence[Anchor], task: int | None = None
    ) -> None:
        """Put a checked record in line: for the stream's groupings, or for one direct task."""
        self._sendings[stream, task].append(_Sending(record, anchors))
        self._count += 1

    def discard(self) -> list[Sequence[Anchor]]:
        """Send nothing of what was added. Returns what each of it was anchored to."""
        sendings, self._sendings, self._count = self._sendings, defaultdict(list), 0
        return [sending.anchors for here in sendings.values() for sending in here]

    def flush(self) -> list[Unsent]:
        """Send everything that was added. Returns what had no way; all else has been sent."""
        sendings, self._sendings, self._count = self._sendings, defaultdict(list), 0
        unsent: list[Unsent] = []
        for (stream, task), here in sendings.items():
            outlet = self._outlets.outlet(stream)
            self._outlets.emitted += len(here)
            if task is None:
                unsent += self._send_routed(outlet, here)
            else:
                for route in outlet.routes:
                    for channel in (c for c in route.channels if c.target == task):
                        self._send(outlet, channel, here)
        return unsent

    def _send_routed(self, outlet: Outlet, sendings: list[_Sending]) -> list[Unsent]:
        records = [sending.record for sending in sendings]
        shares = self._outlets.shares(outlet, records, len(records))
        if isinstance(shares, BaseException):
            if len(sendings) == 1:
                return [Unsent(sendings[0].anchors, shares)]
            return [no for sending in sendings for no in self._send_routed(outlet, [sending])]
        for route, shared in zip(outlet.routes, shares, strict=True):
            self._send_shares(outlet, route, shared, sendings)
        return []

    def _send_shares(
        self, outlet: Outlet, route: Route, shares: list[Share], sendings: list[_Sending]
    ) -> None:
        for target, which in shares:
            self._send(outlet, route.channels[target], pick(sendings, which))

    def _send(self, outlet: Outlet, channel: Channel, sendings: Sequence[_Sending]) -> None:
        edges = iter(self._outlets.draw_edges(sum(len(s.anchors) for s in sendings)))
        roots: list[int] = []
        carried: list[int] = []
        offsets = [0]
        for sending in sendings:
            ids: defaultdict[int, int] = defaultdict(int)
            for anchor in sending.anchors:
                edge = next(edges)
                if anchor.roots:
                    anchor.made ^= edge
                for root in anchor.roots:
                    ids[root] ^= edge
            roots += ids.keys()
            carried += ids.values()
            offsets.append(len(roots))
        records = [sending.record for sending in sendings]
        batch = Batch(outlet.index, channel.source, records)
        if roots:
            batch.roots, batch.edges = np.array(roots, np.uint64), np.array(carried, np.uint64)
            if offsets != list(range(len(sendings) + 1)):
                batch.offsets = np.array(offsets, np.int64)
        self._outlets.send_batch(channel, batch)
