"""The streams that the queries read: persons, auctions and bids. Each is declared by its first
reader."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from examples.nexmark.events import DISORDER, Auction, Bid, Event, Person
from sunshower import Stream, Topology

SECOND = 1_000
LATE = DISORDER


@dataclass(frozen=True)
class Inputs:
    """What a query reads, and the settings of its keyed operators."""

    topology: Topology
    events: Stream[Event]
    keyed: dict[str, Any]
    folder: str = "nexmark-bids"  # of files

    @cached_property
    def persons(self) -> Stream[Person]:
        return self.events.flat_map(persons)

    @cached_property
    def auctions(self) -> Stream[Auction]:
        return self.events.flat_map(auctions)

    @cached_property
    def bids(self) -> Stream[Bid]:
        return self.events.flat_map(bids)


def declare(topology: Topology, events: Stream[Event], tasks: int = 1, state: Any = None) -> Inputs:
    """The three streams of `events`, and the tasks and the state of each keyed operator."""
    return Inputs(topology, events, {"parallelism": tasks, "state": state})


def persons(event: Event) -> Iterator[Person]:
    if event.person:
        yield event.person


def auctions(event: Event) -> Iterator[Auction]:
    if event.auction:
        yield event.auction


def bids(event: Event) -> Iterator[Bid]:
    if event.bid:
        yield event.bid
