"""The queries of Nexmark as plain programs: they sort all events by their time, and compute."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from statistics import mean
from typing import Any

from examples.nexmark.events import Auction, Bid, Event, Person

Row = tuple[Any, ...]
TEN_S = 10_000  # milliseconds
CHANNELS = {"apple": "0", "google": "1", "facebook": "2", "baidu": "3"}


class Sorted:
    """The events in the order of their times."""

    def __init__(self, events: Iterable[Event]) -> None:
        ordered = sorted(events, key=lambda event: event.at)
        self.persons: list[Person] = [event.person for event in ordered if event.person]
        self.auctions: list[Auction] = [event.auction for event in ordered if event.auction]
        self.bids: list[Bid] = [event.bid for event in ordered if event.bid]
        self.auction_of = {auction.id: auction for auction in self.auctions}
        self.person_of = {person.id: person for person in self.persons}


def q0(events: Sorted) -> Iterator[Row]:
    for bid in events.bids:
        yield bid.auction, bid.bidder, bid.price, bid.at, bid.extra


def q1(events: Sorted) -> Iterator[Row]:
    for bid in events.bids:
        yield bid.auction, bid.bidder, bid.price * 0.908, bid.at, bid.extra


def q2(events: Sorted) -> Iterator[Row]:
    for bid in events.bids:
        if not bid.auction % 123:
            yield bid.auction, bid.price


def q3(events: Sorted) -> Iterator[Row]:
    for auction in events.auctions:
        person = events.person_of.get(auction.seller)
        if auction.category == 10 and person and person.state in {"OR", "ID", "CA"}:
            yield person.name, person.city, person.state, auction.id


def winners(events: Sorted) -> dict[int, Bid]:
    """The first of the highest bids for each auction, while it was open."""
    best: dict[int, Bid] = {}
    for bid in events.bids:
        auction = events.auction_of.get(bid.auction)
        if (
            auction
            and auction.at <= bid.at <= auction.expires
            and (bid.auction not in best or bid.price > best[bid.auction].price)
        ):
            best[bid.auction] = bid
    return best


def q4(events: Sorted) -> Iterator[Row]:
    prices = defaultdict(list)
    for id_, bid in winners(events).items():
        prices[events.auction_of[id_].category].append(bid.price)
    for category, closing in prices.items():
        yield category, mean(closing)


def q5(events: Sorted) -> Iterator[Row]:
    counts: defaultdict[int, Counter[int]] = defaultdict(Counter)
    for bid in events.bids:
        first = bid.at // 2_000 * 2_000 + 2_000
        for end in range(first, first + TEN_S, 2_000):
            counts[end][bid.auction] += 1
    for end, of_auction in counts.items():
        for auction, count in of_auction.items():
            if count == max(of_auction.values()):
                yield auction, end, count


def q6(events: Sorted) -> Iterator[Row]:
    sales = defaultdict(list)
    for id_, bid in winners(events).items():
        sales[events.auction_of[id_].seller].append((bid.at, id_, bid.price))
    for seller, prices in sales.items():
        yield seller, mean(price for _, _, price in sorted(prices)[-10:])


def q7(events: Sorted) -> Iterator[Row]:
    highest: defaultdict[int, list[Bid]] = defaultdict(list)
    for bid in events.bids:
        best = highest[bid.at // TEN_S]
        if best and bid.price > best[0].price:
            best.clear()
        if not best or bid.price == best[0].price:
            best.append(bid)
    for best in highest.values():
        for bid in best:
            yield bid.auction, bid.bidder, bid.price, bid.at


def q8(events: Sorted) -> Iterator[Row]:
    selling = {(auction.seller, auction.at // TEN_S) for auction in events.auctions}
    for person in events.persons:
        if (person.id, person.at // TEN_S) in selling:
            yield person.id, person.name, (person.at // TEN_S + 1) * TEN_S


def q9(events: Sorted) -> Iterator[Row]:
    for id_, bid in winners(events).items():
        auction = events.auction_of[id_]
        sold = (auction.item, auction.seller, auction.category, auction.expires)
        yield id_, *sold, bid.bidder, bid.price, bid.at


def q10(events: Sorted) -> Iterator[Row]:
    """The bids, with the folder of their minute."""
    for bid in events.bids:
        yield f"begin={bid.at // 60_000 * 60_000}", *bid


def q11(events: Sorted) -> Iterator[Row]:
    times = defaultdict(list)
    for bid in events.bids:
        times[bid.bidder].append(bid.at)
    for bidder, ordered in times.items():
        begun = 0
        for number, at in enumerate(ordered, start=1):
            if number == len(ordered) or ordered[number] - at >= TEN_S:
                yield bidder, at + TEN_S, number - begun
                begun = number


def q12(events: Sorted) -> Iterator[Row]:
    """The bids of each bidder: in which ten seconds of the clock they fall is the clock's."""
    yield from Counter(bid.bidder for bid in events.bids).items()


def q13(events: Sorted) -> Iterator[Row]:
    for bid in events.bids:
        yield bid.auction, bid.bidder, bid.price, bid.at, f"value {bid.auction % 10_000}"


def q14(events: Sorted) -> Iterator[Row]:
    for bid in events.bids:
        if 1_000_000 < bid.price * 0.908 < 50_000_000:
            hour = bid.at // 3_600_000 % 24
            time = "other" if hour in {7, 19} else "day" if 8 <= hour <= 18 else "night"
            letters = len(bid.extra.split("c")) - 1
            yield bid.auction, bid.bidder, bid.price * 0.908, time, bid.at, bid.extra, letters


