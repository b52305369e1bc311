"""Programs with a problem each, which the page must name at once."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from threading import Event
from typing import NamedTuple

from sunshower import Bolt, Context, Retry, Spout, Topology


class Order(NamedTuple):
    number: int
    customer: str
    amount: str


class Orders(Spout[Order]):
    """Reads a queue where `per_s` orders a second arrive, `hot` of ten of customer c-0."""

    def __init__(self, per_s: float, hot: int = 0, wrong: bool = False) -> None:
        self.per_s, self.hot, self.wrong = per_s, hot, wrong
        self.read = self.done = 0

    def open(self, context: Context) -> None:
        self.begin_s = time.monotonic()

    def records(self) -> Iterator[Order | None]:
        while True:
            while self.read >= self.arrived:
                yield None
            number, self.read = self.read, self.read + 1
            customer = 0 if number % 10 < self.hot else number * 7 % 1_000
            is_wrong = self.wrong and number % 10 == 3
            yield Order(number, f"c-{13 if is_wrong else customer}", "12,5" if is_wrong else "12.5")

    @property
    def arrived(self) -> float:
        return (time.monotonic() - self.begin_s) * self.per_s

    def ack(self, message_id: int) -> None:
        self.done += 1

    def figures(self) -> Mapping[str, float]:
        return {"lag": max(0.0, self.arrived - self.done)}


class Slow(Bolt[Order, Order]):
    """Passes orders on, each after `for_s`: the time of a call to a store."""

    def __init__(self, for_s: float) -> None:
        self.for_s = for_s

    def process(self, record: Order) -> Iterator[Order]:
        Event().wait(self.for_s)
        yield record


class Totals(Bolt[Order, None]):
    """Adds the amounts of each customer."""

    def prepare(self, context: Context) -> None:
        self.totals: dict[str, float] = {}

    def process(self, record: Order) -> None:
        before = self.totals.get(record.customer, 0.0)
        self.totals[record.customer] = before + float(record.amount)


class Rates(Bolt[Order, Order]):
    """Needs a setting that the deployment does not have."""

    def prepare(self, context: Context) -> None:
        self.url = os.environ["EXCHANGE_RATES_URL"]

    def process(self, record: Order) -> Iterator[Order]:
        yield record


def skew() -> Topology:
    topology = Topology("skew", workers=3, spout_pending=50)
    orders = topology.spout("orders", Orders(20.0, hot=9))
    orders.fields("customer").bolt("score", Slow(0.2), 4)
    return topology


def slow_store() -> Topology:
    topology = Topology("slow-store", workers=2, spout_pending=50)
    orders = topology.spout("orders", Orders(40.0))
    orders.shuffle().bolt("write-to-store", Slow(0.2), 2)
    return topology


def few_workers() -> Topology:
    topology = Topology("few-workers", workers=1, spout_pending=30)
    orders = topology.spout("orders", Orders(20.0))
    parsed = orders.shuffle().bolt("parse", Slow(0.1))
    parsed.shuffle().bolt("price", Slow(0.1)).shuffle().bolt("store", Slow(0.1))
    return topology


def poison_key() -> Topology:
    topology = Topology("poison-key", workers=2)
    retry = Retry(attempts=1_000, max_s=2.0)
    orders = topology.spout("orders", Orders(50.0, wrong=True), retry=retry)
    orders.fields("customer").bolt("totals", Totals, 2)
    return topology


def idle_source() -> Topology:
    topology = Topology("idle-source", workers=1)
    topology.spout("orders", Orders(0.0)).fields("customer").bolt("totals", Totals, 2)
    return topology


def broken_deploy() -> Topology:
    topology = Topology("broken-deploy", workers=1)
    rates = topology.spout("orders", Orders(50.0)).shuffle().bolt("convert", Rates, 2)
    rates.fields("customer").bolt("totals", Totals)
    return topology


# Their calls take long, so that what else this machine does changes little.
SITUATIONS = (skew, slow_store, few_workers, poison_key, idle_source, broken_deploy)
