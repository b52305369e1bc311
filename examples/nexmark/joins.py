"""Queries that join bids, auctions, persons and a file."""

from __future__ import annotations

from typing import Any, NamedTuple

from examples.nexmark.events import Auction, Bid
from examples.nexmark.inputs import LATE, Inputs
from sunshower import Stream, average, max_, top

KEYS = 10_000  # of the side input


class Offer(NamedTuple):
    """A bid for an open auction."""

    id: int
    item: str
    seller: int
    category: int
    expires: int
    bidder: int
    price: int
    bid_at: int


class Offers(NamedTuple):
    id: int
    offers: list[Offer]


class Sales(NamedTuple):
    seller: int
    sales: list[Offer]


class Mean(NamedTuple):
    seller: int
    price: float


def q3(inputs: Inputs) -> Stream[Any]:
    """Who of three states sells in category 10."""
    auctions = inputs.auctions.filter(is_category_10).project("seller", "id")
    persons = inputs.persons.filter(lambda person: person.state in ("OR", "ID", "CA"))
    local = persons.project("id", "name", "city", "state")
    settings = {"keep_s": None, "name": "sellers", **inputs.keyed}
    names = ["seller", "auction", "name", "city", "state"]
    sellers = auctions.join(local, "seller", other_on="id", fields=names, **settings)
    return sellers.project("name", "city", "state", "auction")


def q4(inputs: Inputs) -> Stream[Any]:
    """The mean of the closing prices of each category."""
    closing = (
        offers(inputs)
        .group_by("id", "category")
        .aggregate(max_("price", name="price"), name="closing", **inputs.keyed)
    )
    means = closing.group_by("category")
    return means.aggregate(average("price"), name="mean", **inputs.keyed)


def q6(inputs: Inputs) -> Stream[Any]:
    """The mean price of the last ten auctions of each seller."""
    sales = winning(inputs).group_by("seller")
    newest = sales.aggregate(top(10, by=["bid_at", "id"]), fields=Sales, **inputs.keyed)
    return newest.map(mean_price)


def q9(inputs: Inputs) -> Stream[Any]:
    """The highest bid for each auction, of equal ones the first."""
    return winning(inputs)


def q13(inputs: Inputs) -> Stream[Any]:
    """All bids with a value from a small table."""
    values: Any = [(key, f"value {key}") for key in range(KEYS)]
    table = inputs.table("values", values, ("key", "value"))
    names = ["key", "auction", "bidder", "price", "at", "value"]
    joined = inputs.bids.map(with_key, fields=names[:-1]).join(table, fields=names)
    return joined.project("auction", "bidder", "price", "at", "value")


def q20(inputs: Inputs) -> Stream[Any]:
    """All bids for auctions of category 10, with the auction."""
    auctions = inputs.auctions.filter(is_category_10)
    names = [*Bid._fields, *(f"auction_{name}" for name in Auction._fields[1:])]
    settings = {"keep_s": None, "name": "expanded", **inputs.keyed}
    return inputs.bids.join(auctions, "auction", other_on="id", fields=names, **settings)


def q23(inputs: Inputs) -> Stream[Any]:
    """All bids of sellers, with their bidder and each auction of this bidder."""
    bids = inputs.bids.project("bidder", "price", "channel", "url")
    persons = inputs.persons.project("id", "name", "email", "card", "city", "state")
    auctions = inputs.auctions.project("seller", "id", "item", "category")
    settings = {"keep_s": None, **inputs.keyed}
    with_person = bids.join(persons, "bidder", other_on="id", name="with-person", **settings)
    return with_person.join(auctions, "bidder", other_on="seller", name="with-auction", **settings)


def offers(inputs: Inputs) -> Stream[Offer]:
    """The bids for each auction from its beginning until it expires."""
    bids = inputs.bids.project("auction", "bidder", "price", "at")
    return inputs.auctions.join(
        bids,
        "id",
        other_on="auction",
        within=lambda auction: (auction.at, auction.expires),
        field="at",
        late=LATE,
        fields=[*Auction._fields, "bidder", "price", "bid_at"],
        name="offers",
        **inputs.keyed,
    ).project(*Offer._fields)


def winning(inputs: Inputs) -> Stream[Offer]:
    highest = (
        offers(inputs)
        .group_by("id")
        .aggregate(top(1, by="price", ties=True), fields=Offers, name="winning", **inputs.keyed)
    )
    return highest.map(earliest)


def earliest(offers: Offers) -> Offer:
    return Offer(*min(offers.offers, key=lambda offer: offer[-1]))


def mean_price(sales: Sales) -> Mean:
    prices = [sale[-2] for sale in sales.sales]
    return Mean(sales.seller, sum(prices) / len(prices))


def is_category_10(auction: Auction) -> bool:
    return auction.category == 10


def with_key(bid: Bid) -> tuple[int, ...]:
    return bid.auction % KEYS, bid.auction, bid.bidder, bid.price, bid.at