def day_of(bid: Bid) -> str:
    return datetime.fromtimestamp(bid.at // 1_000, UTC).date().isoformat()


def ranges(bids: Sequence[Bid]) -> list[list[Bid]]:
    edges = [(0, 10_000), (10_000, 1_000_000), (1_000_000, 1 << 60)]
    return [[bid for bid in bids if low <= bid.price < high] for low, high in edges]


def statistics(bids: Sequence[Bid]) -> Iterator[int]:
    for group in (bids, *ranges(bids)):
        yield from (
            len(group),
            len({bid.bidder for bid in group}),
            len({bid.auction for bid in group}),
        )


def grouped(events: Sorted, *key: Callable[[Bid], Any]) -> dict[Row, list[Bid]]:
    groups = defaultdict(list)
    for bid in events.bids:
        groups[tuple(part(bid) for part in key)].append(bid)
    return groups


def q15(events: Sorted) -> Iterator[Row]:
    for key, bids in grouped(events, day_of).items():
        yield *key, *statistics(bids)


def q16(events: Sorted) -> Iterator[Row]:
    for key, bids in grouped(events, lambda bid: bid.channel, day_of).items():
        last = datetime.fromtimestamp(bids[-1].at // 1_000, UTC).strftime("%H:%M")
        yield *key, last, *statistics(bids)


def q17(events: Sorted) -> Iterator[Row]:
    for key, bids in grouped(events, lambda bid: bid.auction, day_of).items():
        prices = [bid.price for bid in bids]
        counts = [len(bids), *map(len, ranges(bids))]
        yield *key, *counts, min(prices), max(prices), mean(prices), sum(prices)


def q18(events: Sorted) -> Iterator[Row]:
    for key, bids in grouped(events, lambda bid: bid.bidder, lambda bid: bid.auction).items():
        newest = max((bid.at, (bid.price, bid.channel, bid.url, bid.at, bid.extra)) for bid in bids)
        yield *key, newest[1]


def q19(events: Sorted) -> Iterator[Row]:
    for (auction,), bids in grouped(events, lambda bid: bid.auction).items():
        best = sorted(bids, key=lambda bid: (-bid.price, bid))[:10]
        for rank, bid in enumerate(best, start=1):
            yield auction, rank, bid.bidder, bid.price, bid.at


def q20(events: Sorted) -> Iterator[Row]:
    for bid in events.bids:
        auction = events.auction_of.get(bid.auction)
        if auction and auction.category == 10:
            yield *bid, *auction[1:]


def q21(events: Sorted) -> Iterator[Row]:
    for bid in events.bids:
        _, separator, of_url = bid.url.partition("&channel_id=")
        number = CHANNELS.get(bid.channel.lower(), of_url if separator else None)
        if number is not None:
            yield bid.auction, bid.bidder, bid.price, bid.channel, number


def q22(events: Sorted) -> Iterator[Row]:
    for bid in events.bids:
        directories = bid.url.removeprefix("https://www.nexmark.com/").split("/")
        yield bid.auction, bid.bidder, bid.price, bid.channel, *directories[:3]


def q23(events: Sorted) -> Iterator[Row]:
    auctions = defaultdict(list)
    for auction in events.auctions:
        auctions[auction.seller].append((auction.id, auction.item, auction.category))
    for bid in events.bids:
        if person := events.person_of.get(bid.bidder):
            for auction in auctions[bid.bidder]:
                yield bid.bidder, bid.price, bid.channel, bid.url, *person[1:6], *auction


def of_bidder(events: Sorted) -> Iterator[tuple[Row, list[Bid]]]:
    yield from grouped(events, lambda bid: bid.auction, lambda bid: bid.bidder).items()


def p0(events: Sorted) -> Iterator[Row]:
    for key, bids in of_bidder(events):
        start = 0
        while start < len(bids):
            end = start + 1
            while end < len(bids) and bids[end].price < bids[end - 1].price:
                end += 1
            rises = end < len(bids) and bids[end].price > bids[end - 1].price
            if end > start + 1 and rises:
                yield *key, bids[start].at, bids[end - 1].at, bids[end].at
                start = end
            else:
                start += 1


def periods(bids: Sequence[Bid], overlap: bool) -> Iterator[Row]:
    start = 0
    while start < len(bids):
        end, total = start, 0
        while end < len(bids) and (total + bids[end].price) / (end - start + 1) < 10_000:
            total += bids[end].price
            end += 1
        if is_period := start < end < len(bids):
            yield bids[start].at, bids[end - 1].at, total // (end - start)
        start = end + 1 if is_period and not overlap else start + 1


def p1(events: Sorted) -> Iterator[Row]:
    for key, bids in of_bidder(events):
        yield from ((*key, *period) for period in periods(bids, overlap=False))


def p2(events: Sorted) -> Iterator[Row]:
    for key, bids in of_bidder(events):
        yield from ((*key, *period) for period in periods(bids, overlap=True))


def p3(events: Sorted) -> Iterator[Row]:
    for key, bids in of_bidder(events):
        start = 0
        while start < len(bids):
            first, end = bids[start], start + 1
            near = [bid for bid in bids[end:] if bid.at - first.at < 5_000]
            between = next((n for n, bid in enumerate(near) if bid.price <= first.price - 50), None)
            if between is not None and near[between].price < first.price - 50:
                yield *key, near[between].at, first.price - near[between].price
                start = end + between + 1
            else:
                start += 1


PLAIN: dict[str, Callable[[Sorted], Iterator[Row]]] = {
    name: function for name, function in globals().items() if name[0] in "pq" and name[1:].isdigit()
}
