"""The streams that the queries read: persons, auctions and bids."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from examples.nexmark.events import DISORDER, Auction, Bid, Event, Person
from sunshower import Spout, Stream, Topology

SECOND = 1_000
LATE = DISORDER


@dataclass(frozen=True)
class Inputs:
    """What a query reads, and the number of tasks that it uses for each keyed operator."""

    topology: Topology
    persons: Stream[Person]
    auctions: Stream[Auction]
    bids: Stream[Bid]
    tasks: int


def declare(topology: Topology, source: Spout[Event], sources: int, tasks: int) -> Inputs:
    """Declare a spout of events with `sources` tasks, and its three streams."""
    events = topology.spout("events", source, parallelism=sources)
    return Inputs(
        topology,
        events.flat_map(persons),
        events.flat_map(auctions),
        events.flat_map(bids),
        tasks,
    )


def persons(event: Event) -> Iterator[Person]:
    if event.person:
        yield event.person


def auctions(event: Event) -> Iterator[Auction]:
    if event.auction:
        yield event.auction


def bids(event: Event) -> Iterator[Bid]:
    if event.bid:
        yield event.bid
