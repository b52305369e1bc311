"""Small topologies in which every slip of the core shows: what runs, and what its leaves must say.

lines     numbers ──▶ relay (0 to 2 parts each, raises at times) ──▶ sink      two subscribers
             └──────▶ audit (one, or all of its tasks)                         of each number
hands     numbers ──▶ join (manual: two anchors, fails, forgets) ──▶ sink
poison    numbers ──▶ relay ──▶ sink (one record ends its process), letters
sick      numbers ──▶ relay (one of its tasks can never be prepared) ──▶ sink, letters
moves     as lines, while its tasks change places and its sources are stopped
apart     as lines, each task in a worker of its own, and nothing but deaths
drains    as apart, but together, and they die around the moment in which the sources are drained
ghosts    as lines, while packets are late by more than a death takes
masters   as lines, with a slow source that moves and may be drained; the master dies, and a spout
whims     numbers ──▶ hold (manual: acks later) ──at times there is no way──▶ sink
disks     as whims, with a way; but at times what hold did cannot be made durable
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
HALF = 99  # the part that a relay makes before it raises
_BURST = 4  # records after which a source has nothing for a moment


class Dice(Random):
    """Shared by all copies of whoever holds them."""

    def __deepcopy__(self, memo: Any) -> Dice:
        return self


class Item(NamedTuple):
    """What the source emits, and what is made of it."""

    number: int
    part: int = -1


class Numbers(Spout[Item]):
    """0 … total - 1 shared out among its tasks, a few at a time."""

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


class Anywhere:
    """A bolt that keeps nothing in memory, and so can move."""

    def snapshot(self) -> None:
        """See Bolt."""

    def restore(self, state: None) -> None:
        """See Bolt."""


class SlowNumbers(Numbers):
    """One at a time, and nothing for 0.2 s."""

    def records(self) -> Iterator[Item | None]:
        clock = self._context.clock
        for item in super().records():
            if item is not None:
                yield item
                next_s = clock.now() + 0.2
                while clock.now() < next_s:
                    yield None


class Sink(Anywhere, Bolt[Item, None]):
    """Says what it has seen."""

    def prepare(self, context: Context) -> None:
        self._context = context

    def process(self, record: Item) -> None:
        self._context.wrote((self._context.component, *record))


class Relay(Anywhere, Bolt[Item, Item]):
    """As many parts as `parts_of` says; at times it raises when it has made a part already."""

    def __init__(self, dice: Dice, risk: float) -> None:
        self._dice = dice
        self._risk = risk

    def process(self, record: Item) -> Iterator[Item]:
        raises = self._dice.random() < self._risk
        for part in range(parts_of(record.number)):
            yield Item(record.number, part)
        if raises:
            yield Item(record.number, HALF)
            raise ValueError("this record is not to my liking")


class Join(Bolt[Item, Item]):
    """Pairs of inputs: a part with both as its anchors, and a second one with one of them twice.

    At times it fails an input, forgets one for ever, or raises after it has acked it.
    """

    def __init__(self, dice: Dice, risk: float) -> None:
        self._dice = dice
        self._risk = risk
        self._held: list[Tuple[Item]] = []

    def execute(self, tuple: Tuple[Item], out: Collector[Item]) -> None:
        chance = self._dice.random()
        if chance < self._risk:
            out.fail(tuple, "not to my liking")
            return
        if chance < 1.5 * self._risk:
            return
        if chance < 2 * self._risk:
            out.ack(tuple)
            raise ValueError("this record is not to my liking after all")
        self._held.append(tuple)
        number = tuple.record.number
        if len(self._held) < 2 and number % 2:
            return
        out.emit(Item(number, 0), self._held)
        out.emit(Item(number, 1), [tuple, tuple])
        for one in self._held:
            if one is not tuple:
                out.emit(Item(one.record.number, 0), one)
                out.emit(Item(one.record.number, 1), [one, tuple])
        for one in self._held:
            out.ack(one)
        self._held = []


class Hold(Bolt[Item, Item]):
    """A part of each, at once; some are acked with the next one."""

    def __init__(self, dice: Dice) -> None:
        self._dice = dice

    def prepare(self, context: Context) -> None:
        self._held: list[Tuple[Item]] = []

    def execute(self, tuple: Tuple[Item], out: Collector[Item]) -> None:
        out.emit(Item(tuple.record.number, 0), tuple)
        self._held.append(tuple)
        if self._dice.random() < 0.7:
            for one in self._held:
                out.ack(one)
            self._held = []


class HoldOnDisk(Hold):
    """What it did cannot be made durable at times, also while some inputs are open."""

    def flush(self) -> None:
        if self._dice.random() < 0.2:
            raise OSError("the disk is away for a moment")


class Whim:
    """A grouping that raises at times."""

    def __init__(self, dice: Dice) -> None:
        self._dice = dice

    def prepare(self, targets: Sequence[int]) -> None:
        self._targets = targets

    def choose(self, record: Item) -> Sequence[int]:
        if self._dice.random() < 0.2:
            raise ValueError("I do not know where to send this")
        return [self._targets[record.number % len(self._targets)]]


class Deadly(Sink):
    """The process of whoever gets the poison is gone."""

    def process(self, record: Item) -> None:
        if record.number == POISON:
            raise Killed
        super().process(record)


class Sick(Relay):
    """The first task of it cannot be prepared."""

    def prepare(self, context: Context) -> None:
        if context.index == 0:
            raise OSError("there is no such database")


class Letters(Bolt[DeadLetter, None]):
    """Says which numbers have become dead letters."""

    def prepare(self, context: Context) -> None:
        self._context = context

    def process(self, record: DeadLetter) -> None:
        self._context.wrote(("letter", record.record["number"], -1))


def parts_of(number: int) -> int:
    """How many parts a relay makes of a number."""
    return number % 3


def lines(dice: Dice, total: int, **settings: Any) -> Topology:
    """See the drawing."""
    return _lines(dice, total, dice.choice((0, 0.05)), _often(0.01), settings)


def apart(dice: Dice, total: int, **settings: Any) -> Topology:
    """See the drawing. What fails waits long: it is in line when its spout dies."""
    return _lines(dice, total, 0.15, _often(0.5), settings)


def masters(dice: Dice, total: int, **settings: Any) -> Topology:
    """See the drawing."""
    return _lines(dice, total, 0.0, _often(0.5), settings, SlowNumbers)


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


def hands(dice: Dice, total: int, **settings: Any) -> Topology:
    """See the drawing."""
    topology = Topology("hands", **{**settings, "message_timeout_s": 3.0})
    numbers = topology.spout("numbers", Numbers(total), SPOUTS, retry=_often(0.01))
    numbers.shuffle().bolt("join", Join(dice, 0.1), 2).fields("number").bolt("sink", Sink, 2)
    return topology


def whims(dice: Dice, total: int, **settings: Any) -> Topology:
    """See the drawing."""
    topology = Topology("whims", **{**settings, "message_timeout_s": 3.0})
    numbers = topology.spout("numbers", Numbers(total), SPOUTS, retry=_often(0.01))
    numbers.shuffle().bolt("hold", Hold(dice), 2).custom(Whim(dice)).bolt("sink", Sink, 2)
    return topology


def disks(dice: Dice, total: int, **settings: Any) -> Topology:
    """See the drawing."""
    topology = Topology("disks", **{**settings, "message_timeout_s": 3.0})
    numbers = topology.spout("numbers", Numbers(total), SPOUTS, retry=_often(0.01))
    numbers.shuffle().bolt("hold", HoldOnDisk(dice), 2).fields("number").bolt("sink", Sink, 2)
    return topology


def poison(dice: Dice, total: int, **settings: Any) -> Topology:
    """See the drawing."""
    topology = Topology("poison", **settings)
    return _with_letters(topology, Relay(dice, 0), Deadly, total)


def sick(dice: Dice, total: int, **settings: Any) -> Topology:
    """See the drawing."""
    topology = Topology("sick", **{**settings, "task_errors_max": 2})
    return _with_letters(topology, Sick(dice, 0), Sink, total)


def _with_letters(topology: Topology, relay: Relay, sink: type[Sink], total: int) -> Topology:
    retry = Retry(attempts=3, initial_s=0.01, dead_letters=True)
    numbers = topology.spout("numbers", Numbers(total), SPOUTS, retry=retry)
    numbers.shuffle().bolt("relay", relay, 2).fields("number").bolt("sink", sink, 2)
    numbers.stream("dead_letters").shuffle().bolt("letters", Letters)
    return topology


def leaves(stage: str, number: int) -> set[tuple[str, int, int]]:
    """What must be written of a number that is no dead letter."""
    if stage == "hands":
        return {("sink", number, 0), ("sink", number, 1)}
    if stage in ("whims", "disks"):
        return {("sink", number, 0)}
    found = {("sink", number, part) for part in range(parts_of(number))}
    return found | ({("audit", number, -1)} if STAGES[stage] in (lines, apart, masters) else set())


def _often(initial_s: float) -> Retry:
    return Retry(attempts=1000, initial_s=initial_s, max_s=max(initial_s, 0.2))


Stage = Callable[..., Topology]
STAGES: dict[str, Stage] = {
    "lines": lines,
    "hands": hands,
    "poison": poison,
    "sick": sick,
    "moves": lines,
    "apart": apart,
    "drains": apart,
    "ghosts": lines,
    "masters": masters,
    "whims": whims,
    "disks": disks,
}
