"""Queries of windows: of ten seconds, of sessions, and by the clock."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from examples.nexmark.events import Bid
from examples.nexmark.inputs import LATE, SECOND, Inputs
from sunshower import MemoryState, Stream, count, sessions, sliding, top, tumbling
from sunshower.connectors import PartitionedFiles


class Hot(NamedTuple):
    auction: int
    window: int  # its end
    bids: int


class Hottest(NamedTuple):
    window: int
    auctions: list[Hot]


class High(NamedTuple):
    auction: int
    bidder: int
    price: int
    at: int


class Highest(NamedTuple):
    window: int
    bids: list[Bid]


def q5(inputs: Inputs) -> Stream[Any]:
    """Every two seconds the auctions with the most bids in the last ten."""
    last_ten = sliding(seconds=10 * SECOND, every=2 * SECOND, field="at", late=LATE)
    counts = inputs.bids.group_by("auction").window(
        last_ten, count(), fields=Hot, name="counts", **inputs.keyed
    )
    ended = tumbling(seconds=2 * SECOND, field="window")
    hottest = counts.window(
        ended,
        top(1, by="bids", ties=True),
        fields=Hottest,
        name="hottest",
        state=inputs.keyed["state"],
    )
    return hottest.flat_map(hot)


def q7(inputs: Inputs) -> Stream[Any]:
    """The highest bids of each ten seconds."""
    best = top(1, by="price", ties=True)
    highest = inputs.bids.window(
        ten_seconds(), best, fields=Highest, name="highest", state=inputs.keyed["state"]
    )
    return highest.flat_map(high)


def q8(inputs: Inputs) -> Stream[Any]:
    """The persons that have put up an auction in the ten seconds in which they are new."""
    new = inputs.persons.group_by("id", "name").window(
        ten_seconds(), count(), name="new", **inputs.keyed
    )
    selling = inputs.auctions.group_by("seller").window(
        ten_seconds(), count(), name="selling", **inputs.keyed
    )
    active = new.join(
        selling,
        ["id", "window"],
        other_on=["seller", "window"],
        within=0,
        field="window",
        how="semi",
        name="active",
        **inputs.keyed,
    )
    return active.project("id", "name", "window")


def q10(inputs: Inputs) -> Stream[Any]:
    """All bids in files, a folder for each minute, and which of these are complete."""
    minutes = tumbling(seconds=60 * SECOND, field="at", late=LATE)
    settings = {**inputs.keyed, "state": inputs.keyed["state"] or MemoryState()}
    return inputs.bids.apply(PartitionedFiles(inputs.folder, minutes, **settings))


def q11(inputs: Inputs) -> Stream[Any]:
    """The bids of each session of a bidder, which ends after ten seconds without a bid."""
    session = sessions(gap=10 * SECOND, field="at", late=LATE)
    return inputs.bids.group_by("bidder").window(session, count(), name="sessions", **inputs.keyed)


def q12(inputs: Inputs) -> Stream[Any]:
    """The bids of each bidder in ten seconds of the clock."""
    by_clock = tumbling(seconds=10)
    return inputs.bids.group_by("bidder").window(by_clock, count(), name="by-clock", **inputs.keyed)


def ten_seconds() -> Any:
    return tumbling(seconds=10 * SECOND, field="at", late=LATE)


def hot(hottest: Hottest) -> list[Hot]:
    return [Hot(*row) for row in hottest.auctions]


def high(highest: Highest) -> Iterator[High]:
    for auction, bidder, price, _channel, _url, at, _extra in highest.bids:
        yield High(auction, bidder, price, at)
