"""Queries that need no state: one bid makes at most one row."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, NamedTuple

from examples.nexmark.events import Bid
from examples.nexmark.inputs import Inputs
from sunshower import Stream

EUROS = 0.908  # for a dollar
CHANNEL_IDS = {"apple": "0", "google": "1", "facebook": "2", "baidu": "3"}


class Price(NamedTuple):
    auction: int
    bidder: int
    price: float
    at: int
    extra: str


class TimedPrice(NamedTuple):
    auction: int
    bidder: int
    price: float
    time: str
    at: int
    extra: str
    letters: int  # how often `extra` has a c


class Channel(NamedTuple):
    auction: int
    bidder: int
    price: int
    channel: str
    id: str


def q0(inputs: Inputs) -> Stream[Any]:
    """All bids as they are: the cost of the system itself."""
    return inputs.bids.project("auction", "bidder", "price", "at", "extra")


def q1(inputs: Inputs) -> Stream[Any]:
    """All bids, in euros."""
    return inputs.bids.map(in_euros)


def q2(inputs: Inputs) -> Stream[Any]:
    """The bids for some of the auctions."""
    return inputs.bids.filter(lambda bid: bid.auction % 123 == 0).project("auction", "price")


def q14(inputs: Inputs) -> Stream[Any]:
    """Bids of some height in euros, with the kind of their hour, and the letters c in `extra`."""
    return inputs.bids.flat_map(calculated)


def q21(inputs: Inputs) -> Stream[Any]:
    """The bids whose channel has a number, with this number."""
    return inputs.bids.flat_map(with_channel_id)


def q22(inputs: Inputs) -> Stream[Any]:
    """The first three directories of the address of each bid."""
    names = ["auction", "bidder", "price", "channel", "first", "second", "third"]
    return inputs.bids.map(directories, fields=names)


def in_euros(bid: Bid) -> Price:
    return Price(bid.auction, bid.bidder, EUROS * bid.price, bid.at, bid.extra)


def calculated(bid: Bid) -> Iterator[TimedPrice]:
    price = EUROS * bid.price
    if 1_000_000 < price < 50_000_000:
        hour = datetime.fromtimestamp(bid.at / 1_000, UTC).hour
        time = "day" if 8 <= hour <= 18 else "night" if hour <= 6 or hour >= 20 else "other"
        letters = bid.extra.count("c")
        yield TimedPrice(bid.auction, bid.bidder, price, time, bid.at, bid.extra, letters)


def with_channel_id(bid: Bid) -> Iterator[Channel]:
    number = CHANNEL_IDS.get(bid.channel.lower())
    if number is None and (match := re.search(r"(?:&|^)channel_id=([^&]*)", bid.url)):
        number = match[1]
    if number is not None:
        yield Channel(bid.auction, bid.bidder, bid.price, bid.channel, number)


def directories(bid: Bid) -> tuple[Any, ...]:
    return bid.auction, bid.bidder, bid.price, bid.channel, *bid.url.split("/")[3:6]
