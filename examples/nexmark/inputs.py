"""The streams that the queries read, each of which is declared by its first reader."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from examples.nexmark.events import DISORDER, Auction, Bid, Event, Person
from sunshower import Records, Stream, Topology
from sunshower.trident import FixedBatchSpout, batches

SECOND, LATE = 1_000, DISORDER


@dataclass(frozen=True)
class Inputs:
    topology: Topology
    events: Stream[Event]
    keyed: dict[str, Any]  # the tasks and the state of each keyed operator
    folder: str = "nexmark-bids"  # of files

    def table(self, id: str, rows: list[tuple[Any, ...]], fields: tuple[str, ...]) -> Any:
        """A small table in each task, by the first field. In batches the first one has its rows."""
        if isinstance(self.events, Stream):
            source: Any = self.topology.spout(id, Records(rows, fields=fields))
        else:
            spout = FixedBatchSpout(rows, len(rows), fields=fields)
            source = batches(self.topology, id, spout, group="events")
        return source.group_by(fields[0]).table(broadcast=True, **self.keyed)

    @cached_property
    def persons(self) -> Stream[Person]:
        return self.events.flat_map(lambda event: filter(None, [event.person]), fields=Person)

    @cached_property
    def auctions(self) -> Stream[Auction]:
        return self.events.flat_map(lambda event: filter(None, [event.auction]), fields=Auction)

    @cached_property
    def bids(self) -> Stream[Bid]:
        return self.events.flat_map(bids)


def declare(topology: Topology, events: Stream[Event], tasks: int = 1, state: Any = None) -> Inputs:
    return Inputs(topology, events, {"parallelism": tasks, "state": state})


def bids(event: Event) -> list[Bid]:
    return [event.bid] if event.bid else []
