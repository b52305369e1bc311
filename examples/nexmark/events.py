"""Persons, auctions and bids of the Nexmark benchmark, made from a seed.

Of fifty events one is a new person, three are auctions and forty-six are bids. Half of the bids are
for one of the last hundred auctions, three quarters are by one of the last hundred persons, and
three quarters of the auctions are of one seller. Events come with bounded disorder: none comes
after an event that is more than `DISORDER` younger.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from heapq import heappop, heappush
from random import Random
from string import ascii_lowercase
from typing import NamedTuple

from sunshower import Context, Spout

BEGIN = 1_700_006_300_000  # 2023-11-14 23:58:20 UTC: midnight is 100 s later
DISORDER = 2_000  # milliseconds
STATES = ("AZ", "CA", "ID", "OR", "WA", "WY")
CITIES = ("Phoenix", "Los Angeles", "Boise", "Portland", "Bend", "Redmond", "Seattle", "Cheyenne")
FIRST_NAMES = ("Peter", "Paul", "Luke", "John", "Vicky", "Kate", "Julie", "Sarah", "Walter")
LAST_NAMES = ("Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones")
CHANNELS = ("Google", "Facebook", "Baidu", "Apple")
EPOCH, AUCTIONS = 50, 3  # events, and auctions of them; the first is a person
FIRST_ID = 1_000
IN_FLIGHT, ACTIVE, AHEAD, HOT = 100, 1_000, 10, 100


class Person(NamedTuple):
    id: int
    name: str
    email: str
    card: str
    city: str
    state: str
    at: int  # milliseconds since 1970, like all times
    extra: str


class Auction(NamedTuple):
    id: int
    item: str
    description: str
    initial: int
    reserve: int
    at: int
    expires: int
    seller: int
    category: int
    extra: str


class Bid(NamedTuple):
    auction: int
    bidder: int
    price: int
    channel: str
    url: str
    at: int
    extra: str


class Event(NamedTuple):
    """Exactly one of the three is not None."""

    at: int
    person: Person | None = None
    auction: Auction | None = None
    bid: Bid | None = None


class Generator:
    """Makes the events of a seed, `rate` a second, in the order of their times."""

    def __init__(self, seed: int, rate: int) -> None:
        self.random, self.rate = Random(seed), rate
        self.hot = {name: self.url() for name in CHANNELS}
        self.channels = {f"channel-{number}": self.url() for number in range(1_000)}
        for number, name in enumerate(self.channels):
            if self.random.randrange(10):
                self.channels[name] += f"&channel_id={number * 7_919}"
        self.names = [*self.channels]

    def text(self, length: int) -> str:
        return "".join(self.random.choices(ascii_lowercase, k=length))

    def url(self) -> str:
        parts = "/".join(self.text(5) for _ in range(3))
        return f"https://www.nexmark.com/{parts}/item.htm?query=1"

    def price(self) -> int:
        return round(10 ** (self.random.random() * 6) * 100)

    def some_person(self, last: int) -> int:
        """An active one, or one that is still to come."""
        active = min(last + 1, ACTIVE)
        return last + 1 - active + self.random.randrange(active + AHEAD)

    def event(self, number: int) -> Event:
        at = BEGIN + number * 1_000 // self.rate
        epoch, place = divmod(number, EPOCH)
        if place == 0:
            return Event(at, person=self.person(epoch, at))
        if place <= AUCTIONS:
            return Event(at, auction=self.auction(epoch * AUCTIONS + place - 1, epoch, at))
        return Event(at, bid=self.bid((epoch + 1) * AUCTIONS - 1, epoch, at))

    def person(self, number: int, at: int) -> Person:
        choice = self.random.choice
        name = f"{choice(FIRST_NAMES)} {choice(LAST_NAMES)}"
        email, card = f"{self.text(7)}@{self.text(5)}.com", f"{self.random.randrange(10**16):016d}"
        city, state = choice(CITIES), choice(STATES)
        return Person(FIRST_ID + number, name, email, card, city, state, at, self.text(20))

    def auction(self, number: int, person: int, at: int) -> Auction:
        is_hot = self.random.randrange(4)
        seller = person // HOT * HOT if is_hot else self.some_person(person)
        initial, description = self.price(), self.text(40)
        horizon = IN_FLIGHT * EPOCH // AUCTIONS * 1_000 // self.rate
        return Auction(
            *(FIRST_ID + number, self.text(20), description, initial, initial + self.price(), at),
            *(at + 1 + self.random.randrange(horizon * 2), FIRST_ID + seller),
            *(10 + self.random.randrange(5), self.text(20)),
        )

    def bid(self, auction: int, person: int, at: int) -> Bid:
        if self.random.randrange(2):
            auction = auction // HOT * HOT
        else:
            first = max(auction - IN_FLIGHT, 0)
            auction = first + self.random.randrange(auction - first + 1 + AHEAD)
        is_hot = self.random.randrange(4)
        bidder = person // HOT * HOT + 1 if is_hot else self.some_person(person)
        urls, names = (
            (self.hot, CHANNELS) if self.random.randrange(2) else (self.channels, self.names)
        )
        channel = self.random.choice(names)
        ids = (FIRST_ID + auction, FIRST_ID + bidder)
        return Bid(*ids, self.price(), channel, urls[channel], at, self.text(30))


@lru_cache(2)
def events(count: int, seed: int = 1, rate: int = 100) -> tuple[Event, ...]:
    """The first `count` events, in the order in which they come."""
    return tuple(arrivals(count, seed, rate))


def arrivals(count: int, seed: int, rate: int) -> Iterator[Event]:
    """The same without all of them in memory."""
    generator, random = Generator(seed, rate), Random(seed + 1)
    delayed: list[tuple[int, int, Event]] = []  # when they come, their numbers
    for number in range(count):
        event = generator.event(number)
        heappush(delayed, (event.at + random.randrange(DISORDER + 1), number, event))
        while delayed[0][0] < event.at:
            yield heappop(delayed)[2]
    while delayed:
        yield heappop(delayed)[2]


class Nexmark(Spout[Event]):
    """The events of a seed. Task i of p has each p-th of them, from the i-th on."""

    def __init__(self, count: int, seed: int = 1, rate: int = 100) -> None:
        self.arguments = (count, seed, rate)

    def open(self, context: Context) -> None:
        self.first, self.step = context.index, context.parallelism

    def records(self) -> Iterator[Event]:
        return iter(events(*self.arguments)[self.first :: self.step])
