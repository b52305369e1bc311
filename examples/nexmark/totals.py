"""Queries whose answer is the last row of each group: running totals, and the best or last bids."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any, NamedTuple

from examples.nexmark.events import Bid
from examples.nexmark.inputs import Inputs
from sunshower import (
    CombinerAggregator,
    Stream,
    average,
    count,
    count_distinct,
    last,
    max_,
    min_,
    sum_,
    top,
)


class DayBid(NamedTuple):
    day: str
    minute: str
    auction: int
    bidder: int
    price: int
    channel: str


class Best(NamedTuple):
    auction: int
    bids: list[Bid]


class Last(NamedTuple):
    bidder: int
    auction: int
    bid: tuple[int, str, str, int, str]


class Rank(NamedTuple):
    auction: int
    rank: int
    bidder: int
    price: int
    at: int


def q15(inputs: Inputs) -> Stream[Any]:
    """Of each day the bids, bidders and auctions, by three ranges of prices."""
    return by_day(inputs).group_by("day").aggregate(*by_range(), **inputs.keyed)


def q16(inputs: Inputs) -> Stream[Any]:
    """The same of each channel and day, and the last minute with a bid."""
    channels = by_day(inputs).group_by("channel", "day")
    return channels.aggregate(max_("minute"), *by_range(), **inputs.keyed)


def q17(inputs: Inputs) -> Stream[Any]:
    """The bids for each auction on each day, by three ranges, and their prices."""
    return (
        by_day(inputs)
        .group_by("auction", "day")
        .aggregate(
            count(name="bids"),
            *(count(name=f"bids{number}", where=test) for number, test in RANGES.items()),
            min_("price"),
            max_("price"),
            average("price"),
            sum_("price"),
            **inputs.keyed,
        )
    )


def q18(inputs: Inputs) -> Stream[Any]:
    """The last bid of each bidder for each auction."""
    bids = inputs.bids.group_by("bidder", "auction")
    newest = last("price", "channel", "url", "at", "extra", by="at")
    return bids.aggregate(newest, fields=Last, **inputs.keyed)


def q19(inputs: Inputs) -> Stream[Any]:
    """The ten highest bids for each auction."""
    best = inputs.bids.group_by("auction").aggregate(
        top(10, by="price"), fields=Best, **inputs.keyed
    )
    return best.flat_map(ranks)


RANGES: dict[int, Callable[[DayBid], bool]] = {
    1: lambda bid: bid.price < 10_000,
    2: lambda bid: 10_000 <= bid.price < 1_000_000,
    3: lambda bid: bid.price >= 1_000_000,
}


def by_range() -> Iterator[CombinerAggregator[Any]]:
    """Aggregators of all bids, and of the bids in each range."""
    for number, test in {"": None, **RANGES}.items():
        yield count(name=f"bids{number}", where=test)
        yield count_distinct("bidder", name=f"bidders{number}", where=test)
        yield count_distinct("auction", name=f"auctions{number}", where=test)


def by_day(inputs: Inputs) -> Stream[DayBid]:
    return inputs.bids.map(with_day)


def with_day(bid: Bid) -> DayBid:
    at = datetime.fromtimestamp(bid.at / 1_000, UTC)
    day, minute = f"{at:%Y-%m-%d}", f"{at:%H:%M}"
    return DayBid(day, minute, bid.auction, bid.bidder, bid.price, bid.channel)


def ranks(best: Best) -> Iterator[Rank]:
    for rank, (auction, bidder, price, _channel, _url, at, _extra) in enumerate(best.bids, start=1):
        yield Rank(auction, rank, bidder, price, at)
