"""Stages: small topologies in which defects of the core show, and what each must write.

lines        numbers ──▶ relay (0 to 2 parts each, sometimes raises) ──▶ sink   two subscribers
                └──────▶ audit (one, or all of its tasks)                       of each number
manual       numbers ──▶ join (manual: two anchors, fails, forgets) ──▶ sink
poison       numbers ──▶ relay ──▶ sink (one record ends its process), letters
quarantine   numbers ──▶ relay (`prepare` of one task always raises) ──▶ sink, letters
moves        as lines, with rebalances and drains
isolated     as lines, each task in its own worker; the only faults are deaths
drains       as isolated, but several tasks in a worker; processes die around the start of a drain
delays       as lines, with packets that are later than the restart of a spout
masters      as lines, with a slow source and a rebalance; the master dies, and then a spout
bad_routes   numbers ──▶ hold (manual: acks later) ──a grouping that sometimes raises──▶ sink
bad_flushes  as bad_routes, but the `flush` of hold sometimes raises instead of the grouping
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any, NamedTuple

from sunshower import Bolt, Collector, Context, Retry, Spout, Topology, Tuple
from sunshower.simulation.worker import Killed
from sunshower.topologies.retry import DeadLetter

SPOUTS = 2
POISON = 8
HALF = 99  # the part that a relay yields before it raises
_BURST = 4  # records after which a source yields None once


class Dice(Random):
    """A generator that all copies of its owner share."""

    def __deepcopy__(self, memo: Any) -> Dice:
        return self


class Item(NamedTuple):
    """A number of the source, or a part of it."""

    number: int
    part: int = -1


class Numbers(Spout[Item]):
    """0 … total - 1, divided among its tasks, a few at a time."""

    def __init__(self, total: int) -> None:
        self._total = total

    def open(self, context: Context) -> None:
        self._context = context

    def records(self) -> Iterator[Item | None]:
        context = self._context
        for position, number in enumerate(range(context.index, self._total, context.parallelism)):
            if position % _BURST == 0:
                yield None
            yield Item(number)


class Movable:
    """A bolt without state, which can move to another worker."""

    def snapshot(self) -> None:
        """See Bolt."""

    def restore(self, state: None) -> None:
        """See Bolt."""


class SlowNumbers(Numbers):
    """One number each 0.2 s."""

    def records(self) -> Iterator[Item | None]:
        clock = self._context.clock
        for item in super().records():
            if item is not None:
                yield item
                next_s = clock.now() + 0.2
                while clock.now() < next_s:
                    yield None


class Sink(Movable, Bolt[Item, None]):
    """Reports each record as written."""

    def prepare(self, context: Context) -> None:
        self._context = context

    def process(self, record: Item) -> None:
        self._context.wrote((self._context.component, *record))


class Relay(Movable, Bolt[Item, Item]):
    """Yields `parts_of` parts; sometimes it yields one more and raises."""

    def __init__(self, dice: Dice, risk: float) -> None:
        self._dice = dice
        self._risk = risk

    def process(self, record: Item) -> Iterator[Item]:
        raises = self._dice.random() < self._risk
        for part in range(parts_of(record.number)):
            yield Item(record.number, part)
        if raises:
            yield Item(record.number, HALF)
            raise ValueError("the relay raises")


class Join(Bolt[Item, Item]):
    """For two inputs: a part with both as its anchors, and a second part with one of them twice.

    Sometimes it fails an input, never finishes one, or raises after it has acked one.
    """

    def __init__(self, dice: Dice, risk: float) -> None:
        self._dice = dice
        self._risk = risk
        self._held: list[Tuple[Item]] = []

    def execute(self, tuple: Tuple[Item], out: Collector[Item]) -> None:
        chance = self._dice.random()
        if chance < self._risk:
            out.fail(tuple, "the join fails an input")
            return
        if chance < 1.5 * self._risk:
            return
        if chance < 2 * self._risk:
            out.ack(tuple)
            raise ValueError("the join raises after an ack")
        self._held.append(tuple)
        number = tuple.record.number
        if len(self._held) < 2 and number % 2:
            return
        out.emit(Item(number, 0), self._held)
        out.emit(Item(number, 1), [tuple, tuple])
        for held in self._held:
            if held is not tuple:
                out.emit(Item(held.record.number, 0), held)
                out.emit(Item(held.record.number, 1), [held, tuple])
        for held in self._held:
            out.ack(held)
        self._held = []


class Hold(Bolt[Item, Item]):
    """Emits a part of each input at once; acks some inputs only with a later one."""

    def __init__(self, dice: Dice) -> None:
        self._dice = dice

    def prepare(self, context: Context) -> None:
        self._held: list[Tuple[Item]] = []

    def execute(self, tuple: Tuple[Item], out: Collector[Item]) -> None:
        out.emit(Item(tuple.record.number, 0), tuple)
        self._held.append(tuple)
        if self._dice.random() < 0.7:
            for held in self._held:
                out.ack(held)
            self._held = []


class FlushRaises(Hold):
    """Sometimes its `flush` raises, also while some inputs are open."""

    def flush(self) -> None:
        if self._dice.random() < 0.2:
            raise OSError("the flush fails")


class RaisingGrouping:
    """A grouping that sometimes raises."""

    def __init__(self, dice: Dice) -> None:
        self._dice = dice

    def prepare(self, targets: Sequence[int]) -> None:
        self._targets = targets

    def choose(self, record: Item) -> Sequence[int]:
        if self._dice.random() < 0.2:
            raise ValueError("the grouping raises")
        return [self._targets[record.number % len(self._targets)]]


class DiesOnPoison(Sink):
    """Its process dies when it gets the poison."""

    def process(self, record: Item) -> None:
        if record.number == POISON:
            raise Killed
        super().process(record)


class PrepareRaises(Relay):
    """The `prepare` of its first task always raises."""

    def prepare(self, context: Context) -> None:
        if context.index == 0:
            raise OSError("there is no such database")


class Letters(Bolt[DeadLetter, None]):
    """Reports the numbers that became dead letters as written."""

    def prepare(self, context: Context) -> None:
        self._context = context

    def process(self, record: DeadLetter) -> None:
        self._context.wrote(("letter", record.record["number"], -1))


def parts_of(number: int) -> int:
    """How many parts a relay yields for a number."""
    return number % 3


def lines(dice: Dice, total: int, **settings: Any) -> Topology:
    return _lines(dice, total, dice.choice((0, 0.05)), _many_attempts(0.01), settings)


def isolated(dice: Dice, total: int, **settings: Any) -> Topology:
    """Failed messages wait for 0.5 s, so that they still wait when their spout dies."""
    return _lines(dice, total, 0.15, _many_attempts(0.5), settings)


def masters(dice: Dice, total: int, **settings: Any) -> Topology:
    return _lines(dice, total, 0.0, _many_attempts(0.5), settings, SlowNumbers)


def _lines(
    dice: Dice,
    total: int,
    risk: float,
    retry: Retry,
    settings: dict[str, Any],
    source: type[Numbers] = Numbers,
) -> Topology:
    topology = Topology("lines", **settings)
    numbers = topology.spout("numbers", source(total), SPOUTS, retry=retry)
    relays = numbers.shuffle().bolt("relay", Relay(dice, risk), 2)
    relays.fields("part").bolt("sink", Sink, 2)
    (numbers.all() if dice.random() < 0.3 else numbers.shuffle()).bolt("audit", Sink, 2)
    return topology


def manual(dice: Dice, total: int, **settings: Any) -> Topology:
    topology = Topology("manual", **{**settings, "message_timeout_s": 3.0})
    numbers = topology.spout("numbers", Numbers(total), SPOUTS, retry=_many_attempts(0.01))
    numbers.shuffle().bolt("join", Join(dice, 0.1), 2).fields("number").bolt("sink", Sink, 2)
    return topology


def bad_routes(dice: Dice, total: int, **settings: Any) -> Topology:
    topology = Topology("bad_routes", **{**settings, "message_timeout_s": 3.0})
    numbers = topology.spout("numbers", Numbers(total), SPOUTS, retry=_many_attempts(0.01))
    held = numbers.shuffle().bolt("hold", Hold(dice), 2)
    held.custom(RaisingGrouping(dice)).bolt("sink", Sink, 2)
    return topology


def bad_flushes(dice: Dice, total: int, **settings: Any) -> Topology:
    topology = Topology("bad_flushes", **{**settings, "message_timeout_s": 3.0})
    numbers = topology.spout("numbers", Numbers(total), SPOUTS, retry=_many_attempts(0.01))
    numbers.shuffle().bolt("hold", FlushRaises(dice), 2).fields("number").bolt("sink", Sink, 2)
    return topology


def poison(dice: Dice, total: int, **settings: Any) -> Topology:
    topology = Topology("poison", **settings)
    return _with_letters(topology, Relay(dice, 0), DiesOnPoison, total)


def quarantine(dice: Dice, total: int, **settings: Any) -> Topology:
    topology = Topology("quarantine", **{**settings, "task_errors_max": 2})
    return _with_letters(topology, PrepareRaises(dice, 0), Sink, total)


def _with_letters(topology: Topology, relay: Relay, sink: type[Sink], total: int) -> Topology:
    retry = Retry(attempts=3, initial_s=0.01, dead_letters=True)
    numbers = topology.spout("numbers", Numbers(total), SPOUTS, retry=retry)
    numbers.shuffle().bolt("relay", relay, 2).fields("number").bolt("sink", sink, 2)
    numbers.stream("dead_letters").shuffle().bolt("letters", Letters)
    return topology


def leaves(stage: str, number: int) -> set[tuple[str, int, int]]:
    """What must be written for a number, unless it becomes a dead letter."""
    if stage == "manual":
        return {("sink", number, 0), ("sink", number, 1)}
    if stage in ("bad_routes", "bad_flushes"):
        return {("sink", number, 0)}
    records = {("sink", number, part) for part in range(parts_of(number))}
    if STAGES[stage] in (lines, isolated, masters):
        records.add(("audit", number, -1))
    return records


def _many_attempts(initial_s: float) -> Retry:
    return Retry(attempts=1000, initial_s=initial_s, max_s=max(initial_s, 0.2))


Stage = Callable[..., Topology]
STAGES: dict[str, Stage] = {
    "lines": lines,
    "manual": manual,
    "poison": poison,
    "quarantine": quarantine,
    "moves": lines,
    "isolated": isolated,
    "drains": isolated,
    "delays": lines,
    "masters": masters,
    "bad_routes": bad_routes,
    "bad_flushes": bad_flushes,
}
