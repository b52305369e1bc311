"""The four queries of patterns in the bids of one bidder for one auction, in the order of time."""

from __future__ import annotations

from typing import Any

from examples.nexmark.events import Bid
from examples.nexmark.inputs import LATE, SECOND, Inputs
from sunshower import Match, PatternStep, Stream

ALWAYS = 86_400 * SECOND
DROP, CHEAP = 50, 10_000
FALL = ("auction", "bidder", "begin", "bottom", "end")
PERIOD = ("auction", "bidder", "begin", "end", "mean")
DROPPED = ("auction", "bidder", "at", "drop")


def p0(inputs: Inputs) -> Stream[Any]:
    """Prices that fall from bid to bid, until one rises."""
    steps = (
        PatternStep("start", is_any),
        PatternStep("down", is_lower, at_least=1, strict=True),
        PatternStep("up", is_higher, strict=True),
    )
    return ordered(inputs).match(
        *steps,
        within=ALWAYS,
        select=fall,
        skip="to_last",
        name="falls",
        fields=FALL,
        **inputs.keyed,
    )


def p1(inputs: Inputs) -> Stream[Any]:
    """The longest periods in which the mean of the prices is low."""
    return periods(inputs, "past_last")


def p2(inputs: Inputs) -> Stream[Any]:
    """The same from each bid on."""
    return periods(inputs, "to_next")


def p3(inputs: Inputs) -> Stream[Any]:
    """A price that is lower by more than 50 within five seconds."""
    steps = (
        PatternStep("first", is_any),
        PatternStep("between", is_near, at_least=1, optional=True, strict=True),
        PatternStep("last", is_far_below, strict=True),
    )
    return ordered(inputs).match(
        *steps, within=5 * SECOND, select=drop, name="drops", fields=DROPPED, **inputs.keyed
    )


def ordered(inputs: Inputs) -> Any:
    return inputs.bids.group_by("auction", "bidder").in_order("at", late=LATE)


def periods(inputs: Inputs, skip: Any) -> Stream[Any]:
    steps = (
        PatternStep("cheap", is_cheap, at_least=1, strict=True),
        PatternStep("next", is_any, strict=True),
    )
    return ordered(inputs).match(
        *steps,
        within=ALWAYS,
        select=period,
        skip=skip,
        name="periods",
        fields=PERIOD,
        **inputs.keyed,
    )


def is_any(_bid: Bid) -> bool:
    return True


def is_lower(bid: Bid, match: Match[Bid]) -> bool:
    return bid.price < (match["down"] or match["start"])[-1].price


def is_higher(bid: Bid, match: Match[Bid]) -> bool:
    return bid.price > match["down"][-1].price


def is_cheap(bid: Bid, match: Match[Bid]) -> bool:
    prices = [bid.price, *(earlier.price for earlier in match["cheap"])]
    return sum(prices) < CHEAP * len(prices)


def is_near(bid: Bid, match: Match[Bid]) -> bool:
    return bid.price > match["first"][0].price - DROP


def is_far_below(bid: Bid, match: Match[Bid]) -> bool:
    return bid.price < match["first"][0].price - DROP


def fall(match: Match[Bid]) -> tuple[int, ...]:
    (start,), (up,), bottom = match["start"], match["up"], match["down"][-1]
    return start.auction, start.bidder, start.at, bottom.at, up.at


def period(match: Match[Bid]) -> tuple[int, ...]:
    bids = match["cheap"]
    mean = sum(bid.price for bid in bids) // len(bids)
    return bids[0].auction, bids[0].bidder, bids[0].at, bids[-1].at, mean


def drop(match: Match[Bid]) -> tuple[int, ...]:
    (first,), (last,) = match["first"], match["last"]
    return first.auction, first.bidder, last.at, first.price - last.price
